"""Reading what does not fit: the structural members of events whose words we do not know (L5)."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec

from .events import KNOWN, Event, FreeEvent, Reason
from .messages import Block, Content, OpaqueBlock, Source, TextBlock

__all__ = ["structural"]

UNREADABLE = "(content that this version cannot read)"

_hints: dict[type[Event], dict[str, Any]] = {}


def structural(event: FreeEvent) -> Event | None:
    """Return the nearest known event of a FreeEvent whose type we know, or None.

    Members that do not fit are replaced by the least they can mean: content by what of it can be
    read, an unknown reason by `interrupted`. A member the structure needs (turn, step, call_id) that
    is missing makes the event meaningless to the fold: None.
    """
    cls = KNOWN.get(event.type)
    if cls is None:
        return None
    fields: dict[str, Any] = {}
    hints = _hints.get(cls)
    if hints is None:
        hints = _hints[cls] = get_type_hints(cls)
    required = {field.name for field in msgspec.structs.fields(cls) if field.required} - {"seq", "time"}
    for name, value in event.fields.items():
        if name not in hints or name in ("seq", "time"):
            continue
        try:
            fields[name] = msgspec.convert(value, hints[name])
        except (msgspec.ValidationError, RecursionError):
            if name == "content":
                fields[name] = loose_content(value)
    for name in required - set(fields):
        if name not in _LEAST:
            return None
        fields[name] = _LEAST[name]()
    try:
        return cls(event.seq, event.time, **fields)
    except TypeError:
        return None


def loose_content(value: Any) -> Content:
    """Return what can be read of a content list; what cannot becomes an opaque block or a note."""
    if isinstance(value, str):
        return [TextBlock(value)]
    if not isinstance(value, list):
        return [TextBlock(UNREADABLE)]
    out: Content = []
    for item in value:
        try:
            out.append(msgspec.convert(item, Block))
        except (msgspec.ValidationError, RecursionError):
            if isinstance(item, dict) and isinstance(item.get("text"), str):
                out.append(TextBlock(item["text"]))
            else:
                out.append(OpaqueBlock("", item))
    return out


_LEAST: dict[str, Any] = {
    "content": lambda: [TextBlock(UNREADABLE)],
    "source": lambda: Source("user"),
    "trigger": dict,
    "reason": lambda: Reason("interrupted"),
    "steps": int,
    "name": lambda: "unknown",
    "effect": lambda: "effectful",
    "attempt": lambda: 1,
    "outcome": lambda: "error",
    "is_error": bool,
    "kind": lambda: "queued",
    "text": str,
    "index": int,
    "settings": dict,
    "system": list,
    "tools": list,
    "provider": str,
    "model": str,
    "header": int,
    "messages": int,
    "digest": str,
    "summary": str,
}
