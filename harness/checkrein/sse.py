"""`to_sse`: what a live consumer gets, as Server-Sent Events: a pure function.

Each frame carries `seq`, the number of log events before or with it, so that a consumer that lost the
connection resumes from the log. Names and fields are those of the seed's bus where it has them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .codec import encode
from .events import AnyEvent, Event, FreeEvent, Reason
from .live import Live, StepReset, TextDelta, ThinkingDelta, ToolCall, ToolProgress, ToolResult, TurnEnd
from .messages import content_text

__all__ = ["to_sse", "frame"]


def to_sse(item: Live, seq: int = -1) -> tuple[str, dict[str, Any]]:
    """Return a frame's event name and its payload.

    Args:
        item: a delta, or a logged event as a stream yields it.
        seq: for a delta, the seq of the last event committed before it; logged events carry their own.

    Returns:
        text, thinking, tool, tool_progress, tool_result, step_reset, turn_end, or `event` for every other
        logged event, whose payload is the event itself.
    """
    if isinstance(item, TextDelta):
        return "text", {"seq": seq, "turn": item.turn, "step": item.step, "index": item.index, "delta": item.text}
    if isinstance(item, ThinkingDelta):
        return "thinking", {"seq": seq, "turn": item.turn, "step": item.step, "index": item.index, "delta": item.text}
    if isinstance(item, ToolProgress):
        return "tool_progress", {"seq": seq, "id": item.call_id, "text": item.text}
    if isinstance(item, StepReset):
        return "step_reset", {"seq": seq, "turn": item.turn, "step": item.step, "attempt": item.attempt}
    if isinstance(item, ToolCall):
        return "tool", _tool(item)
    if isinstance(item, ToolResult):
        return "tool_result", _result(item)
    if isinstance(item, TurnEnd):
        return "turn_end", _turn_end(item)
    return "event", _whole(item)


def frame(item: Live, seq: int = -1) -> bytes:
    """Return the bytes of one frame, with its `seq` as the id a browser sends back as Last-Event-ID."""
    name, payload = to_sse(item, seq)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (payload["seq"], name.encode(), msgspec.json.encode(payload))


def _tool(item: ToolCall) -> dict[str, Any]:
    event = item.event
    payload = {"seq": event.seq, "turn": event.turn, "id": event.call_id, "name": event.name, "args": item.arguments}
    return payload if event.parent is None else payload | {"parent_id": event.parent}


def _result(item: ToolResult) -> dict[str, Any]:
    event = item.event
    error = None if event.error is None else f"{event.error.name}: {event.error.code}"
    return {
        "seq": event.seq,
        "turn": event.turn,
        "id": event.call_id,
        "ok": not event.is_error,
        "value": item.value,
        "render": content_text(item.content),
        "error": error if error is not None or not event.is_error else "error",
        "decision": event.decision,
    }


def _turn_end(item: TurnEnd) -> dict[str, Any]:
    event, reason = item.event, item.event.reason
    return {"seq": event.seq, "turn": event.turn, "outcome": reason.kind, "error": _error(reason), "steps": event.steps}


def _error(reason: Reason) -> str | None:
    if reason.kind != "error":
        return None
    return f"{reason.error}: {reason.message}" if reason.message else reason.error


def _whole(item: AnyEvent) -> dict[str, Any]:
    assert isinstance(item, (Event, FreeEvent))
    payload: dict[str, Any] = msgspec.json.decode(encode(item))
    return payload
