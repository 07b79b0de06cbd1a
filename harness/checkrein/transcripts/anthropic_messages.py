"""Anthropic messages: `tool_use` blocks, and `tool_result` blocks in the user message behind them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from .document import Document, Row
from .model import Call, Change, Item, Problem
from .parts import as_arguments, as_object, as_text, blocks, member, odd_id

__all__ = ["AnthropicMessages"]

_ROLES = {"system": "system", "user": "user", "assistant": "assistant"}
_OURS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})


class AnthropicMessages:
    """See Format."""

    name = "anthropic-messages"

    def fits(self, document: Document) -> float:
        """Every row has a role of theirs; sure as soon as a block is of a kind that only they have."""
        rows = document.objects
        if not rows or len(rows) < len(document.rows) or not all(as_text(row.get("role")) in _ROLES for row in rows):
            return 0.0
        if any("tool_calls" in row for row in rows):
            return 0.0
        kinds = {as_text(block.get("type")) for row in rows for block in blocks(row.get("content"))}
        return 0.95 if kinds & _OURS else 0.3

    def read(self, document: Document) -> tuple[list[Item], list[Problem]]:
        """An item a message; of a user's, one for each result and one for the rest."""
        items: list[Item] = []
        for row in document.rows:
            kind = _ROLES.get(str(member(row.value, "role")), "other")
            content = blocks(member(row.value, "content"))
            if kind == "assistant":
                calls = [_call(block) for block in content if block.get("type") == "tool_use"]
                items.append(Item(kind, row, text=as_text(content), calls=calls))
                continue
            results = [n for n, block in enumerate(content) if kind == "user" and block.get("type") == "tool_result"]
            for n in results:
                text, stored = as_text(content[n].get("content")), content[n].get("tool_use_id")
                items.append(Item("result", row, n, text=text, call_id=as_text(stored), odd=odd_id(stored)))
            if len(results) < len(content) or not content:
                items.append(Item(kind, row, text=as_text([b for b in content if b.get("type") == "text"])))
        return items, [Problem(line, "wrong order", message) for line, message, _ in _scattered(document)]

    def write(self, document: Document, items: Iterable[Item]) -> tuple[list[Any], list[Change]]:
        """The results of a step and what the user said in the same message become one message."""
        rows: list[Any] = []
        waiting: list[Item] = []
        for item in items:
            if item.kind == "result":
                waiting.append(item)
            elif waiting and item.row is not None and any(result.row is item.row for result in waiting):
                rows.append(_user([*waiting, item]))
                waiting = []
            else:
                if waiting:
                    rows.append(_user(waiting))
                    waiting = []
                rows.append(_user([item]) if item.kind == "user" else _other(item))
        if waiting:
            rows.append(_user(waiting))
        return rows, [Change(line, change) for line, _, change in _scattered(document)]


def _scattered(document: Document) -> Iterator[tuple[int, str, str]]:
    """Where results stand behind other blocks of their message, or in a second message: line, problem, change."""
    only_results = False
    for row in document.rows:
        content = blocks(member(row.value, "content")) if member(row.value, "role") == "user" else []
        results = [n for n, block in enumerate(content) if block.get("type") == "tool_result"]
        if results != list(range(len(results))):
            yield row.line, "results stand behind other blocks of their message", "put the results first"
        elif results and only_results:
            yield row.line, "the results of one answer stand in several messages", "put the results into one message"
        only_results = bool(content) and len(results) == len(content)


def _call(block: dict[str, Any]) -> Call:
    stored = block.get("input")
    odd = odd_id(block.get("id")) or ("the input" if isinstance(stored, str) else "")
    return Call(as_text(block.get("id")), as_text(block.get("name")), as_arguments(stored), odd=odd)


def _other(item: Item) -> Any:
    if not item.changed or item.row is None:
        return item.row
    calls = iter(item.calls)
    content: list[Any] = []
    for block in blocks(item.row.value.get("content")):
        if block.get("type") == "tool_use":
            call = next(calls)
            block = {**block, "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        content.append(block)
    return {**item.row.value, "content": content}


def _user(items: list[Item]) -> Any:
    """One user message of these results and the rest of one message; the row itself if it is just that."""
    row = items[-1].row
    if row is not None and _is_whole(row, items):
        return row
    content: list[Any] = []
    for item in items:
        stored = blocks(member(item.row.value, "content")) if item.row is not None else []
        if item.kind != "result":
            content += [block for block in stored if block.get("type") != "tool_result"]
        elif item.row is None:
            content.append({"type": "tool_result", "tool_use_id": item.call_id, "content": item.text, "is_error": True})
        else:
            call_id = item.call.id if item.call is not None else item.call_id
            content.append({**stored[item.part], "tool_use_id": call_id})
    return {**as_object(row.value if row is not None else None), "role": "user", "content": content}


def _is_whole(row: Row, items: list[Item]) -> bool:
    if any(item.row is not row or item.changed for item in items):
        return False
    content = blocks(member(row.value, "content"))
    results = [n for n, block in enumerate(content) if block.get("type") == "tool_result"]
    has_rest = len(results) < len(content) or not content
    is_first = results == list(range(len(results)))
    return (
        is_first
        and [item.part for item in items if item.kind == "result"] == results
        and has_rest == (items[-1].kind != "result")
    )
