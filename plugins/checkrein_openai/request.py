"""A neutral request as the JSON body of a chat completion. Pure: the quirks say what differs per endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from checkrein.errors import ProviderError
from checkrein.messages import (
    AssistantMessage,
    Block,
    CallBlock,
    MediaBlock,
    OpaqueBlock,
    Request,
    TextBlock,
    ThinkingBlock,
    ToolMessage,
    ToolSchema,
)
from checkrein.nearest import did_you_mean
from checkrein.schema import inline_refs
from checkrein.text import clean_json

from .labels import CallIds, ToolNames
from .quirks import Quirks
from .wirejson import is_object, loads

__all__ = ["Wire", "build"]

# Settings that this wire calls by the same name.
_SAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "reasoning_effort",
    "verbosity",
    "service_tier",
    "prompt_cache_key",
    "safety_identifier",
)
_OWN = ("max_tokens", "output_schema", "tool_choice", "parallel_tool_calls")
HIDDEN = "(content that cannot be shown here)"
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class Wire(NamedTuple):
    """A request ready to send.

    Attributes:
        body: the JSON body, encoded.
        names: our names of the tools whose name had to be changed for the wire.
    """

    body: bytes
    names: dict[str, str]


def build(request: Request, quirks: Quirks, more: dict[str, Any] | None = None) -> Wire:
    """Return the body for a request.

    Args:
        request: the neutral request; opaque data of its answers goes back only if provider and model agree (M5).
        quirks: the endpoint's, all of them.
        more: members of the body over all others.

    Raises:
        ProviderError: a setting is not known here (kind generate, code BAD_REQUEST).
    """
    names = ToolNames()
    body: dict[str, Any] = {"model": request.model, "stream": True}
    if quirks.stream_usage:
        body["stream_options"] = {"include_usage": True}
    tools = _tools(request, quirks, names)
    if tools:
        body["tools"] = tools
    words = _settings(request, quirks, names, body, bool(tools))
    messages = _Messages(request, quirks, names).build()
    system = "\n\n".join((*request.system, *words))
    head = [{"role": quirks.system_role, "content": system}] if system else []
    body["messages"] = head + messages
    body.update(more or {})
    try:
        encoded = msgspec.json.encode(body)
    except UnicodeEncodeError:  # a prompt section or a tool's description of foreign origin
        encoded = msgspec.json.encode(clean_json(body, 200)[0])
    return Wire(encoded, names.ours)


def _settings(request: Request, quirks: Quirks, names: ToolNames, body: dict[str, Any], tools: bool) -> list[str]:
    """Put the settings into the body; return what must be said in words."""
    words: list[str] = []
    for name, value in request.settings.items():
        if value is None:
            continue
        if name in _SAME:
            body[name] = value
        elif name == "max_tokens":
            body[quirks.max_tokens_field] = value
        elif name == "parallel_tool_calls":
            if tools and quirks.parallel_calls:
                body[name] = value
        elif name == "tool_choice":
            if tools:
                named = isinstance(value, str) and value not in ("auto", "none", "required")
                body[name] = {"type": "function", "function": {"name": names.wire(value)}} if named else value
        elif name == "output_schema":
            words += _output_schema(value, quirks, body)
        elif name == request.provider and isinstance(value, dict):
            body.update(value)
        elif not isinstance(value, dict):  # a table under another name is another provider's
            known = (*_SAME, *_OWN)
            raise ProviderError(
                f"expected one of the settings {', '.join(sorted(known))}, got {name!r}{did_you_mean(name, known)};"
                f" what only this provider knows goes in a table named {request.provider!r}",
                code="BAD_REQUEST",
            )
    return words


def _output_schema(schema: Any, quirks: Quirks, body: dict[str, Any]) -> list[str]:
    how = quirks.output_schema
    if isinstance(schema, dict):
        schema = inline_refs(schema)  # servers want to see an object at the top
    if how == "json_schema":
        wrapped = {"name": "answer", "schema": schema, "strict": _is_strict(schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": wrapped}
        return []
    if how == "json_object":
        body["response_format"] = {"type": "json_object"}
    text = msgspec.json.encode(schema).decode()
    return [f"Answer with one JSON object and nothing else. It must satisfy this JSON Schema: {text}"]


def _is_strict(schema: Any) -> bool:
    """Whether every object of a schema is closed and requires all it names, as strict mode demands."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required") or ()) != set(properties):
            return False
    return all(
        _is_strict(value) for key, value in schema.items() if key not in ("enum", "const", "default", "examples")
    )


def _tools(request: Request, quirks: Quirks, names: ToolNames) -> list[dict[str, Any]]:
    tools = list(request.tools)
    if quirks.stub_tools:
        known = {tool.name for tool in tools}
        for message in request.messages:
            for call in message.calls if isinstance(message, AssistantMessage) else ():
                if call.name not in known:
                    known.add(call.name)
                    tools.append(ToolSchema(call.name, "No longer available.", {}))
    return [
        {
            "type": "function",
            "function": {
                "name": names.wire(tool.name),
                "description": tool.description,
                "parameters": {"type": "object", "properties": {}, **tool.parameters},
            },
        }
        for tool in tools
    ]


