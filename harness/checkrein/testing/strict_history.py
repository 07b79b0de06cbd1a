"""What a strict OpenAI-compatible chat server refuses, in OpenAI's words.

`refusal(body)` judges the body of one request. It is stricter than any single server: what one of the
known servers refuses is refused here. The server itself is strict_server.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Refusal", "refusal"]

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ID_MAX_CHARS = 40


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer of status 400: OpenAI's words, the place in the body, and the code."""

    message: str
    param: str | None = None
    code: str | None = None


def refusal(body: Any) -> Refusal | None:
    """Return why a request's body is refused, None if it is good."""
    return next(_problems(body), None)


def _problems(body: Any) -> Iterator[Refusal]:
    if not isinstance(body, dict):
        yield Refusal("We could not parse the JSON body of your request: it is not an object.")
        return
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield Refusal("you must provide a model parameter")
    messages = body.get("messages")
    if messages is None:
        yield _missing("messages")
        return
    if not isinstance(messages, list):
        yield _type("messages", "an array of objects", messages)
        return
    if not messages:
        yield _empty_array("messages")
    for i, message in enumerate(messages):
        yield from _message(f"messages[{i}]", message)
    yield from _pairing(messages)
    yield from _roles(messages)
    if "tools" in body:
        yield from _tools(body["tools"])


# --- one message ------------------------------------------------------------------------------------


def _message(at: str, message: Any) -> Iterator[Refusal]:
    if not isinstance(message, dict):
        yield _type(at, "an object", message)
        return
    role = message.get("role")
    if role not in ROLES:
        known = ", ".join(f"'{name}'" for name in ROLES[:-1]) + f", and '{ROLES[-1]}'"
        yield Refusal(f"Invalid value: '{role}'. Supported values are: {known}.", f"{at}.role", "invalid_value")
        return
    content, calls = message.get("content"), message.get("tool_calls")
    if content is None and not (role == "assistant" and calls):
        yield Refusal("Invalid value for 'content': expected a string, got null.", f"{at}.content")
    elif content is not None:
        yield from _content(f"{at}.content", content, may_be_empty=role == "tool" or bool(calls))
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield _missing(f"{at}.tool_call_id")
    if calls is not None:
        yield from _calls(f"{at}.tool_calls", calls)


def _content(at: str, content: Any, *, may_be_empty: bool) -> Iterator[Refusal]:
    if isinstance(content, str):
        if not content and not may_be_empty:
            yield _empty_string(at)
    elif not isinstance(content, list):
        yield _type(at, "one of a string or array of objects", content)
    elif not content:
        yield _empty_array(at)
    else:
        for i, part in enumerate(content):
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                yield _missing(f"{at}[{i}].type")
            elif part["type"] == "text" and not part.get("text"):
                yield _empty_string(f"{at}[{i}].text")


def _calls(at: str, calls: Any) -> Iterator[Refusal]:
    if not isinstance(calls, list):
        yield _type(at, "an array of objects", calls)
        return
    if not calls:
        yield _empty_array(at)
    for i, call in enumerate(calls):
        if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
            yield _missing(f"{at}[{i}].function")
            continue
        yield from _call(f"{at}[{i}]", call)


def _call(at: str, call: dict[str, Any]) -> Iterator[Refusal]:
    call_id, function = call.get("id"), call["function"]
    if not isinstance(call_id, str) or not call_id:
        yield _missing(f"{at}.id")
    elif len(call_id) > ID_MAX_CHARS:
        yield Refusal(
            f"Invalid '{at}.id': string too long. Expected a string with maximum length {ID_MAX_CHARS},"
            f" but got a string with length {len(call_id)} instead.",
            f"{at}.id",
            "string_above_max_length",
        )
    if call.get("type") != "function":
        yield Refusal(f"Invalid value: '{call.get('type')}'. Supported values are: 'function'.", f"{at}.type")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield _pattern(f"{at}.function.name")
    if not isinstance(arguments, str):
        yield _type(f"{at}.function.arguments", "a string", arguments)
    elif not _is_object(arguments):
        yield Refusal(
            f"Invalid '{at}.function.arguments': expected a JSON object, but got {arguments[:80]!r} instead.",
            f"{at}.function.arguments",
            "invalid_value",
        )


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


