"""dsh session logs, and pH's, which are of the same family: rows `{"type", "seq", "time", "data"}`.

Rows of an older dsh hold `content` and `callId` in `data` itself, later ones a whole `message`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .document import Document, Row
from .model import Call, Change, Item, Problem
from .parts import as_arguments, as_object, as_text, blocks, member, odd_id

__all__ = ["DshLog", "PhLog"]

_KINDS = {
    "user/message": "user",
    "steering/message": "user",
    "context/message": "user",
    "assistant/message": "assistant",
    "tool/call": "mark",
    "tool/result": "result",
    "step/end": "close",
    "turn/end": "close",
}
_PH_ROWS = frozenset({"profile/base", "workspace/acquired", "workspace/disposed"})


class DshLog:
    """See Format."""

    name = "dsh"

    def fits(self, document: Document) -> float:
        """Rows of type, seq and data, with turns or messages among them."""
        rows = document.objects
        ours = [row for row in rows if isinstance(row.get("type"), str) and "data" in row and "seq" in row]
        if not document.is_lines or not ours or len(ours) < len(rows) * 0.8:
            return 0.0
        known = any(row["type"] in _KINDS or row["type"] == "turn/start" for row in ours)
        return (0.9 if known else 0.0) + self._bonus(rows)

    def _bonus(self, rows: list[dict[str, Any]]) -> float:
        return 0.0

    def read(self, document: Document) -> tuple[list[Item], list[Problem]]:
        """An item a row."""
        items = [_item(row) for row in document.rows]
        return items, [*_numbering(document.rows), *_open(document.rows)]

    def write(self, document: Document, items: Iterable[Item]) -> tuple[list[Any], list[Change]]:
        """The rows with new results among them, closed at the end, numbered again if anything moved."""
        rows: list[Any] = []
        place: dict[str, Any] = {}
        for item in items:
            value = item.row.value if item.row is not None else None
            data = member(value, "data")
            if item.kind == "assistant":
                place = {name: data[name] for name in ("turn", "step") if isinstance(data, dict) and name in data}
            rows.append(_row(item, rows, place))
        changes = _close(rows)
        return rows, changes + _renumber(rows)


class PhLog(DshLog):
    """pH writes dsh's log, with rows of its own among it."""

    name = "ph"

    def _bonus(self, rows: list[dict[str, Any]]) -> float:
        return 0.05 if any(as_text(row.get("type")) in _PH_ROWS for row in rows) else -0.05


def _item(row: Row) -> Item:
    kind = _KINDS.get(str(member(row.value, "type")), "other")
    data = member(row.value, "data")
    if kind == "result" and (not isinstance(data, dict) or member(row.value, "surfaceOp") not in (None, "append")):
        kind = "other"  # holds nothing, or replaces a result that is there
    message = member(data, "message")
    content = member(message if isinstance(message, dict) else data, "content")
    item = Item(kind, row, text=as_text(content))
    if kind == "assistant":
        item.calls = [_call(block) for block in blocks(content) if block.get("type") == "tool-call"]
    elif kind == "result":
        part = next((block for block in blocks(content) if block.get("type") == "tool-result"), {})
        item.text = as_text(part.get("content")) or item.text
        stored = member(data, "callId") or part.get("toolCallId") or member(message, "source", "callId")
        item.call_id, item.odd = as_text(stored), odd_id(stored)
    return item


def _call(block: dict[str, Any]) -> Call:
    stored = block.get("id")
    return Call(as_text(stored), as_text(block.get("name")), as_arguments(block.get("arguments")), odd=odd_id(stored))


def _numbering(rows: Iterable[Row]) -> list[Problem]:
    problems = []
    expected: int | None = None
    for row in rows:
        seq = member(row.value, "seq")
        if not isinstance(seq, int):
            continue
        if expected is not None and seq != expected:
            problems.append(Problem(row.line, "numbering", f"expected seq {expected}, got {seq}"))
        expected = seq + 1
    return problems


def _brackets(rows: Iterable[Any]) -> tuple[Any, Any]:
    """The rows that opened the turn and the step that are open at the end."""
    turn: Any = None
    step: Any = None
    for row in rows:
        kind = member(row.value if isinstance(row, Row) else row, "type")
        if kind == "turn/start":
            turn, step = row, None
        elif kind == "step/start":
            step = row
        elif kind == "step/end":
            step = None
        elif kind == "turn/end":
            turn = step = None
    return turn, step


def _open(rows: Iterable[Row]) -> list[Problem]:
    turn, _ = _brackets(rows)
    if turn is None:
        return []
    return [Problem(turn.line, "open turn", f"turn {member(turn.value, 'data', 'turn')} has no end")]


