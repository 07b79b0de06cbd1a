"""The projections of a log: what is open, pending, owed and used, as data. rules.py keeps them up to date."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from . import events as ev
from .derive import History
from .errors import GateClosed, InvariantViolation
from .eventtypes import Balance, EventType
from .messages import Content, Source, Usage

__all__ = [
    "State",
    "CallState",
    "Pending",
    "number_of",
    "refuse",
    "need_turn",
    "need_step",
    "enter_turn",
    "enter_step",
    "open_step",
    "leave_step",
    "abandon",
]


class CallState(Struct):
    """One call of the open step."""

    call_id: str
    name: str
    parent: str | None = None
    called: bool = False
    begun: bool = False
    attempts: int = 0
    effectful: bool = False
    end: ev.ToolEnded | None = None
    resulted: bool = False
    provider_id: str | None = None

    @property
    def code(self) -> str:
        """What can honestly be said of it when it has no result."""
        return "OUTCOME_UNKNOWN" if self.begun else "NOT_STARTED"


class Pending(Struct):
    """An accepted input that nothing has taken yet."""

    id: str
    kind: str
    content: Content
    source: Source
    own_turn: bool
    options: dict[str, Any]
    seq: int


class State:
    """The projections of one log. `State.__init__` is also the reset that a refold begins with.

    Attributes (all read-only to everybody but `apply`):
        next_seq, session, agent, format, created: who and where.
        turn, turn_open, step, step_open, answered: the brackets; `turn` and `step` are the last numbers.
        attempt, request_open, shown: the attempt of the open step's request, and whether its partial text is logged.
        calls, due: the open step's calls by id in model order, and the ids still owing a result.
        allowed_rules: the rules that people allowed for always, as they were asked.
        pending, claimed, discarded, keys, inputs: the inbox (I3).
        starts, ends: the seq of each turn's start, and of its end.
        header, parts: the request header in force, and the prompt parts written so far.
        history: the derived history.
        usage, usage_latest, usage_turn: folds of the log (M10).
    """

    __slots__ = (
        *("types", "closes", "next_seq", "session", "agent", "format", "created", "turn", "turn_open"),
        *("starts", "step", "step_open", "answered", "attempt", "request_open", "request_ok", "shown"),
        *(
            "thinking",
            "calls",
            "due",
            "turn_calls",
            "final_text",
            "approvals",
            "approvals_asked",
            "allowed_rules",
            "open_pairs",
            "compactions",
        ),
        *("orphans", "pending", "claimed", "discarded", "keys", "inputs", "ends", "header", "parts"),
        *("last_request", "history", "usage", "usage_latest", "usage_turn"),
    )

    def __init__(self, types: dict[str, EventType] | None = None, closes: dict[str, Balance] | None = None) -> None:
        self.types: dict[str, EventType] = types if types is not None else {}
        self.closes: dict[str, Balance] = closes if closes is not None else {}
        self.next_seq = 0
        self.session = ""
        self.agent = ""
        self.format = ev.FORMAT
        self.created: ev.SessionCreated | None = None
        self.turn = 0
        self.turn_open = False
        self.starts: dict[int, int] = {}
        self.step = 0
        self.step_open = False
        self.answered = False
        self.attempt = 0
        self.request_open = False
        self.request_ok = False
        self.shown = False
        self.thinking: dict[int, tuple[str, str | None]] = {}
        self.calls: dict[str, CallState] = {}
        self.due: list[str] = []
        self.turn_calls = 0
        self.final_text = ""
        self.approvals: dict[str, ev.ApprovalAsked] = {}
        self.approvals_asked = 0
        self.allowed_rules: list[str] = []
        self.open_pairs: dict[tuple[str, str], ev.FreeEvent] = {}
        self.compactions: dict[str, ev.CompactionStart] = {}
        self.orphans: dict[str, tuple[int, int, str]] = {}  # unanswered calls of closed steps: turn, step, code
        self.pending: dict[str, Pending] = {}
        self.claimed: dict[str, int] = {}
        self.discarded: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self.inputs = 0
        self.ends: dict[int, int] = {}
        self.header: ev.RequestHeader | None = None
        self.parts: dict[str, Any] = {}
        self.last_request: ev.RequestStart | None = None
        self.history = History()
        self.usage = Usage()
        self.usage_latest: Usage | None = None
        self.usage_turn = Usage()

    def members(self) -> dict[str, Any]:
        """All projections by name, to compare two folds."""
        return {name: getattr(self, name) for name in self.__slots__}

    def keyed(self, key: str) -> str | None:
        """The input that was accepted with a client's key (I3); none that the store did not take: it may come again."""
        input_id = self.keys.get(key)
        return None if input_id is None or GateClosed.said(self.discarded.get(input_id, "")) else input_id

    @property
    def open_calls(self) -> list[CallState]:
        """Calls of the open step without a result: nested ones first, each before its parent, then in model order."""
        left = [call for call in self.calls.values() if not call.resulted]
        # A call is known before those that are nested in it.
        return [c for c in reversed(left) if c.parent is not None] + [c for c in left if c.parent is None]


def number_of(id_: str) -> int:
    """The number in an id of ours, as 7 in `i7`; 0 if it is none that we could go on from."""
    number = id_[1:]
    return int(number) if number.isdecimal() and len(number) < 19 else 0


def refuse(rule: str, event: Any, why: str) -> InvariantViolation:
    """The error of an event that rule forbids here."""
    return InvariantViolation(rule, f"{event.type} (seq {event.seq}) is illegal here: {why}")


def leave_step(state: State) -> None:
    """Close the step; calls it left unanswered (a foreign or damaged log) are remembered as orphans."""
    for call in state.calls.values():
        if not call.resulted:
            state.orphans[call.call_id] = (state.turn, state.step, call.code)
    state.step_open = state.request_open = False
    state.calls = {}
    state.due = []


def enter_turn(state: State, turn: int) -> None:
    """Take a turn as open whose start is lost; a number that ran on is kept."""
    if not state.turn_open or turn > state.turn:
        abandon(state)
        state.turn, state.turn_open = max(state.turn, turn), True
        state.step = state.turn_calls = 0
        state.final_text = ""


def enter_step(state: State, turn: int, step: int) -> None:
    """Take a step as open whose start is lost, so that what happens in it is closed and answered with it."""
    enter_turn(state, turn)
    if not state.step_open or step > state.step:
        open_step(state, max(step, 1))


def open_step(state: State, step: int) -> None:
    """Begin a step, closing the one that is open."""
    if state.step_open:
        leave_step(state)
    state.step, state.step_open = step, True
    state.answered = state.request_open = state.request_ok = state.shown = False
    state.attempt = 0
    state.thinking = {}
    state.calls = {}
    state.due = []


def abandon(state: State) -> None:
    """Close whatever is open: what would have closed it is lost."""
    if state.step_open:
        leave_step(state)
    state.turn_open = False


def need_turn(state: State, event: Any) -> None:
    """Refuse an event whose turn is not the open one."""
    if not state.turn_open or event.turn != state.turn:
        raise refuse("O2", event, f"turn {event.turn} is not open")


def need_step(state: State, event: Any) -> None:
    """Refuse an event whose step is not the open one."""
    if not state.step_open or event.step != state.step or event.turn != state.turn:  # an open step has an open turn
        raise refuse("O5", event, f"step {event.turn}.{event.step} is not open")
