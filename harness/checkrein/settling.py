"""Settling a call: its outcome becomes its result if it is due, else its `tool/end` (X1).

The loop, nested calls and what a tool settles after a crash all come here; closing.py answers what nobody settled.
"""

from __future__ import annotations

from .calls import Outcome
from .events import ToolEnded, ToolResulted
from .session import Session

__all__ = ["settle", "give_result"]


def settle(session: Session, call_id: str, outcome: Outcome, duration_ms: int | None = None) -> None:
    """Log what a call came to, and then the results that became due; nothing if it was closed meanwhile.

    Args:
        session: the log whose open step the call is in.
        call_id: the call; a nested one is due at once.
        outcome: as the log takes it (output.capped).
        duration_ms: how long it ran, in milliseconds; None if nobody knows.
    """
    state = session.state
    call = state.calls.get(call_id)
    if call is None or call.resulted or call.end is not None:
        return
    due = call.parent is not None or not state.due or state.due[0] == call_id
    kind = ToolResulted if due else ToolEnded
    session.append(
        kind(
            turn=state.turn,
            step=state.step,
            call_id=call_id,
            content=outcome.content,
            is_error=outcome.is_error,
            error=outcome.error,
            value=outcome.value,
            decision=outcome.decision,
            by=outcome.by,
            duration_ms=duration_ms,
            cleaned=outcome.cleaned,
        )
    )
    while due and state.due and (end := state.calls[state.due[0]].end) is not None:
        give_result(session, end)


def give_result(session: Session, end: ToolEnded) -> None:
    """Log the result of a call that has its `tool/end`."""
    session.append(
        ToolResulted(
            turn=session.state.turn,
            step=session.state.step,
            call_id=end.call_id,
            end=end.seq,
            is_error=end.is_error,
            error=end.error,
            decision=end.decision,
            by=end.by,
            duration_ms=end.duration_ms,
        )
    )
