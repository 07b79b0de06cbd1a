"""One live session under watch: the oracle over its events, and the rules that need the running agent.

A watch never raises into the session it observes; if the oracle itself fails, that is `failure`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from checkrein.chunks import (
    FINISH_REASONS,
    CallChunk,
    FinishChunk,
    MetadataChunk,
    OpaqueChunk,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from checkrein.codec import encode, seal
from checkrein.errors import RefusedAtAppend
from checkrein.events import AnyEvent, RequestEnd, RequestStart
from checkrein.log import Pages, onward, place_of

from .deep import NEVER, Deep
from .oracle import Oracle
from .rules import Report, Violation

if TYPE_CHECKING:
    from checkrein.session import Session
    from checkrein.state import State

__all__ = ["Watch", "Stream", "Life"]

_LAST = 1_000
_REQUESTS = frozenset((RequestStart, RequestEnd))
_KINDS: dict[type, str] = {TextChunk: "text", ThinkingChunk: "thinking", CallChunk: "call", OpaqueChunk: "opaque"}

# What may not come any more once disposal began (C5): everything that opens something.
_OPENING = frozenset(
    (
        "inbox/accepted",
        "turn/start",
        "user/message",
        "step/start",
        "steering/message",
        "context/message",
        "request/header",
        "request/start",
        "assistant/message",
        "tool/start",
        "approval/asked",
        "compaction/start",
    )
)
# What may still come when the agent is gone: observers of its disposal can fail, threads can return.
_AFTER = frozenset(("plugin/fault", "tool/late"))


class Stream:
    """O23: the chunk grammar of one attempt."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._reset()

    def _reset(self) -> None:
        self._blocks: dict[int, str] = {}
        self._usage = self._finished = False
        self._problem: str | None = None

    def chunk(self, chunk: Any) -> None:
        """Take the next chunk; what breaks the grammar is kept until the request ends."""
        kind = _KINDS.get(type(chunk))
        if kind is None or self._finished:
            self._other(chunk)
        elif self._blocks.setdefault(chunk.index, kind) != kind and self._problem is None:
            self._problem = f"block {chunk.index} is {self._blocks[chunk.index]}, then {kind}"

    def _other(self, chunk: Any) -> None:
        """Take what is no piece of a block, or comes after the end."""
        if self._problem is not None:
            return
        if self._finished:
            self._problem = f"a {type(chunk).__name__} after finish"
        elif isinstance(chunk, UsageChunk):
            self._problem = "usage twice" if self._usage else None
            self._usage = True
        elif isinstance(chunk, FinishChunk):
            self._finished = True
            if chunk.reason not in FINISH_REASONS:
                self._problem = f"finish reason {chunk.reason!r}"
        elif not isinstance(chunk, MetadataChunk):
            self._problem = f"a {type(chunk).__name__} instead of a chunk"
        elif chunk.index is not None and chunk.index not in self._blocks:
            self._problem = f"metadata for block {chunk.index}, which is not there"

    def event(self, event: Any) -> None:
        """A request starts or ends; only an answer needs a stream that was whole."""
        if type(event) is RequestStart:
            self._reset()
        elif event.outcome == "ok" and self._problem is not None:
            self._report.add("O23", f"the request ended well, but its stream broke the grammar: {self._problem}")
        elif event.outcome == "ok" and not self._finished:
            self._report.add("O23", "the request ended well, but its stream has no finish")


