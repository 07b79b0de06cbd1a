"""OpenAI chat messages: `{"role": "assistant", "tool_calls": [...]}` and `{"role": "tool", "tool_call_id"}`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .document import Document
from .model import Call, Change, Item, Problem
from .parts import as_arguments, as_object, as_text, member, odd_id

__all__ = ["OpenAIChat"]

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "result"}


class OpenAIChat:
    """See Format."""

    name = "openai-chat"

    def fits(self, document: Document) -> float:
        """Every row has a role of theirs; sure as soon as a tool message or a call stands in it."""
        rows = document.objects
        if not rows or len(rows) < len(document.rows) or not all(as_text(row.get("role")) in _ROLES for row in rows):
            return 0.0
        return 0.9 if any(row["role"] == "tool" or "tool_calls" in row for row in rows) else 0.5

    def read(self, document: Document) -> tuple[list[Item], list[Problem]]:
        """One item a message."""
        items: list[Item] = []
        for row in document.rows:
            kind = _ROLES.get(str(member(row.value, "role")), "other")
            item = Item(kind, row, text=as_text(member(row.value, "content")))
            if kind == "assistant":
                item.calls = [_call(call) for call in _calls(row.value)]
            elif kind == "result":
                item.call_id = as_text(stored := member(row.value, "tool_call_id"))
                item.odd = odd_id(stored)
            items.append(item)
        return items, []

    def write(self, document: Document, items: Iterable[Item]) -> tuple[list[Any], list[Change]]:
        """One message an item."""
        return [_message(item) if item.changed else item.row for item in items], []


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _is_custom(call: dict[str, Any]) -> bool:
    return call.get("type") == "custom" and isinstance(call.get("custom"), dict)


def _call(call: dict[str, Any]) -> Call:
    if _is_custom(call):  # what it says is free text
        said = {"input": member(call, "custom", "input")}
        return Call(
            as_text(call.get("id")),
            as_text(member(call, "custom", "name")),
            as_arguments(said),
            odd=odd_id(call.get("id")),
        )
    function = call.get("function")
    arguments = member(function, "arguments")
    odd = odd_id(call.get("id")) or ("the arguments" if isinstance(arguments, dict) else "")  # as Ollama has them
    return Call(as_text(call.get("id")), as_text(member(function, "name")), as_arguments(arguments), odd=odd)


def _message(item: Item) -> dict[str, Any]:
    if item.row is None or item.kind == "result":
        call_id = item.call.id if item.call is not None else item.call_id
        kept = item.row.value if item.row is not None else {"role": "tool", "content": item.text}
        return {**kept, "tool_call_id": call_id}
    message = dict(item.row.value)
    message["tool_calls"] = [
        {**stored, "id": call.id}
        if _is_custom(stored)
        else {
            **stored,
            "id": call.id,
            "type": "function",
            "function": {**as_object(stored.get("function")), "name": call.name, "arguments": call.arguments},
        }
        for stored, call in zip(_calls(message), item.calls, strict=True)
    ]
    return message