def _row(item: Item, before: list[Any], place: dict[str, Any]) -> Any:
    if not item.changed:
        return item.row
    if item.row is None:
        return _result(item, before, place)
    call_id = item.call.id if item.call is not None else item.call_id
    calls = iter(item.calls)
    data = dict(as_object(item.row.value.get("data")))
    message = data.get("message")
    if isinstance(message, dict):
        message = data["message"] = {**message, "content": _blocks(message, calls, call_id)}
        if item.kind == "result" and isinstance(message.get("source"), dict):
            message["source"] = {**message["source"], "callId": call_id}
    else:
        data["content"] = _blocks(data, calls, call_id)
    if item.kind == "result" and ("callId" in data or not isinstance(member(message, "source"), dict)):
        data["callId"] = call_id
    return {**item.row.value, "data": data}


def _blocks(holder: dict[str, Any], calls: Iterator[Call], call_id: str) -> list[dict[str, Any]]:
    return [_block(block, calls, call_id) for block in blocks(holder.get("content"))]


def _block(block: dict[str, Any], calls: Iterator[Call], call_id: str) -> dict[str, Any]:
    if block.get("type") == "tool-call" and (call := next(calls, None)) is not None:
        return {**block, "id": call.id, "name": call.name, "arguments": call.arguments}
    if block.get("type") == "tool-result":
        return {**block, "toolCallId": call_id}
    return block


def _result(item: Item, before: list[Any], place: dict[str, Any]) -> dict[str, Any]:
    last = before[-1]
    time = member(last.value if isinstance(last, Row) else last, "time")
    content = [{"type": "text", "text": item.text}]
    owner = next((row for row in reversed(before) if _type(row) == "assistant/message"), None)
    whole = isinstance(member(owner.value if isinstance(owner, Row) else owner, "data", "message"), dict)
    if not whole:
        data = {**place, "callId": item.call_id, "content": content, "isError": True}
    else:
        part = {"type": "tool-result", "toolCallId": item.call_id, "isError": True, "content": content}
        source = {"kind": "tool", "callId": item.call_id}
        message = {"id": f"repaired-{item.call_id}", "role": "user", "source": source, "content": [part]}
        data = {**place, "message": message}
    return {"type": "tool/result", "seq": None, "time": time, "data": data}


def _type(row: Any) -> Any:
    return member(row.value if isinstance(row, Row) else row, "type")


def _close(rows: list[Any]) -> list[Change]:
    """End the step and the turn that are open at the end."""
    turn, step = _brackets(rows)
    if turn is None:
        return []
    line = rows[-1].line if isinstance(rows[-1], Row) else 0
    data = {name: value for name, value in as_object(member(_value(turn), "data")).items() if name == "turn"}
    time = member(_value(rows[-1]), "time")
    changes = []
    if step is not None:
        number = member(_value(step), "data", "step")
        rows.append({"type": "step/end", "seq": None, "time": time, "data": {**data, "step": number}})
        changes.append(Change(line, f"ended step {number}"))
    rows.append({"type": "turn/end", "seq": None, "time": time, "data": {**data, "reason": {"kind": "interrupted"}}})
    return [*changes, Change(line, f"ended turn {data.get('turn')}, interrupted")]


def _value(row: Any) -> Any:
    return row.value if isinstance(row, Row) else row


def _renumber(rows: list[Any]) -> list[Change]:
    """Number the rows again, and what refers to them, if they are not consecutive."""
    values = [_value(row) for row in rows]
    stored = [value.get("seq") for value in values if isinstance(value, dict) and "seq" in value]
    if not stored:
        return []
    first = next((seq for seq in stored if isinstance(seq, int)), 0)
    if stored == list(range(first, first + len(stored))):
        return []
    renamed: dict[int, int] = {}
    number = first
    changed: list[tuple[int, int]] = []
    for index, value in enumerate(values):
        if not isinstance(value, dict) or "seq" not in value:
            continue
        if isinstance(value["seq"], int):
            renamed[value["seq"]] = number
        if value["seq"] != number or _refers(value):
            changed.append((index, number))
        number += 1
    moved = 0
    for index, number in changed:
        value = _referring({**values[index], "seq": number}, renamed)
        if value != values[index]:
            rows[index] = value
            moved += 1
    return [Change(0, f"numbered {moved} rows again, and what refers to them")]


def _refers(value: dict[str, Any]) -> bool:
    return "sourceEventSeqs" in value or "batch" in value


def _referring(value: dict[str, Any], renamed: dict[int, int]) -> dict[str, Any]:
    seqs = value.get("sourceEventSeqs")
    if isinstance(seqs, list):
        value["sourceEventSeqs"] = [renamed.get(seq, seq) if isinstance(seq, int) else seq for seq in seqs]
    batch = value.get("batch")
    if isinstance(batch, dict) and isinstance(batch.get("first"), int):
        value["batch"] = {**batch, "first": renamed.get(batch["first"], batch["first"])}
    return value
