"""Plain conversions of the neutral messages to the three wire forms, for the validators.

They do what every adapter has to: ids and names in the wire's alphabet, neighbours of one role merged
where the wire alternates, parts without a place on the wire described or left out. They repair
nothing: a history that is not balanced stays so and is found. Quirks of single servers are the adapters'.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from checkrein.messages import (
    AssistantMessage,
    Block,
    CallBlock,
    MediaBlock,
    Message,
    OpaqueBlock,
    TextBlock,
    ToolMessage,
)
from checkrein.text import decode_json

__all__ = ["to_openai_chat", "to_openai_responses", "to_anthropic"]

_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_CHARS = 64
_ID_CHARS = 40
_BLANK = "(blank)"

_Json = dict[str, Any]


def to_openai_chat(messages: Sequence[Message]) -> list[_Json]:
    """Return the messages as an OpenAI chat request has them.

    Args:
        messages: the derived history, without the system prompt.
    """
    ids = _Ids()
    out: list[_Json] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            text = _described(message.content)
            out.append({"role": "tool", "tool_call_id": ids.of(message.call_id), "content": text})
        elif isinstance(message, AssistantMessage):
            entry: _Json = {"role": "assistant", "content": _described(message.content) or None}
            if message.calls:
                entry["tool_calls"] = [_chat_call(call, ids) for call in message.calls]
            if entry["content"] is not None or message.calls:
                out.append(entry)
        else:
            out.append({"role": "user", "content": _chat_content(message.content)})
    return out


def to_openai_responses(messages: Sequence[Message]) -> list[_Json]:
    """Return the messages as the input items of an OpenAI responses request.

    Args:
        messages: the derived history, without the instructions.
    """
    ids = _Ids()
    out: list[_Json] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            text = _described(message.content)
            out.append({"type": "function_call_output", "call_id": ids.of(message.call_id), "output": text})
        elif isinstance(message, AssistantMessage):
            if text := _described(message.content):
                out.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
            for call in message.calls:
                item = {"type": "function_call", "call_id": ids.of(call.call_id), "name": _name(call.name)}
                out.append({**item, "arguments": call.arguments})
        else:
            parts = [part for block in message.content if (part := _responses_part(block)) is not None]
            out.append({"type": "message", "role": "user", "content": parts})
    return out


def to_anthropic(messages: Sequence[Message]) -> list[_Json]:
    """Return the messages as an Anthropic messages request has them, neighbours of one role merged.

    Args:
        messages: the derived history, without the system prompt.
    """
    ids = _Ids()
    out: list[_Json] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            result: _Json = {"type": "tool_result", "tool_use_id": ids.of(message.call_id)}
            result["content"] = _anthropic_parts(message.content)
            _merge(out, "user", [{**result, "is_error": True} if message.is_error else result])
        elif isinstance(message, AssistantMessage):
            blocks = _anthropic_parts(message.content, media=False)
            blocks += [_tool_use(call, ids) for call in message.calls]
            if blocks:  # thinking without its signature has no place on this wire
                _merge(out, "assistant", blocks)
        else:
            _merge(out, "user", _anthropic_parts(message.content) or [{"type": "text", "text": _BLANK}])
    return out


class _Ids:
    """Our call ids (`c1.2.3`) in the wire's alphabet, the same one always the same way."""

    def __init__(self) -> None:
        self._by_id: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, call_id: str) -> str:
        wire = self._by_id.get(call_id)
        if wire is None:
            wire = _FOREIGN.sub("_", call_id)
            if not wire or len(wire) > _ID_CHARS or wire in self._taken:
                wire = f"call-{len(self._by_id)}"
            self._by_id[call_id] = wire
            self._taken.add(wire)
        return wire


def _name(name: str) -> str:
    return _FOREIGN.sub("_", name)[:_NAME_CHARS] or "unknown"


def _described(content: Sequence[Block]) -> str:
    """The text of content; media by a word in brackets, the rest has no place here."""
    parts = []
    for block in content:
        if isinstance(block, TextBlock):
            parts.append(block.text)
        elif isinstance(block, MediaBlock):
            parts.append(_label(block))
    return "".join(parts)


def _label(block: MediaBlock) -> str:
    return f"[{block.name or block.media_type}]"


def _url(block: MediaBlock) -> str | None:
    return block.url or (f"data:{block.media_type};base64,{block.data}" if block.data else None)


# --- OpenAI ------------------------------------------------------------------------------------------


def _chat_call(call: CallBlock, ids: _Ids) -> _Json:
    function = {"name": _name(call.name), "arguments": call.arguments}
    return {"id": ids.of(call.call_id), "type": "function", "function": function}


def _chat_content(content: Sequence[Block]) -> str | list[_Json]:
    if all(isinstance(block, TextBlock | OpaqueBlock) for block in content):
        return _described(content)
    return [part for block in content if (part := _chat_part(block)) is not None]


def _chat_part(block: Block) -> _Json | None:
    if isinstance(block, MediaBlock):
        url = _url(block)
        if url is not None and block.media_type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "text", "text": _label(block)}
    return {"type": "text", "text": block.text} if isinstance(block, TextBlock) and block.text else None


def _responses_part(block: Block) -> _Json | None:
    if isinstance(block, MediaBlock):
        url = _url(block)
        if url is not None and block.media_type.startswith("image/"):
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        return {"type": "input_text", "text": _label(block)}
    return {"type": "input_text", "text": block.text} if isinstance(block, TextBlock) and block.text else None


# --- Anthropic ---------------------------------------------------------------------------------------

_IMAGES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))


def _anthropic_parts(content: Sequence[Block], *, media: bool = True) -> list[_Json]:
    parts: list[_Json] = []
    for block in content:
        if isinstance(block, TextBlock):
            if block.text.strip():
                parts.append({"type": "text", "text": block.text})
        elif isinstance(block, MediaBlock):
            parts.append(_anthropic_media(block) if media else {"type": "text", "text": _label(block)})
    return parts


def _anthropic_media(block: MediaBlock) -> _Json:
    if block.media_type in _IMAGES and block.data:
        return {"type": "image", "source": {"type": "base64", "media_type": block.media_type, "data": block.data}}
    if block.media_type in _IMAGES and block.url:
        return {"type": "image", "source": {"type": "url", "url": block.url}}
    return {"type": "text", "text": _label(block)}


def _tool_use(call: CallBlock, ids: _Ids) -> _Json:
    try:
        arguments = decode_json(call.arguments)
    except ValueError:
        arguments = call.arguments  # the validator says what is wrong with it
    return {"type": "tool_use", "id": ids.of(call.call_id), "name": _name(call.name), "input": arguments}


def _merge(out: list[_Json], role: str, blocks: list[_Json]) -> None:
    if out and out[-1]["role"] == role:
        out[-1]["content"] += blocks
    else:
        out.append({"role": role, "content": blocks})
