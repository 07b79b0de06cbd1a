"""Snapshots: the projections of a log at rest as bytes, so that opening it need not fold it again (decision 0011).

A snapshot is a cache of what a log says, and never asked for anything else (L1): the store binds it to the bytes of
the lines, byte for byte, and what is here binds it to the fold. Wherever either does not fit, the log is folded.
It is JSON as the log's events are, so that what comes back is what folding the log's lines gives.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from . import __version__
from .events import FORMAT, RequestHeader, RequestStart, SessionCreated
from .messages import Message, Usage
from .rules import FOLD
from .state import Pending, State
from .store import Snapshotting, Writer

__all__ = ["at_rest", "encoded", "keep", "restored"]

S = TypeVar("S", bound=Struct)

WORTH = 1_000
"""So many events, and a part of the log, have to be new before another snapshot is taken: they cost less than it."""
PART = 32

# Members that a log at rest has empty: nothing of them is carried. With those of the records below and what the
# registered types give (`types`, `closes`), these are all there are.
OPEN = (
    *("turn_open", "step_open", "request_open", "calls", "due"),
    *("approvals", "open_pairs", "compactions"),
)
OWED = ("_owed", "_names", "_got", "_begun", "_ended", "_held")


class Fold(Struct, frozen=True, array_like=True):
    """What made a snapshot: the fold's number, the log's format, the package's version, the balance rules."""

    number: int
    format: int
    version: str
    pairs: list[tuple[str, str, str, str]]


class HistoryAtRest(Struct, array_like=True):
    """A History that owes nothing."""

    messages: list[Message]
    seqs: list[int]
    epoch: int
    _ids: dict[str, None]
    _answer_seq: int


class AtRest(Struct, array_like=True):
    """A State in which nothing is open."""

    next_seq: int
    session: str
    agent: str
    format: int
    created: SessionCreated | None
    turn: int
    starts: dict[int, int]
    step: int
    answered: bool
    attempt: int
    request_ok: bool
    shown: bool
    thinking: dict[int, tuple[str, str | None]]
    turn_calls: int
    final_text: str
    approvals_asked: int
    allowed_rules: list[str]
    orphans: dict[str, tuple[int, int, str]]
    claimed: dict[str, int]
    discarded: dict[str, str]
    keys: dict[str, str]
    inputs: int
    ends: dict[int, int]
    header: RequestHeader | None
    parts: dict[str, Any]
    last_request: RequestStart | None
    usage: Usage
    usage_latest: Usage | None
    usage_turn: Usage


class _Snapshot(Struct, array_like=True):
    fold: Fold
    state: AtRest
    history: HistoryAtRest
    pending: list[Pending]


@cache
def _decoder() -> msgspec.json.Decoder[_Snapshot]:
    return msgspec.json.Decoder(_Snapshot)  # made on first use, as the codec's


def at_rest(state: State) -> bool:
    """Whether nothing is open or owed: only then can the projections be carried."""
    history = state.history
    return not (any(getattr(state, name) for name in OPEN) or any(getattr(history, name) for name in OWED))


def encoded(state: State) -> bytes | None:
    """Return the projections as bytes; None if something is open, or event types changed since they were begun."""
    fold = _fold(state)
    if fold is None or not at_rest(state):
        return None
    whole = _Snapshot(fold, _carried(AtRest, state), _carried(HistoryAtRest, state.history), [*state.pending.values()])
    return msgspec.json.encode(whole)


def restored(data: bytes | memoryview, state: State) -> State | None:
    """Return projections from their bytes.

    Args:
        data: what `encoded` made of them.
        state: the projections of an empty log, of the event types registered now; filled.

    Returns:
        The state; None if it is no snapshot of this fold and these types.
    """
    try:
        kept = _decoder().decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if kept.fold != _fold(state):
        return None
    _fill(state, kept.state)
    _fill(state.history, kept.history)
    state.pending = {entry.id: entry for entry in kept.pending}
    return state


def keep(state: State, writer: Writer, count: int) -> None:
    """Have a snapshot kept where that is worth its while; what goes wrong with it is nobody's concern.

    Args:
        state: the projections.
        writer: the session's.
        count: how many lines the session has.
    """
    try:
        if (
            isinstance(writer, Snapshotting)
            and writer.covered is not None
            and writer.taken == count == state.next_seq
            and count - writer.covered >= max(WORTH, count // PART)
            and (data := encoded(state)) is not None
        ):
            writer.keep(data)
    except Exception:
        pass  # the next opening folds the log, as it does without


def _fold(state: State) -> Fold | None:
    """What folds a log into this state; None if the rules it was begun with are not those registered now."""
    pairs = {name: kind.balance for name, kind in state.types.items() if kind.balance is not None}
    if {balance.closes: balance for balance in pairs.values()} != state.closes:
        return None
    return Fold(FOLD, FORMAT, __version__, [(name, rule.opens, rule.closes, rule.key) for name, rule in pairs.items()])


def _carried(kind: type[S], source: object) -> S:
    return kind(*[getattr(source, name) for name in kind.__struct_fields__])


def _fill(target: object, carried: Struct) -> None:
    for name in carried.__struct_fields__:
        setattr(target, name, getattr(carried, name))
