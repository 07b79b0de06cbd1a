"""Strict validators of a conversation: the neutral messages, and the three wire forms of convert.py.

Written from the published rules of the OpenAI chat, OpenAI responses and Anthropic messages interfaces
and from what compatible servers refuse; where servers differ, the strictest one counts (ids unique in
the request, results directly behind their calls, no empty content). Pure and total: any JSON comes
in, a list of problems comes out, none if it is right. Each problem says where, what was expected, and what came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from checkrein.messages import (
    AssistantMessage,
    CallBlock,
    MediaBlock,
    Message,
    TextBlock,
    ToolMessage,
    UserMessage,
)
from checkrein.text import decode_json

from .convert import to_anthropic, to_openai_chat, to_openai_responses

__all__ = [
    "validate_history",
    "validate_messages",
    "validate_openai_chat",
    "validate_openai_responses",
    "validate_anthropic",
]

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_ID_CHAT = re.compile(r"[^\s]{1,40}\Z")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


def validate_history(messages: Sequence[Message]) -> list[str]:
    """Check a derived history in its neutral form and in all three wire forms (O15).

    Args:
        messages: the derived history; an empty one is fine, it is never sent.
    """
    if not messages:
        return []
    problems = [f"neutral: {problem}" for problem in validate_messages(messages)]
    for name, convert, validate in _FORMS:
        problems += [f"{name}: {problem}" for problem in validate(convert(messages))]
    return problems


class _Pairing:
    """Calls and their results: each id once, each call answered directly, in one run of results."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        self.seen: set[str] = set()
        self.owed: dict[str, str] = {}  # id -> where the call is
        self.done: set[str] = set()

    def call(self, call_id: Any, where: str) -> None:
        if not isinstance(call_id, str) or not call_id:
            self.problems.append(f"{where}: expected a call id, got {call_id!r}")
            return
        if call_id in self.seen:
            self.problems.append(f"{where}: call id {call_id!r} is used twice")
        self.seen.add(call_id)
        self.owed[call_id] = where

    def result(self, call_id: Any, where: str) -> None:
        if isinstance(call_id, str) and self.owed.pop(call_id, None) is not None:
            self.done.add(call_id)
        elif call_id in self.done:
            self.problems.append(f"{where}: a second result of call {call_id!r}")
        else:
            self.problems.append(f"{where}: result of {call_id!r}, which is no call of the answer before it")

    def other(self, where: str) -> None:
        """Something that is no result comes: nothing may be owed any more."""
        for call_id, place in self.owed.items():
            self.problems.append(f"{where}: call {call_id!r} ({place}) has no result directly after its answer")
        self.owed.clear()
        self.done.clear()


def validate_messages(messages: Sequence[Message]) -> list[str]:
    """Check neutral messages: roles, adjacency, ids, arguments, nothing empty.

    Args:
        messages: the derived history, not empty.
    """
    problems: list[str] = []
    pairing = _Pairing(problems)
    if not messages:
        problems.append("messages: expected at least one, got none")
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        if isinstance(message, ToolMessage):
            pairing.result(message.call_id, where)
        else:
            pairing.other(where)
        if isinstance(message, AssistantMessage):
            for call in message.calls:
                pairing.call(call.call_id, where)
                _arguments(call.arguments, where, problems)
            if i == 0:
                problems.append(f"{where}: expected a user message first, got an assistant's")
        elif not isinstance(message, UserMessage | ToolMessage):
            problems.append(f"{where}: expected a message, got {type(message).__name__}")
            continue
        _neutral_content(message, where, problems)
    pairing.other("the end")
    if messages and isinstance(messages[-1], AssistantMessage):
        problems.append("the end: expected a user message or a result last, got an assistant's message")
    return problems


def _neutral_content(message: Message, where: str, problems: list[str]) -> None:
    if not message.content:
        problems.append(f"{where}: empty content")
    for j, block in enumerate(message.content):
        if isinstance(block, TextBlock) and not block.text:
            problems.append(f"{where}.content[{j}]: empty text")
        elif not isinstance(message, AssistantMessage) and not isinstance(block, TextBlock | MediaBlock):
            problems.append(f"{where}.content[{j}]: expected text or media, got {type(block).__name__}")
        elif isinstance(block, CallBlock) and not block.call_id:
            problems.append(f"{where}.content[{j}]: empty call id")


def _arguments(text: Any, where: str, problems: list[str]) -> None:
    try:
        value = decode_json(text) if isinstance(text, str) else None
    except ValueError as exc:
        problems.append(f"{where}: expected arguments that are a JSON object, got {exc}")
        return
    if not isinstance(value, dict):
        problems.append(f"{where}: expected arguments that are a JSON object as text, got {text!r:.80}")


def _match(pattern: re.Pattern[str], value: Any, what: str, where: str, problems: list[str]) -> None:
    if not isinstance(value, str) or pattern.match(value) is None:
        problems.append(f"{where}: expected {what} like {pattern.pattern[:-2]}, got {value!r:.80}")


