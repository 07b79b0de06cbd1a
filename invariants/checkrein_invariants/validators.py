"""Strict validators of the derived history: the neutral messages, and through convert.py all three wire forms (O15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from checkrein.messages import AssistantMessage, CallBlock, MediaBlock, Message, TextBlock, ToolMessage, UserMessage

from .convert import to_anthropic, to_openai_chat, to_openai_responses
from .pairing import Pairing, check_arguments
from .wires import validate_anthropic, validate_openai_chat, validate_openai_responses

__all__ = ["validate_history", "validate_messages"]


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


def validate_messages(messages: Sequence[Message]) -> list[str]:
    """Check neutral messages: roles, adjacency, ids, arguments, nothing empty.

    Args:
        messages: the derived history, not empty.
    """
    problems: list[str] = []
    pairing = Pairing(problems)
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
                check_arguments(call.arguments, where, problems)
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


_Form = tuple[str, Callable[[Sequence[Message]], list[dict[str, Any]]], Callable[[Any], list[str]]]
_FORMS: tuple[_Form, ...] = (
    ("openai chat", to_openai_chat, validate_openai_chat),
    ("openai responses", to_openai_responses, validate_openai_responses),
    ("anthropic", to_anthropic, validate_anthropic),
)