# --- the messages together ----------------------------------------------------------------------------


def _pairing(messages: list[Any]) -> Iterator[Refusal]:
    """Each call one result, at once and in the calls' order; no result without its call; no id twice."""
    seen: set[str] = set()
    owed: list[str] = []
    for i, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role == "tool":
            yield from _result(f"messages.[{i}]", message, owed, seen)
            continue
        if owed:
            yield _unanswered(i, owed)
            owed = []
        for call in (message.get("tool_calls") or ()) if role == "assistant" else ():
            call_id = call.get("id") if isinstance(call, dict) else None
            if call_id in seen:
                yield _duplicate(call_id, f"messages.[{i}].tool_calls")
            owed.append(str(call_id))
            seen.add(str(call_id))
    if owed:
        yield _unanswered(len(messages), owed)


def _result(at: str, message: dict[str, Any], owed: list[str], seen: set[str]) -> Iterator[Refusal]:
    call_id = message.get("tool_call_id")
    if owed and call_id == owed[0]:
        owed.pop(0)
    elif call_id in owed:
        owed.remove(str(call_id))
        yield Refusal(
            f"Invalid parameter: the tool message for '{call_id}' is out of order: expected the results in the order"
            " of the calls.",
            f"{at}.tool_call_id",
        )
    elif call_id in seen and owed:
        yield _duplicate(call_id, f"{at}.tool_call_id")
    else:
        yield Refusal(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
            " 'tool_calls'.",
            f"{at}.role",
        )


def _roles(messages: list[Any]) -> Iterator[Refusal]:
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    talk = [role for role in roles if role not in ("system", "developer")]
    if not talk or talk[0] == "assistant":
        yield Refusal("Invalid parameter: the first message of the conversation must have role 'user'.", "messages")
    if talk and talk[-1] == "assistant":
        yield Refusal("Expected last role User or Tool for serving but got assistant", "messages")


def _tools(tools: Any) -> Iterator[Refusal]:
    if not isinstance(tools, list):
        yield _type("tools", "an array of objects", tools)
        return
    if not tools:
        yield _empty_array("tools")
    names: set[str] = set()
    for i, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict):
            yield _missing(f"tools[{i}].function")
            continue
        name, schema = function.get("name"), function.get("parameters", {"type": "object"})
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield _pattern(f"tools[{i}].function.name")
        elif name in names:
            yield Refusal(f"Tool names must be unique: '{name}' is there twice.", f"tools[{i}].function.name")
        names.add(str(name))
        kind = schema.get("type") if isinstance(schema, dict) else schema
        if kind != "object":
            yield Refusal(
                f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"',"
                f" got 'type: \"{kind}\"'.",
                f"tools[{i}].function.parameters",
                "invalid_function_parameters",
            )


# --- the words ----------------------------------------------------------------------------------------


def _unanswered(i: int, owed: list[str]) -> Refusal:
    return Refusal(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
        f" The following tool_call_ids did not have response messages: {', '.join(owed)}",
        f"messages.[{i}].role",
    )


def _duplicate(call_id: Any, param: str) -> Refusal:
    return Refusal(f"Duplicate value for 'tool_call_id' of '{call_id}'", param)


def _missing(param: str) -> Refusal:
    return Refusal(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")


def _empty_array(param: str) -> Refusal:
    return Refusal(
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        param,
        "empty_array",
    )


def _empty_string(param: str) -> Refusal:
    return Refusal(
        f"Invalid '{param}': empty string. Expected a string with minimum length 1, but got an empty string instead.",
        param,
        "empty_string",
    )


def _pattern(param: str) -> Refusal:
    return Refusal(
        f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern"
        " '^[a-zA-Z0-9_-]+$'.",
        param,
        "invalid_value",
    )


def _type(param: str, expected: str, got: Any) -> Refusal:
    names = {dict: "an object", list: "an array", str: "a string", type(None): "null", bool: "a boolean"}
    return Refusal(
        f"Invalid type for '{param}': expected {expected}, but got {names.get(type(got), 'a number')} instead.",
        param,
        "invalid_type",
    )
