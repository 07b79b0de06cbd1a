"""Closing what is open, decided from the log alone (T2, T3). Nothing here awaits.

`closed` is the one place that ends a turn: the loop's `finally`, a resume, and a repair all call it.
"""

from __future__ import annotations

from . import events as ev
from .derive import WORDS
from .events import Reason, ToolErrorInfo
from .messages import TextBlock
from .session import Session
from .settling import give_result

__all__ = ["closed", "close", "answer", "repair"]

MAX_TRIES = 16

_OUTCOMES = {"cancelled": "cancelled", "disposed": "cancelled", "interrupted": "interrupted"}


def closed(session: Session, reason: Reason) -> None:
    """Close the open turn whatever strikes meanwhile; the exception goes on afterwards.

    Closing reads the log, so running it again continues where it was struck (T3).
    """
    struck: BaseException | None = None
    for _ in range(MAX_TRIES):
        try:
            close(session, reason)
            break
        except BaseException as exc:
            struck = struck or exc
    if struck is not None:
        raise struck


def close(session: Session, reason: Reason) -> None:
    """Append every closing event that is owed, in order; nothing if no turn is open."""
    state = session.state
    if state.request_open:
        session.append(
            ev.RequestEnd(
                turn=state.turn,
                step=state.step,
                attempt=state.attempt,
                outcome=_OUTCOMES.get(reason.kind, "error"),
            )
        )
    if state.approvals or state.compactions or state.open_pairs:
        _close_pairs(session)
    if state.step_open:
        answer(session)
        session.append(ev.StepEnd(turn=state.turn, step=state.step))
    if state.turn_open:
        session.append(ev.TurnEnd(turn=state.turn, reason=reason, steps=state.step))


def answer(session: Session) -> None:
    """Give each unanswered call of the open step its result: its own if the log has one, else honest words (C2)."""
    state = session.state
    for call in state.open_calls:
        if not call.called:  # all calls come before all results (T1), also when a kill fell between them
            session.append(ev.ToolCalled(turn=state.turn, step=state.step, call_id=call.call_id, name=call.name))
    for call in state.open_calls:
        if call.end is not None:
            give_result(session, call.end)
        else:
            session.append(
                ev.ToolResulted(
                    turn=state.turn,
                    step=state.step,
                    call_id=call.call_id,
                    content=[TextBlock(WORDS[call.code])],
                    is_error=True,
                    error=ToolErrorInfo(call.code, call.code),
                )
            )


def _close_pairs(session: Session) -> None:
    """Close open approvals and compactions, and the open pairs of registered balance rules (O20 to O22)."""
    state = session.state
    for approval in list(state.approvals):
        session.append(ev.ApprovalDecided(id=approval, outcome="closed"))
    for compaction in list(state.compactions.values()):
        session.append(ev.CompactionEnd(id=compaction.id, range=compaction.range, outcome="interrupted"))
    for (opens, _), event in list(state.open_pairs.items()):
        kind = session.types.get(opens)
        if kind is None or kind.balance is None:
            continue
        balance = kind.balance
        fields = dict(balance.closing(event)) if balance.closing is not None else {}
        fields[balance.key] = event.fields.get(balance.key)
        session.append_free(balance.closes, fields, plugin=event.plugin)


def repair(session: Session, *, set_aside_bytes: int = 0) -> None:
    """Close a stored log on open: earlier unanswered calls are listed, the open turn ends interrupted (R2).

    A pure function of the log: on a log it has repaired it appends nothing.
    """
    state = session.state
    orphans = [
        {"turn": turn, "step": step, "call_id": call_id, "code": code}
        for call_id, (turn, step, code) in state.orphans.items()
    ]
    if orphans or set_aside_bytes:
        session.append(ev.SessionRepaired(calls=orphans, set_aside_bytes=set_aside_bytes or None))
    if state.turn_open or state.approvals or state.open_pairs or state.compactions:
        closed(session, Reason("interrupted"))
