"""Receipts: the caller's hold on an accepted input, and waiting for its turn (I4, C8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio

from checkrein.errors import AgentDisposed, AgentError, GateClosed
from checkrein.events import AnyEvent, AssistantAnswer, RequestEnd, TurnEnd, TurnStart
from checkrein.log import place_of
from checkrein.messages import CallBlock, Usage, content_text
from checkrein.results import InputStatus, TurnResult

from .driven import Waiter

if TYPE_CHECKING:
    from .agent import LoopAgent

__all__ = ["LoopReceipt", "result_of"]


class LoopReceipt:
    """What `send`, `steer` and `inject` return."""

    __slots__ = ("_agent", "_id")

    def __init__(self, agent: LoopAgent, input_id: str) -> None:
        self._agent = agent
        self._id = input_id

    @property
    def id(self) -> str:
        """The input's id."""
        return self._id

    @property
    def status(self) -> InputStatus:
        """Where the input is: pending, in turn n, or discarded with a reason."""
        state = self._agent.session.state
        if (turn := state.claimed.get(self._id)) is not None:
            return InputStatus("in turn", turn=turn)
        if (reason := state.discarded.get(self._id)) is not None:
            return InputStatus("discarded", reason=reason)
        return InputStatus("pending")

    async def durable(self) -> str:
        """Wait until the acceptance is with the store; returns its name, or `memory`.

        Raises:
            GateClosed: the store did not take it.
        """
        agent = self._agent
        agent.check_thread()
        if agent.session.writer is None:
            return "memory"
        await agent.flush("input")
        return agent.harness.store_name

    async def result(self) -> TurnResult:
        """Wait for the turn that took the input, flushed, and return its result.

        A waiter that is cancelled withdraws the input, or cancels the turn and leaves after its end (C8); but not while
        another one waits for the same input, or for what the turn was begun for.

        Raises:
            AgentDisposed: the agent was disposed before a turn took it.
            GateClosed: the store refused the input.
            AgentError: the input was withdrawn or discarded.
            WouldDeadlock: this is the agent's own turn.
        """
        agent = self._agent
        agent.check_waiting()
        with Waiter(agent, self._id) as waiter:
            try:
                return await self._wait(waiter)
            except (anyio.get_cancelled_exc_class(), KeyboardInterrupt) as exc:  # trio raises Ctrl-C in the waiter
                if exc is not waiter.interrupt:  # that one was held, and its turn is closed (C10)
                    await self._leave("task" if not isinstance(exc, KeyboardInterrupt) else "signal")
                raise

    async def _wait(self, waiter: Any) -> TurnResult:
        agent = self._agent
        while True:
            if waiter.interrupt is not None:
                raise waiter.interrupt
            status = self.status
            if status.turn is not None and status.turn <= agent.settled:
                return result_of(agent, status.turn)
            if status.state == "discarded":
                raise self._discarded(status.reason or "")
            if agent.status == "disposed":
                what = "a turn took" if status.turn is None else f"turn {status.turn} ended, which took"
                raise AgentDisposed(f"the agent {agent.id!r} was disposed before {what} input {self._id}")
            await agent.moved()

    def _discarded(self, reason: str) -> AgentError | GateClosed:
        if GateClosed.said(reason):
            return GateClosed("input", reason.partition(": ")[2])
        return AgentError(f"input {self._id} was discarded: {reason}")

    async def _leave(self, cause: str) -> None:
        agent, status = self._agent, self.status
        if status.state == "pending":
            if cause != "task" or agent.inbox.waited.get(self._id, 0) <= 1:
                agent.inbox.discard(self._id, "its waiter was cancelled")
            return
        if status.turn is None or status.turn <= agent.settled:
            return
        if cause == "task" and agent.cause is None and self._shared(status.turn):
            return
        if agent.session.state.turn_open:  # while it is flushed, a cancel would act on the next one, another's (C4)
            agent.cancel(cause)
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + agent.harness.close_timeout_s):
            while status.turn > agent.settled and agent.status != "disposed":
                await agent.moved()

    def _shared(self, turn: int) -> bool:
        """Whether others wait for the turn: beside what it was begun for, only who waits for that (decision 0014)."""
        events, state = self._agent.session.events, self._agent.session.state
        start = events[place_of(events, state.starts[turn])]
        assert type(start) is TurnStart
        begun_for = start.trigger.get("ids", ())
        of_turn = [each for each in self._agent.inbox.waited if state.claimed.get(each) == turn]
        asked = of_turn if self._id not in begun_for else [each for each in of_turn if each in begun_for]
        return sum(self._agent.inbox.waited[each] for each in asked) > 1


def result_of(agent: LoopAgent, turn: int) -> TurnResult:
    """Make a turn's result from the log (L1)."""
    session, state = agent.session, agent.session.state
    events = session.turn_events(turn)
    end = session.events[place_of(session.events, state.ends[turn])]
    assert type(end) is TurnEnd
    if turn == state.turn:  # no other has begun: the projections are this turn's
        text, usage = state.final_text, state.usage_turn
    else:
        text, usage = told(events)
    return TurnResult(turn, end.reason, text, usage, end.steps, events, agent.values.get(turn))


def told(events: Sequence[AnyEvent]) -> tuple[str, Usage]:
    """The final answer's text and the tokens used in a turn's events."""
    text, usage = "", Usage()
    for event in events:
        if type(event) is AssistantAnswer:
            has_calls = any(type(block) is CallBlock for block in event.content)
            text = "" if has_calls else content_text(event.content)
        elif type(event) is RequestEnd and event.usage is not None:
            usage = usage + event.usage
    return text, usage
