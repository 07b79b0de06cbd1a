"""Replay: the loop runs a logged session again, and must make every event that is not an outside fact anew (R5).

    report = await replay(recover(store.read(session_id)).events)
    report.equal, report.differences

Fed from the log are the outside facts: input, what the model said, what tools, people and plugins did. The loop makes
the rest: brackets, claims of input, calls, prompt parts, headers and digests of requests, how turns ended. What stands
in for the model, the tools and the plugins is replay_world.py; no provider, tool or plugin of the session is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec
from msgspec import Struct, field

from . import events as ev
from .codec import encode
from .errors import CheckreinError, RefusedAtAppend
from .session import Session

if TYPE_CHECKING:
    from .agents import AgentLike
    from .events import AnyEvent

__all__ = ["Difference", "Report", "Tape", "replay"]

E = TypeVar("E", bound="AnyEvent")

MAX_DIFFERENCES = 20
OUTSIDE = ("cancelled", "disposed", "interrupted")  # turn ends that somebody outside of the loop decides

# Taken from the log where the loop appends one of its own.
FACTS = (
    *(ev.AssistantThinking, ev.AssistantAnswer, ev.AssistantPartial, ev.RequestEnd),
    *(ev.ToolStarted, ev.ToolEnded, ev.ToolResulted, ev.ApprovalDecided, ev.ContextInput, ev.PluginFaulted),
)
# Appended by nobody in a replay: fed at their place.
FED = (
    *(ev.SessionCreated, ev.SessionResumed, ev.SessionRepaired, ev.LogGap, ev.ToolLate, ev.FreeEvent),
    *(ev.InboxAccepted, ev.InboxReplaced, ev.InboxDiscarded),
    *(ev.CompactionStart, ev.CompactionSummary, ev.CompactionEnd),
)
CLOSING = (ev.RequestEnd, ev.ApprovalDecided, ev.ToolCalled, ev.ToolResulted, ev.StepEnd, ev.TurnEnd)
RAISED_IN = ("agent_request", "step_result", "turn_continuation")


class _Killed(CheckreinError):
    """Here the recorded process died: the loop has to close the turn; how it calls that is not compared."""


class Difference(Struct, frozen=True):
    """An event that came out differently: the recorded one beside the replayed one, as JSON."""

    recorded: str
    replayed: str


class Report(Struct):
    """What a replay came to.

    Attributes:
        total: events in the log.
        events: how many of them were gone through.
        made: how many of these the loop made anew, and were compared.
        differences: the first 20 that are not equal.
        stopped: why it could not go on to the end; None if it did.
    """

    total: int
    events: int = 0
    made: int = 0
    differences: list[Difference] = field(default_factory=list)
    stopped: str | None = None

    @property
    def equal(self) -> bool:
        """Whether the whole log was replayed, and every event came out equal."""
        return not self.differences and self.stopped is None


async def replay(events: Sequence[AnyEvent]) -> Report:
    """Run a session again from its log.

    Args:
        events: the log from its beginning, without gaps in front of what is to be compared.

    Returns:
        The report; it never raises for what is in the log.
    """
    from .replay_world import world

    tape = Tape(events)
    async with world(tape) as agent:
        tape.agent = agent
        async with anyio.create_task_group() as group:
            group.start_soon(_watch, tape, agent)
            await _drive(tape, agent)
            tape.over = True
            group.cancel_scope.cancel()
        agent.cancel()
    tape.report.events = tape.cursor
    return tape.report


async def _drive(tape: Tape, agent: AgentLike) -> None:
    tape.feed()
    while not tape.over:
        before = tape.cursor
        if type(tape.current) is not ev.TurnStart:
            tape.stop_at("no turn is open", None)
            return
        agent.wake()
        await agent.idle()
        tape.feed()
        if tape.cursor == before:
            tape.stop_at("the loop begins no turn", None)


async def _watch(tape: Tape, agent: AgentLike) -> None:
    """End a replay that waits for what never comes."""
    seen = -1
    while not tape.over:
        await anyio.wait_all_tasks_blocked()
        if agent.status == "running" and seen == tape.cursor:
            tape.stop_at("the loop waits", None)
            return
        seen = tape.cursor
        await anyio.sleep(0.01)


class Tape(Session):
    """A session that is being replayed: an append takes the recorded event, and compares it.

    Attributes:
        log: the recorded events.
        cursor: how many of them are committed.
        over: whether the replay has left the log, at its end or before; from then on appends are plain ones.
    """

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        super().__init__("replay")
        self.log = events
        self.cursor = 0
        self.over = not events
        self.report = Report(len(events))
        self.agent: AgentLike | None = None
        self.nested = {e.call_id for e in events if type(e) is ev.ToolCalled and e.parent is not None}
        self._moved = anyio.Event()

    # --- where it is --------------------------------------------------------------------------------

    @property
    def current(self) -> AnyEvent | None:
        """The next recorded event."""
        return self.log[self.cursor] if self.cursor < len(self.log) and not self.over else None

    def ahead(self) -> Iterator[AnyEvent]:
        """The rest of the open turn, up to its end, if it has one; read on only as far as needed."""
        for n in range(self.cursor, len(self.log)):
            event = self.log[n]
            yield event
            if type(event) is ev.TurnEnd:
                return

    def ending(self) -> ev.TurnEnd | None:
        """How the open turn ends, if it does."""
        return next((event for event in self.ahead() if type(event) is ev.TurnEnd), None)

    def at(self, seq: int) -> AnyEvent | None:
        """The recorded event of this seq."""
        found = self.log[seq] if 0 <= seq < len(self.log) else None
        return found if found is not None and found.seq == seq else None

    async def moved(self) -> None:
        """Wait until another event was committed."""
        await self._moved.wait()

    # --- appending ----------------------------------------------------------------------------------

    def append(self, event: E, /) -> E:
        """Commit the next recorded event, if it is of this kind, and compare what is no outside fact."""
        self.feed()
        if isinstance(event, ev.ApprovalDecided) and event.id not in self.state.approvals:
            return event  # of a nested call: it was fed while the loop closed the one before
        expected = self.current
        if expected is None:
            self._leave()
            return super().append(event)
        made: Any = msgspec.structs.replace(event, seq=expected.seq, time=expected.time)  # type: ignore[type-var]
        if type(expected) is not type(event):
            if self._was_killed() and not isinstance(event, CLOSING):
                raise _Killed(f"the process died before {event.type}")
            self.stop_at("the loop goes another way", made)
            return super().append(event)
        if not isinstance(event, FACTS):
            self.report.made += 1
            if not _equal(expected, made):
                self._differ(expected, made)
        self._take(expected)
        if type(expected) is ev.StepEnd:
            self._allow(max_steering_extensions=sys.maxsize if self._goes_on() else 0)
        self.feed()
        return expected

    def _allow(self, **limits: Any) -> None:
        """Set the agent's limits to what they must have been: each life had its own, the log tells what was done."""
        if self.agent is not None:
            self.agent.spec = msgspec.structs.replace(self.agent.spec, **limits)

    def _goes_on(self) -> bool:
        """Whether another step of the open turn follows."""
        return next((type(e) is ev.StepStart for e in self.ahead() if isinstance(e, (ev.StepStart, ev.TurnEnd))), False)

    def _was_killed(self) -> bool:
        """Whether nothing of the open turn is left but what closed it from outside, or began to."""
        rest = [event for event in self.ahead() if not self._is_fed(event)]
        end = rest[-1] if rest else None
        left = type(end) is not ev.TurnEnd or end.reason.kind in OUTSIDE
        return left and all(isinstance(e, CLOSING) for e in rest)

    def feed(self) -> None:
        """Commit the recorded events that nobody appends in a replay."""
        while (event := self.current) is not None and self._is_fed(event):
            self._take(event)
        event = self.current
        if type(event) is ev.TurnEnd and event.reason.kind in OUTSIDE:
            self.cancel()
        elif type(event) is ev.TurnStart:
            end = self.ending()
            self._allow(
                queue_mode="one" if len(event.trigger.get("ids", ())) == 1 else "all",
                max_steps=(end.reason.max_steps or 0) if end is not None else 0,
            )

    def _is_fed(self, event: AnyEvent) -> bool:
        if isinstance(event, FED) or self._call_of(event) in self.nested:
            return True
        if type(event) is ev.Decision:
            return event.hook == "tools_guard"
        return type(event) is ev.PluginFaulted and not self.is_raised(event)

    def _call_of(self, event: AnyEvent) -> str | None:
        """The call that an event is of, or that an approval is asked for."""
        if type(event) is ev.ApprovalDecided:
            asked = self.state.approvals.get(event.id)
            return None if asked is None else asked.call_id
        return getattr(event, "call_id", None)

    @staticmethod
    def is_raised(event: ev.PluginFaulted) -> bool:
        """Whether this fault is raised again in its hook, since the turn's course depends on it."""
        if event.hook == "session_flush":
            return event.action == "refused" and event.turn is not None  # between turns it only discards input
        return event.action == "turn_ended" and event.hook in RAISED_IN

    def _take(self, event: AnyEvent) -> None:
        if event.seq != self.state.next_seq:
            self.state.next_seq = event.seq  # a gap, which its log/gap event names
        try:
            super().append(event)
        except RefusedAtAppend as exc:
            self.report.stopped = f"the log's own event at seq {event.seq} breaks a rule: {exc}"
            self._leave()
            return
        self.cursor += 1
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    # --- leaving ------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Somebody outside ended the turn here."""
        if self.agent is not None:
            end = self.ending()
            cause = end.reason.cause if end is not None else None
            self.agent.cancel(cause if cause is not None else "user")

    def stop_at(self, why: str, made: AnyEvent | None) -> None:
        """Leave the log here: the loop does something else than was recorded."""
        expected = self.current
        if self.report.stopped is None and expected is not None:
            self.report.stopped = f"{why} where the log goes on with {expected.type} at seq {expected.seq}"
            if made is not None:
                self._differ(expected, made)
        self._leave()

    def _leave(self) -> None:
        self.over = True
        self._moved.set()
        if self.agent is not None:
            self.agent.cancel()

    def _differ(self, expected: AnyEvent, made: AnyEvent) -> None:
        if len(self.report.differences) < MAX_DIFFERENCES:
            self.report.differences.append(Difference(encode(expected).decode(), encode(made).decode()))


def _equal(expected: AnyEvent, made: AnyEvent) -> bool:
    if type(expected) is ev.TurnEnd and expected.reason.kind in OUTSIDE and type(made) is ev.TurnEnd:
        return (expected.turn, expected.steps) == (made.turn, made.steps)
    return bool(_comparable(expected) == _comparable(made))


def _comparable(event: AnyEvent) -> Any:
    """An event without what is an outside fact in it: which plugin, which process, who ended the turn."""
    members = msgspec.to_builtins(event)
    members.pop("plugin", None)
    if type(event) is ev.RequestHeader:
        members.pop("reason")  # it tells of a new process
    elif type(event) is ev.RequestStart:
        members.pop("edits", None)  # whose; what they made of the messages is in the digest
    elif type(event) is ev.ApprovalAsked:
        members.pop("arguments", None)  # a plugin may have rewritten them
    elif type(event) is ev.TurnEnd:
        reason = event.reason
        members["reason"] = (reason.kind, reason.error, reason.max_steps)
    return members