def _text(value: Any, where: str, problems: list[str]) -> None:
    if not isinstance(value, str) or not value:
        problems.append(f"{where}: expected text, got {value!r:.80}")


def _objects(value: Any, what: str, problems: list[str]) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a list with their indices; everything else is a problem."""
    if not isinstance(value, list) or not value:
        problems.append(f"{what}: expected a list that is not empty, got {value!r:.80}")
        return []
    good = []
    for i, item in enumerate(value):
        if isinstance(item, dict):
            good.append((i, item))
        else:
            problems.append(f"{what}[{i}]: expected an object, got {item!r:.80}")
    return good


def _ends(first: Any, last: Any, problems: list[str]) -> None:
    if first != "user":
        problems.append(f"the beginning: expected a user message first, got {first!r}")
    if last not in ("user", "tool"):
        problems.append(f"the end: expected a user message or a result last, got {last!r}")


# --- OpenAI chat -------------------------------------------------------------------------------------

_CHAT_PARTS = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}


def validate_openai_chat(messages: Any) -> list[str]:
    """Check the `messages` of an OpenAI chat request.

    Args:
        messages: decoded JSON, system messages included if there are any.
    """
    problems: list[str] = []
    pairing = _Pairing(problems)
    roles: list[Any] = []
    for i, message in _objects(messages, "messages", problems):
        where, role = f"messages[{i}]", message.get("role")
        if role == "tool":
            pairing.result(message.get("tool_call_id"), where)
        else:
            pairing.other(where)
        if role not in _CHAT_PARTS:
            problems.append(f"{where}.role: expected one of {', '.join(_CHAT_PARTS)}, got {role!r}")
            continue
        if role not in ("system", "developer"):
            roles.append(role)
        calls = message.get("tool_calls")
        if calls is not None:
            _chat_calls(role, calls, where, pairing)
        if message.get("content") is not None or role != "assistant" or not calls:
            _parts(message.get("content"), _CHAT_PARTS[role], f"{where}.content", problems)
    pairing.other("the end")
    _ends(roles[0] if roles else None, roles[-1] if roles else None, problems)
    return problems


def _chat_calls(role: str, calls: Any, where: str, pairing: _Pairing) -> None:
    problems = pairing.problems
    if role != "assistant":
        problems.append(f"{where}: tool_calls in a message of role {role!r}")
    for j, call in _objects(calls, f"{where}.tool_calls", problems):
        at = f"{where}.tool_calls[{j}]"
        function = call.get("function")
        if call.get("type") != "function" or not isinstance(function, dict):
            problems.append(f"{at}: expected type function with a function, got {call.get('type')!r}")
            function = {}
        _match(_ID_CHAT, call.get("id"), "an id", at, problems)
        _match(_NAME, function.get("name"), "a name", at, problems)
        _arguments(function.get("arguments"), at, problems)
        pairing.call(call.get("id"), at)


def _parts(content: Any, kinds: Sequence[str], where: str, problems: list[str]) -> None:
    if isinstance(content, str):
        _text(content, where, problems)
        return
    for j, part in _objects(content, where, problems):
        kind = part.get("type")
        if kind not in kinds:
            problems.append(f"{where}[{j}].type: expected one of {', '.join(kinds)}, got {kind!r}")
        elif kind in ("text", "input_text", "output_text"):
            _text(part.get("text"), f"{where}[{j}].text", problems)
        elif kind == "image_url":
            image = part.get("image_url")
            _text(image.get("url") if isinstance(image, dict) else None, f"{where}[{j}].image_url.url", problems)


# --- OpenAI responses --------------------------------------------------------------------------------

_RESPONSES_PARTS = {
    "system": ("input_text",),
    "developer": ("input_text",),
    "user": ("input_text", "input_image", "input_file", "input_audio"),
    "assistant": ("output_text", "refusal"),
}


def validate_openai_responses(items: Any) -> list[str]:
    """Check the `input` items of an OpenAI responses request.

    Args:
        items: decoded JSON.
    """
    problems: list[str] = []
    pairing = _Pairing(problems)
    roles: list[Any] = []
    before = None
    for i, item in _objects(items, "input", problems):
        where, kind = f"input[{i}]", item.get("type", "message")
        if kind == "function_call_output":
            pairing.result(item.get("call_id"), where)
            _parts(item.get("output"), ("input_text", "input_image", "input_file"), f"{where}.output", problems)
            role = "tool"
        elif kind == "function_call":
            if before != "function_call":
                pairing.other(where)
            _responses_call(item, where, pairing)
            role = "assistant"
        else:
            pairing.other(where)
            role = _responses_item(kind, item, where, problems)
        if before == "reasoning" and role != "assistant":
            problems.append(f"{where}: a reasoning item must be followed by the answer it belongs to")
        if role not in ("system", "developer"):
            roles.append(role)
        before = kind
    pairing.other("the end")
    _ends(roles[0] if roles else None, roles[-1] if roles else None, problems)
    return problems


def _responses_call(item: dict[str, Any], where: str, pairing: _Pairing) -> None:
    _match(_ID, item.get("call_id"), "a call_id", where, pairing.problems)
    _match(_NAME, item.get("name"), "a name", where, pairing.problems)
    _arguments(item.get("arguments"), where, pairing.problems)
    pairing.call(item.get("call_id"), where)


def _responses_item(kind: Any, item: dict[str, Any], where: str, problems: list[str]) -> Any:
    if kind == "reasoning":
        if not isinstance(item.get("summary"), list):
            problems.append(f"{where}.summary: expected a list, got {item.get('summary')!r:.80}")
        return "assistant"
    role = item.get("role")
    if kind != "message" or role not in _RESPONSES_PARTS:
        problems.append(f"{where}: expected a message, call, output or reasoning, got {kind!r} of role {role!r}")
        return role
    _parts(item.get("content"), _RESPONSES_PARTS[role], f"{where}.content", problems)
    return role


# --- Anthropic ---------------------------------------------------------------------------------------

_ANTHROPIC_PARTS = {
    "user": ("text", "image", "document", "tool_result", "search_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}


def validate_anthropic(messages: Any) -> list[str]:
    """Check the `messages` of an Anthropic request.

    Args:
        messages: decoded JSON, without the system prompt.
    """
    problems: list[str] = []
    pairing = _Pairing(problems)
    roles: list[Any] = []
    for i, message in _objects(messages, "messages", problems):
        where, role = f"messages[{i}]", message.get("role")
        if role not in _ANTHROPIC_PARTS:
            problems.append(f"{where}.role: expected user or assistant, got {role!r}")
            continue
        if roles and roles[-1] == role:
            problems.append(f"{where}: a second {role} message in a row")
        roles.append(role)
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        blocks = _objects(content, f"{where}.content", problems)
        if role == "assistant":
            pairing.other(where)
            _anthropic_answer(blocks, where, pairing)
        else:
            _anthropic_user(blocks, where, pairing)
            pairing.other(where)
    pairing.other("the end")
    _ends(roles[0] if roles else None, roles[-1] if roles else None, problems)
    return problems


def _anthropic_answer(blocks: list[tuple[int, dict[str, Any]]], where: str, pairing: _Pairing) -> None:
    problems = pairing.problems
    kind: Any = None
    for j, block in blocks:
        at, kind = f"{where}.content[{j}]", block.get("type")
        if kind == "tool_use":
            _match(_ID, block.get("id"), "an id", at, problems)
            _match(_NAME, block.get("name"), "a name", at, problems)
            if not isinstance(block.get("input"), dict):
                problems.append(f"{at}.input: expected an object, got {block.get('input')!r:.80}")
            pairing.call(block.get("id"), at)
        elif kind == "thinking":
            _text(block.get("thinking"), f"{at}.thinking", problems)
            _text(block.get("signature"), f"{at}.signature", problems)
        else:
            _anthropic_part("assistant", block, at, problems)
    if kind in ("thinking", "redacted_thinking"):
        problems.append(f"{where}: an assistant message cannot end in {kind}")


def _anthropic_user(blocks: list[tuple[int, dict[str, Any]]], where: str, pairing: _Pairing) -> None:
    others = False
    for j, block in blocks:
        at = f"{where}.content[{j}]"
        if block.get("type") != "tool_result":
            others = True
            _anthropic_part("user", block, at, pairing.problems)
            continue
        if others:
            pairing.problems.append(f"{at}: tool_result blocks come first in their message")
        pairing.result(block.get("tool_use_id"), at)
        content = block.get("content")
        if isinstance(content, list) and content:
            for k, part in _objects(content, f"{at}.content", pairing.problems):
                _anthropic_part("user", part, f"{at}.content[{k}]", pairing.problems)
        elif content is not None and not isinstance(content, str | list):
            pairing.problems.append(f"{at}.content: expected text or a list, got {content!r:.80}")


def _anthropic_part(role: str, block: dict[str, Any], where: str, problems: list[str]) -> None:
    kind = block.get("type")
    if kind not in _ANTHROPIC_PARTS[role]:
        problems.append(f"{where}.type: expected one of {', '.join(_ANTHROPIC_PARTS[role])}, got {kind!r}")
    elif kind == "text" and not (isinstance(block.get("text"), str) and block["text"].strip()):
        problems.append(f"{where}.text: expected text that is not blank, got {block.get('text')!r:.80}")
    elif kind in ("image", "document") and not isinstance(block.get("source"), dict):
        problems.append(f"{where}.source: expected an object, got {block.get('source')!r:.80}")


_Form = tuple[str, Callable[[Sequence[Message]], list[dict[str, Any]]], Callable[[Any], list[str]]]
_FORMS: tuple[_Form, ...] = (
    ("openai chat", to_openai_chat, validate_openai_chat),
    ("openai responses", to_openai_responses, validate_openai_responses),
    ("anthropic", to_anthropic, validate_anthropic),
)
