"""LoopAgent: the handle everybody holds. What drives it is loop.py; what waits for it is receipt.py.

An agent that has nothing to do has no task: `send` starts a driver, the driver ends when nothing is owed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio

from checkrein.agents import PendingInput, TurnView
from checkrein.errors import AgentDisposed, GateClosed
from checkrein.events import Cause
from checkrein.live import Buffer, TurnStream
from checkrein.messages import USER, Block, Request, Source
from checkrein.results import TurnResult

from .dispose import dispose
from .driven import Driven
from .ends import checked_cause
from .prepare import base_request
from .receipt import LoopReceipt

__all__ = ["LoopAgent"]


class LoopAgent(Driven):
    """An agent driven by this package's loop; see checkrein.agents.AgentLike for the public methods.

    Args:
        harness: where it lives.
        spec: how it is made.
        session: its log; a stored one is continued.
    """

    # --- what callers use -------------------------------------------------------------------------

    @property
    def turn(self) -> TurnView:
        """The open turn, read-only."""
        state = self.session.state
        if not state.turn_open:
            return TurnView()
        return TurnView(state.turn, state.step, state.step, state.turn_calls, state.usage_turn)

    @property
    def pending(self) -> list[PendingInput]:
        """Accepted input that no turn has taken, in order."""
        return self.inbox.listed()

    def send(
        self, content: str | Sequence[Block], *, source: Source = USER, key: str | None = None, **options: Any
    ) -> LoopReceipt:
        """Queue an input and wake the agent.

        Args:
            content: text or blocks.
            source: who says it; every source but the user is told to the model.
            key: the client's; a second send with a known key is the first one again.
            options: model, settings, max_steps, output_schema for the turn that takes it.

        Raises:
            AgentDisposed, InboxFull, WrongThread; ValueError for empty content or an option that is none of these.
        """
        return self._accept("queued", content, source, key, options=options)

    def steer(self, content: str | Sequence[Block], *, source: Source = USER, key: str | None = None) -> LoopReceipt:
        """Hand an input to the nearest step boundary of the running turn; on an idle agent, send it (I1)."""
        return self._accept("steering" if self._status == "running" else "queued", content, source, key)

    def inject(self, content: str | Sequence[Block], *, source: Source = USER, key: str | None = None) -> LoopReceipt:
        """Add context for the next request; never wakes (I1)."""
        self._alive()
        return LoopReceipt(self, self.inbox.accept("context", content, source, key))

    async def run(self, content: str | Sequence[Block], *, source: Source = USER, **options: Any) -> TurnResult:
        """Send an input as a turn of its own and wait for its result (T4: every ending is a result).

        Args:
            content: text or blocks.
            source: who says it.
            options: model, settings, max_steps, output_schema for this turn.

        Raises:
            AgentDisposed, InboxFull, WouldDeadlock, WrongThread, GateClosed; ValueError as send.
        """
        self.check_waiting()
        return await self._accept("queued", content, source, None, own_turn=True, options=options).result()

    def stream(
        self, content: str | Sequence[Block], *, source: Source = USER, buffer: int = 4_096, **options: Any
    ) -> TurnStream:
        """As run, live: an async context manager that iterates over deltas and events (checkrein.live).

        Args:
            buffer: deltas kept for a slow consumer before those of one block are joined.
        """

        ends: list[Callable[[], None]] = []

        def accept() -> LoopReceipt:
            self.check_waiting()
            receipt = self._accept("queued", content, source, None, own_turn=True, options=options)
            self.inbox.join(receipt.id)
            ends.extend((partial(self.inbox.leave, receipt.id), self.waited()))
            return receipt

        def attach(consumer: Buffer) -> Callable[[], None]:
            stop = self.attach(consumer)

            def leave() -> None:
                stop()
                while ends:
                    ends.pop()()

            return leave

        return TurnStream(self, accept, attach, buffer)

    def cancel(self, cause: Cause | str = "user", *, discard_pending: bool = False) -> None:
        """Cancel the open turn; the first cause wins (C1, C4).

        Between turns it cancels the next one if input is owed; on an idle agent it does nothing.

        Args:
            cause: who cancels; a word or a Cause.
            discard_pending: discard pending input, with events, instead of parking it.

        Raises:
            WrongThread; TypeError, ValueError for a cause that cannot be logged.
        """
        self.check_thread()
        cause = checked_cause(cause)
        if self._status != "running":
            return
        if not self.session.state.turn_open and not self.inbox.owed():
            return
        if discard_pending:
            for entry in self.inbox.listed():
                if entry.id not in self.inbox.waited:
                    self.inbox.discard(entry.id, "cancelled")
        self.inbox.park()
        if self.cause is None:
            self.cause = cause
        self.stop_turn()

    def wake(self) -> None:
        """Take parked input now (C4)."""
        self._alive()
        self.inbox.unpark()
        if self.inbox.owed():
            self.start()

    def replace(self, input_id: str, content: str | Sequence[Block]) -> None:
        """Replace a pending input's content (I6)."""
        self._alive()
        self.inbox.replace(input_id, content)

    def withdraw(self, input_id: str, reason: str = "withdrawn") -> None:
        """Withdraw a pending input (I6)."""
        self._alive()
        self.inbox.discard(input_id, reason)
        self.notify()

    def next_request(self) -> Request:
        """The request the agent would send now, before plugins see it; nothing is sent or logged (M1)."""
        return base_request(self, {})[1]

    async def idle(self) -> None:
        """Wait until nothing runs and nothing is owed."""
        self.check_waiting()
        end = self.waited()
        try:
            while self._status == "running":
                await self.moved()
        finally:
            end()

    async def dispose(self) -> None:
        """Stop, flush and unregister; idempotent, every caller awaits the same completion (C5)."""
        self.check_waiting()
        if self._disposed is None:
            done = anyio.Event()
            self.harness.owner.spawn(dispose, self, done)
            self._disposed = done  # behind what raises on a closed harness, so that each call does
            self.disposing = True  # from here on nothing is accepted, and the open turn ends `disposed`
        await self._disposed.wait()

    # --- accepting --------------------------------------------------------------------------------

    def _accept(
        self,
        kind: str,
        content: str | Sequence[Block],
        source: Source,
        key: str | None,
        own_turn: bool = False,
        options: dict[str, Any] | None = None,
    ) -> LoopReceipt:
        self._alive()
        if key is not None and (known := self.inbox.known(key)) is not None:
            return LoopReceipt(self, known)  # the first one's, and it begins nothing
        receipt = LoopReceipt(self, self.inbox.accept(kind, content, source, key, own_turn, options))
        if self._status == "idle":
            self.start()
        elif self.session.writer is not None:
            # The driver is elsewhere: this input must not wait for its next flush point (R4).
            self.beside(self._flush_input)
        return receipt

    async def _flush_input(self) -> None:
        try:
            await self.flush("input")
        except GateClosed:
            pass  # recorded as a fault; `durable()` tells whoever asks

    def _alive(self) -> None:
        self.check_thread()
        if self.disposing:
            raise AgentDisposed(f"the agent {self.id!r} is disposed; create or resume another one")
        if not self.harness.owner.alive:  # its loop has ended: refused before it is accepted, or nobody would take it
            raise AgentDisposed(f"the harness of the agent {self.id!r} is closed; open another one")