class _Messages:
    """The messages of one request on their way to the wire."""

    def __init__(self, request: Request, quirks: Quirks, names: ToolNames) -> None:
        self._request = request
        self._quirks = quirks
        self._names = names
        self._ids = CallIds(request.messages, request.provider, request.model, quirks.call_ids)
        self._out: list[dict[str, Any]] = []
        self._media: list[dict[str, Any]] = []  # of tool results: this wire shows them in a user's message only

    def build(self) -> list[dict[str, Any]]:
        """Return the wire messages."""
        for position, message in enumerate(self._request.messages):
            if isinstance(message, ToolMessage):
                self._tool(position, message)
                continue
            self._show_media()
            if isinstance(message, AssistantMessage):
                self._add(self._answer(position, message))
            else:
                self._add({"role": "user", "content": _content([_part(block) for block in message.content])})
        self._show_media()
        return self._out

    def _add(self, message: dict[str, Any]) -> None:
        last = self._out[-1] if self._out else None
        if last is None or not self._quirks.merge_roles or last["role"] != message["role"]:
            self._out.append(message)
        elif message["role"] == "user":
            last["content"] = _both(last["content"], message["content"])
        elif message["role"] == "assistant" and "tool_calls" not in last:
            message["content"] = _both(last["content"], message["content"])
            self._out[-1] = {**last, **message}
        else:
            self._out.append(message)

    def _tool(self, position: int, message: ToolMessage) -> None:
        parts = [_part(block) for block in message.content]
        media = [part for part in parts if part["type"] != "text"]
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        if media:
            text = f"{text}\n(media follows)" if text else "(media follows)"
            self._media += [{"type": "text", "text": f"Media of the result of {message.name}:"}, *media]
        id_ = self._ids.of_result(position, message)
        self._out.append({"role": "tool", "tool_call_id": id_, "content": text})

    def _show_media(self) -> None:
        if self._media:
            media, self._media = self._media, []
            self._add({"role": "user", "content": media})

    def _answer(self, position: int, message: AssistantMessage) -> dict[str, Any]:
        own = message.provider == self._request.provider and message.model == self._request.model
        parts: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        thinking: dict[str, str] = {}
        for block in message.content:
            if isinstance(block, TextBlock):
                if block.text:
                    parts.append({"type": "text", "text": block.text})
            elif isinstance(block, CallBlock):
                calls.append(self._call(position, block, own))
            elif isinstance(block, ThinkingBlock):
                if own and block.text and self._quirks.reasoning != "drop":
                    self._think(block, parts, thinking)
            elif isinstance(block, OpaqueBlock):
                if own and block.provider == self._request.provider:
                    parts.append(block.data)
            else:
                parts.append({"type": "text", "text": f"({block.name or block.media_type})"})
        out: dict[str, Any] = {"role": "assistant"}
        plain = all(isinstance(part, dict) and part.get("type") == "text" for part in parts)
        if plain:
            out["content"] = "".join(part["text"] for part in parts) or (None if calls else HIDDEN)
        else:
            out["content"] = parts
        if self._quirks.reasoning == "always":
            thinking.setdefault("reasoning_content", "")
        out.update(thinking)
        if own and message.provider_metadata is not None:
            out.update(_object(message.provider_metadata, self._quirks.echo))
        if calls:
            out["tool_calls"] = calls
        return out

    def _think(self, block: ThinkingBlock, parts: list[dict[str, Any]], thinking: dict[str, str]) -> None:
        """Put thinking where it came from: decode.py wrote the member's name as the block's metadata."""
        text, member = block.text or "", block.provider_metadata or "reasoning_content"
        if member == "thinking":
            parts.append({"type": "thinking", "thinking": [{"type": "text", "text": text}]})
        elif member in ("reasoning_content", "reasoning", "reasoning_text"):
            thinking[member] = thinking.get(member, "") + text

    def _call(self, position: int, block: CallBlock, own: bool) -> dict[str, Any]:
        arguments = block.arguments if is_object(block.arguments) else "{}"
        call: dict[str, Any] = {
            "id": self._ids.of_call(position, block),
            "type": "function",
            "function": {"name": self._names.wire(block.name), "arguments": arguments},
        }
        if own and block.provider_metadata is not None:
            call = {**_object(block.provider_metadata), **call}
        return call


def _object(text: str, members: Sequence[str] | None = None) -> dict[str, Any]:
    """The members of a JSON object, all or these; nothing if it is none: then it was not ours."""
    try:
        value = loads(text.encode("utf-8", "replace"))
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    return value if members is None else {name: value[name] for name in members if name in value}


def _part(block: Block) -> dict[str, Any]:
    """A block as a part of a content list; what this wire cannot show becomes words."""
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if not isinstance(block, MediaBlock):
        return {"type": "text", "text": HIDDEN}
    kind, what = block.media_type, block.name or block.media_type
    if kind.startswith("image/") and (block.url or block.data):
        return {"type": "image_url", "image_url": {"url": block.url or f"data:{kind};base64,{block.data}"}}
    if block.data is not None and kind in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": block.data, "format": _AUDIO[kind]}}
    if block.data is not None:
        file = {"filename": block.name or "file", "file_data": f"data:{kind};base64,{block.data}"}
        return {"type": "file", "file": file}
    return {"type": "text", "text": f"({what}: {block.url})" if block.url else f"({what}: not available)"}


def _content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Plain text as a string: not every server takes lists of parts."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _both(first: Any, second: Any) -> Any:
    """The contents of two neighbours of one role as one."""
    if isinstance(first, list) or isinstance(second, list):
        return _as_parts(first) + _as_parts(second)
    return "\n\n".join(text for text in (first, second) if text) or second


def _as_parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []
