"""Strict validators of the three wire forms: OpenAI chat, OpenAI responses, Anthropic messages.

Written from the published rules of these interfaces and from what compatible servers refuse; where
servers differ, the strictest one counts (ids unique in the request, results directly behind their
calls, no empty content). Pure and total: any JSON comes in, a list of problems comes out, none if it is
right. Each problem says where, what was expected, and what came.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .pairing import Pairing, check_arguments, check_ends, check_match, check_text, objects, word

__all__ = ["validate_anthropic", "validate_openai_chat", "validate_openai_responses"]

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_ID_CHAT = re.compile(r"[^\s]{1,40}\Z")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


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
    pairing = Pairing(problems)
    roles: list[Any] = []
    for i, message in objects(messages, "messages", problems):
        where, role = f"messages[{i}]", word(message.get("role"))
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
    check_ends(roles[0] if roles else None, roles[-1] if roles else None, problems)
    return problems


def _chat_calls(role: str, calls: Any, where: str, pairing: Pairing) -> None:
    problems = pairing.problems
    if role != "assistant":
        problems.append(f"{where}: tool_calls in a message of role {role!r}")
    for j, call in objects(calls, f"{where}.tool_calls", problems):
        at = f"{where}.tool_calls[{j}]"
        kind = word(call.get("type"))
        said = call.get(kind) if kind in ("function", "custom") else None
        if not isinstance(said, dict):
            problems.append(f"{at}: expected type function with a function, or custom with one, got {kind!r}")
            kind, said = "function", {}
        check_match(_ID_CHAT, call.get("id"), "an id", at, problems)
        check_match(_NAME, said.get("name"), "a name", at, problems)
        if kind == "custom":
            check_text(said.get("input"), f"{at}.input", problems)
        else:
            check_arguments(said.get("arguments"), at, problems)
        pairing.call(call.get("id"), at)


def _parts(content: Any, kinds: Sequence[str], where: str, problems: list[str]) -> None:
    if isinstance(content, str):
        check_text(content, where, problems)
        return
    for j, part in objects(content, where, problems):
        kind = word(part.get("type"))
        if kind not in kinds:
            problems.append(f"{where}[{j}].type: expected one of {', '.join(kinds)}, got {kind!r}")
        elif kind in ("text", "input_text", "output_text"):
            check_text(part.get("text"), f"{where}[{j}].text", problems)
        elif kind == "image_url":
            image = part.get("image_url")
            check_text(image.get("url") if isinstance(image, dict) else None, f"{where}[{j}].image_url.url", problems)


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
    pairing = Pairing(problems)
    roles: list[Any] = []
    before = None
    for i, item in objects(items, "input", problems):
        where, kind = f"input[{i}]", word(item.get("type", "message"))
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
    check_ends(roles[0] if roles else None, roles[-1] if roles else None, problems)
    return problems


def _responses_call(item: dict[str, Any], where: str, pairing: Pairing) -> None:
    check_match(_ID, item.get("call_id"), "a call_id", where, pairing.problems)
    check_match(_NAME, item.get("name"), "a name", where, pairing.problems)
    check_arguments(item.get("arguments"), where, pairing.problems)
    pairing.call(item.get("call_id"), where)


def _responses_item(kind: Any, item: dict[str, Any], where: str, problems: list[str]) -> Any:
    if kind == "reasoning":
        if not isinstance(item.get("summary"), list):
            problems.append(f"{where}.summary: expected a list, got {item.get('summary')!r:.80}")
        return "assistant"
    role = word(item.get("role"))
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
    pairing = Pairing(problems)
    roles: list[Any] = []
    for i, message in objects(messages, "messages", problems):
        where, role = f"messages[{i}]", word(message.get("role"))
        if role not in _ANTHROPIC_PARTS:
            problems.append(f"{where}.role: expected user or assistant, got {role!r}")
            continue
        if roles and roles[-1] == role:
            problems.append(f"{where}: a second {role} message in a row")
        roles.append(role)
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        blocks = objects(content, f"{where}.content", problems)
        if role == "assistant":
            pairing.other(where)
            _anthropic_answer(blocks, where, pairing)
        else:
            _anthropic_user(blocks, where, pairing)
            pairing.other(where)
    pairing.other("the end")
    check_ends(roles[0] if roles else None, roles[-1] if roles else None, problems)
    return problems


def _anthropic_answer(blocks: list[tuple[int, dict[str, Any]]], where: str, pairing: Pairing) -> None:
    problems = pairing.problems
    kind: Any = None
    for j, block in blocks:
        at, kind = f"{where}.content[{j}]", word(block.get("type"))
        if kind == "tool_use":
            check_match(_ID, block.get("id"), "an id", at, problems)
            check_match(_NAME, block.get("name"), "a name", at, problems)
            if not isinstance(block.get("input"), dict):
                problems.append(f"{at}.input: expected an object, got {block.get('input')!r:.80}")
            pairing.call(block.get("id"), at)
        elif kind == "thinking":
            check_text(block.get("thinking"), f"{at}.thinking", problems)
            check_text(block.get("signature"), f"{at}.signature", problems)
        else:
            _anthropic_part("assistant", block, at, problems)
    if kind in ("thinking", "redacted_thinking"):
        problems.append(f"{where}: an assistant message cannot end in {kind}")


def _anthropic_user(blocks: list[tuple[int, dict[str, Any]]], where: str, pairing: Pairing) -> None:
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
            for k, part in objects(content, f"{at}.content", pairing.problems):
                _anthropic_part("user", part, f"{at}.content[{k}]", pairing.problems)
        elif content is not None and not isinstance(content, str | list):
            pairing.problems.append(f"{at}.content: expected text or a list, got {content!r:.80}")


def _anthropic_part(role: str, block: dict[str, Any], where: str, problems: list[str]) -> None:
    kind = word(block.get("type"))
    if kind not in _ANTHROPIC_PARTS[role]:
        problems.append(f"{where}.type: expected one of {', '.join(_ANTHROPIC_PARTS[role])}, got {kind!r}")
    elif kind == "text" and not (isinstance(block.get("text"), str) and block["text"].strip()):
        problems.append(f"{where}.text: expected text that is not blank, got {block.get('text')!r:.80}")
    elif kind in ("image", "document") and not isinstance(block.get("source"), dict):
        problems.append(f"{where}.source: expected an object, got {block.get('source')!r:.80}")