class Life:
    """O13 and O14: an agent's status and its end.

    Attributes:
        ending: whether disposal began; what events may still come is judged from then on.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self.status: str | None = None
        self.gone = self.ending = False

    def change(self, status: str, turn: int) -> None:
        """The agent has this status now; `turn` is the open turn."""
        before, self.status = self.status, status
        self.ending = self.gone or status == "disposed"
        if status not in ("idle", "running", "disposed"):
            self._report.add("O14", f"expected status idle, running or disposed, got {status!r}")
        elif before == "disposed":
            self._report.add("O14", f"{status} after disposed")
        elif before == status:
            self._report.add("O14", f"{status} twice in a row")
        elif status == "idle" and turn:
            self._report.add("O14", f"idle while turn {turn} is open")

    def end(self) -> None:
        """The agent is gone."""
        self.gone = self.ending = True

    def event(self, word: str) -> None:
        """An event comes while the agent ends, or later."""
        if self.gone and word not in _AFTER:
            self._report.add("O13", f"{word} after the agent is gone")
        elif self.status == "disposed" and word in _OPENING:
            self._report.add("O13", f"{word} after disposal began")


class Watch:
    """Observes one session.

    Args:
        session: what to watch; events it was loaded with are read, but not judged. Where the older ones are in its
            store they are not even read, and rules that refer to them are silent, as behind a gap.
        deep: also derive the history at each step (O15 to O17).
        stream: `chunk` will be called with every chunk, so a missing one is missing (O23).

    Attributes:
        report: where violations go; its `count` tells cheaply whether there are new ones.
        chunk: takes each chunk that came from the provider; for whoever has said `stream`.
        failure: what the oracle itself raised, if it did; the watch ended there.
    """

    def __init__(self, session: Session, *, deep: bool = False, stream: bool = False) -> None:
        self.session = session
        self.failure: Exception | None = None
        balances = [kind.balance for kind in session.types.values() if kind.balance is not None]
        self._oracle = oracle = Oracle(balances)
        self.report = oracle.report
        self._stream = Stream(self.report) if stream else None
        self.chunk: Callable[[Any], None] = _ignored if self._stream is None else self._stream.chunk
        self._deep = Deep(self.report, session.types) if deep else None
        self._life = Life(self.report)
        self._fed = 0
        self._own: int | None = None  # seq of the first event that was appended while we watched

    def __call__(self, event: AnyEvent) -> None:
        """Observe: read everything up to this event."""
        if self._own is None:
            self._own = event.seq
            if self._deep is None and isinstance(self.session.events, Pages):
                self._fed = place_of(self.session.events, event.seq)
                self._oracle.begin_at(event.seq)
        self.catch_up()

    def catch_up(self) -> None:
        """Read the events that are new in the session; none before there is one to judge."""
        if self.failure is not None or self._own is None:
            return
        try:
            for event in onward(self.session.events, self._fed):
                self._fed += 1
                self._oracle.feed(event)
                if self._deep is not None:
                    self._deep.feed(event)
                if event.seq < self._own:
                    continue
                if self._life.ending:
                    self._life.event(event.type)
                if self._stream is not None and type(event) in _REQUESTS:
                    self._stream.event(event)
        except Exception as exc:
            self.failure = exc

    def status(self, status: str) -> None:
        """The agent's status changed."""
        self.catch_up()
        self._life.change(status, self._oracle.open_turn)

    def disposed(self) -> None:
        """The agent is gone."""
        self.catch_up()
        self._life.end()

    def add(self, rule: str, message: str) -> None:
        """Record what somebody else found out about the agent."""
        self.report.add(rule, message)

    @property
    def gone(self) -> bool:
        """Whether the agent is gone."""
        return self._life.gone

    @property
    def own_events(self) -> list[AnyEvent]:
        """The events appended while we watched."""
        return [] if self._own is None else self.session.since(self._own)

    @property
    def violations(self) -> list[Violation]:
        """What was found so far in the events appended while we watched."""
        return [] if self._own is None else [v for v in self._oracle.violations if v.seq >= self._own]

    def finish(self, open_ok: bool = False, *, whole: bool = True) -> list[Violation]:
        """Check what the end shows: what is still open, immutability (O24), the live projections (O15, O18).

        Args:
            open_ok: the session goes on, so an open turn is no violation.
            whole: look at all events again and fold them anew, which costs the log's length; otherwise
                only the last 1,000 are looked at.
        """
        self.catch_up()
        if self._own is None or self.failure is not None:
            return self.violations
        try:
            self._oracle.finish(open_ok)
            self._immutable(0 if whole else max(0, len(self.session.events) - _LAST))
            self._usage()
            if whole:
                self._projections()
        except Exception as exc:
            self.failure = exc
        return self.violations

    def _immutable(self, start: int) -> None:
        """O24: each event still encodes to the bytes that were sealed when it was appended."""
        events, lines, report = self.session.events, self.session.lines, self.report
        if len(events) != len(lines):
            report.add("O24", f"{len(events)} events, but {len(lines)} lines")
        start = max(start, place_of(events, self._own or 0))
        for event, line in zip(events[start:], lines[start:], strict=False):
            try:
                same = seal(encode(event)) == line
            except RefusedAtAppend:
                same = False
            if not same:
                report.add("O24", f"{event.type} is not what was appended", event.seq)

    def _usage(self) -> None:
        """O18: the kept total is the sum of what the log says."""
        kept, total = self.session.state.usage, self._oracle.usage
        if kept != total and not self._oracle.where.holes:
            self.report.add("O18", f"the kept usage is {kept}, the sum is {total}")

    def _projections(self) -> None:
        """O15: what the session keeps up to date equals what the log gives when it is folded anew."""
        report, kept = self.report, self.session.state
        deep = self._deep
        if deep is None:
            deep = Deep(report, self.session.types, when=NEVER)
            for event in self.session.events:
                deep.feed(event)
        deep.finish()
        state = deep.state
        if list(kept.history.messages) != list(state.history.messages):
            report.add("O15", "the kept history differs from the one derived anew")
        if _summary(kept) != _summary(state):
            report.add("O15", f"the kept state is {_summary(kept)}, the log gives {_summary(state)}")


def _ignored(chunk: Any) -> None:
    """The chunks of a watch that is not told of all of them prove nothing."""


def _summary(state: State) -> dict[str, object]:
    return {
        "turn": state.turn,
        "turn_open": state.turn_open,
        "step_open": state.step_open,
        "pending": list(state.pending),
    }
