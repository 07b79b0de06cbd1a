"""Bub tapes: rows `{"id", "kind", "payload", "meta", "date"}`; results answer the calls before them by place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .document import Document, Row
from .model import Call, Change, Item, Problem
from .parts import as_arguments, as_object, as_text, member, odd_id

__all__ = ["BubTape"]

_KINDS = frozenset({"anchor", "event", "system", "message", "tool_call", "tool_result", "error"})
_ROLES = {"user": "user", "assistant": "assistant", "system": "system"}


class BubTape:
    """See Format."""

    name = "bub"

    def fits(self, document: Document) -> float:
        """Rows of a kind and a payload."""
        rows = document.objects
        ours = [row for row in rows if as_text(row.get("kind")) in _KINDS and isinstance(row.get("payload"), dict)]
        return 0.9 if document.is_lines and ours and len(ours) >= len(rows) * 0.8 else 0.0

    def read(self, document: Document) -> tuple[list[Item], list[Problem]]:
        """An item a row, and one for each result in a row of results."""
        items: list[Item] = []
        calls: list[Call] = []
        for row in document.rows:
            kind = member(row.value, "kind")
            payload = member(row.value, "payload")
            if kind == "tool_call":
                calls = [_call(call) for call in _list(payload, "calls")]
                items.append(Item("assistant", row, text=as_text(member(payload, "content")), calls=calls))
            elif kind == "tool_result":
                for n, result in enumerate(_list(payload, "results")):
                    call_id = calls[n].id if n < len(calls) else f"result {n + 1} of line {row.line}"
                    items.append(Item("result", row, n, text=_shown(result), call_id=call_id))
                if not _list(payload, "results"):
                    items.append(Item("other", row))
            elif kind == "message":
                role = _ROLES.get(str(member(payload, "role")), "other")
                items.append(Item(role, row, text=as_text(member(payload, "content"))))
            else:
                items.append(Item("system" if kind == "system" else "other", row))
        return items, _numbering(document.rows)

    def write(self, document: Document, items: Iterable[Item]) -> tuple[list[Any], list[Change]]:
        """The rows, the results of a row of calls in one row behind it."""
        rows: list[Any] = []
        waiting: list[Item] = []
        for item in items:
            if item.kind == "result":
                waiting.append(item)
                continue
            if waiting:
                rows.append(_results(waiting, rows))
                waiting = []
            rows.append(_calls_row(item) if item.changed else item.row)
        if waiting:
            rows.append(_results(waiting, rows))
        return rows, _renumber(rows)


def _list(payload: Any, name: str) -> list[Any]:
    value = member(payload, name)
    return value if isinstance(value, list) else []


def _call(call: Any) -> Call:
    function, stored = member(call, "function"), member(call, "id")
    arguments = as_arguments(member(function, "arguments"))
    return Call(as_text(stored), as_text(member(function, "name")), arguments, odd=odd_id(stored))


def _shown(result: Any) -> str:
    return result if isinstance(result, str) else as_arguments(result)


def _numbering(rows: Iterable[Row]) -> list[Problem]:
    problems = []
    expected: int | None = None
    for row in rows:
        number = member(row.value, "id")
        if not isinstance(number, int):
            continue
        if expected is not None and number != expected:
            problems.append(Problem(row.line, "numbering", f"expected id {expected}, got {number}"))
        expected = number + 1
    return problems


def _calls_row(item: Item) -> Any:
    if item.row is None:
        return item.row
    payload = dict(item.row.value["payload"])
    payload["calls"] = [
        {
            **as_object(stored),
            "id": call.id,
            "function": {**as_object(member(stored, "function")), "arguments": call.arguments},
        }
        for stored, call in zip(_list(payload, "calls"), item.calls, strict=True)
    ]
    return {**item.row.value, "payload": payload}


def _results(items: list[Item], before: list[Any]) -> Any:
    """One row of results; the stored row if it holds just these."""
    row = next((item.row for item in items if item.row is not None), None)
    if row is not None and all(item.row is row for item in items):
        stored = _list(member(row.value, "payload"), "results")
        if [item.part for item in items] == list(range(len(stored))):
            return row
    results = [
        item.text if item.row is None else _list(member(item.row.value, "payload"), "results")[item.part]
        for item in items
    ]
    last = before[-1].value if isinstance(before[-1], Row) else before[-1]
    model = row.value if row is not None else {"meta": member(last, "meta") or {}, "date": member(last, "date")}
    return {"id": None, "kind": "tool_result", "payload": {"results": results}, **_rest(model)}


def _rest(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("id", "kind", "payload")}


def _renumber(rows: list[Any]) -> list[Change]:
    values = [(index, row.value if isinstance(row, Row) else row) for index, row in enumerate(rows)]
    ours = [(index, value) for index, value in values if isinstance(value, dict)]
    first = next((value["id"] for _, value in ours if isinstance(value.get("id"), int)), 1)
    moved = 0
    for number, (index, value) in enumerate(ours, first):
        if value.get("id") != number:
            rows[index] = {**value, "id": number}
            moved += 1
    if not moved:
        return []
    return [Change(0, f"numbered {moved} rows again")]
