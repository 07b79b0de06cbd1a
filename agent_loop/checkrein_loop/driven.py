"""What drives an agent and what a step needs of it: scope, cancel, settling, status, waiters.

`Driven` is the inner half of LoopAgent (agent.py has the half that callers use); it holds the few things that
are not in the log: who waits, who cancelled, and whether a driver runs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio

from checkrein.agents import AgentSpec
from checkrein.errors import WouldDeadlock
from checkrein.events import Cause, Reason
from checkrein.live import Buffer, Delta
from checkrein.output import capped
from checkrein.providers import Provider
from checkrein.requests import Digester
from checkrein.state import Pending

from .dispose import DEAF_S, name_deaf
from .ends import TurnCancelled
from .idle import idle_watch
from .inbox import Inbox
from .loop import drive
from .prepare import Prompt

if TYPE_CHECKING:
    from checkrein.calls import Outcome
    from checkrein.harness import Harness
    from checkrein.hooks import Hooks
    from checkrein.session import Session
    from checkrein.tools import Tool

    from .agent import LoopAgent

__all__ = ["Driven", "Waiter"]

# The agent whose turn the running code is part of, with the turn's number (C12).
_inside: ContextVar[tuple[Driven, int] | None] = ContextVar("checkrein_inside", default=None)


def _nothing() -> None:
    """What there is to end for one who waits outside of turns."""


class Waiter:
    """Somebody who waits for an input, in a `with`; it is not parked meanwhile, and a parked one is taken up.

    Attributes:
        interrupt: a KeyboardInterrupt the driver held; it is raised here (C10).
    """

    __slots__ = ("interrupt", "_agent", "_end", "_input_id", "_waits")

    def __init__(self, agent: Driven, input_id: str) -> None:
        self.interrupt: BaseException | None = None
        self._agent = agent
        self._input_id = input_id
        self._waits = False

    def __enter__(self) -> Waiter:
        agent = self._agent
        self._end = agent.waited()
        agent.inbox.join(self._input_id)
        self._waits = True
        agent.waiters.append(self)
        try:
            if agent.status == "idle" and not agent.disposing and agent.inbox.owed():
                agent.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._agent.waiters.remove(self)
        self._end()
        self.leave()

    def leave(self) -> None:
        """Wait no longer; the input may be parked."""
        if self._waits:
            self._waits = False
            self._agent.inbox.leave(self._input_id)


class Driven:
    """An agent as its driver, its steps and its waiters see it."""

    def __init__(self, harness: Harness, spec: AgentSpec, session: Session) -> None:
        self.id = spec.id
        self.spec = spec
        self.harness = harness
        self.session = session
        self.hooks: Hooks = harness.hooks
        self.workspace: Path = harness.workspace
        self.inbox = Inbox(self.as_agent())
        self.prompt = Prompt()
        self.digester = Digester()
        self.live: list[Buffer] = []
        self.values: dict[int, Any] = {}
        self.cause: Cause | None = None
        self.disposing = False
        self.failure: Reason | None = None  # why the turn is being ended from outside, when it is not a cancel
        self.streaming: Any = None
        self.unbroken = 0  # steps since the driver let others run, over turns
        self._settle()
        self.driven = False
        self.task: Any = None  # the driver's, on asyncio
        self._status = "idle"
        self._waited_by: list[tuple[Driven, int]] = []  # turns whose code waits for this agent (C12)
        self._scope: anyio.CancelScope | None = None
        self._changed: anyio.Event | None = None
        self.waiters: list[Waiter] = []
        self._interrupt: BaseException | None = None
        self._resolved: tuple[str, tuple[Provider, str]] | None = None
        self._disposed: anyio.Event | None = None

    def as_agent(self) -> LoopAgent:
        """This very object, as what it is."""
        return cast("LoopAgent", self)

    @property
    def status(self) -> str:
        """`idle`, `running` or `disposed`; it changes in the same tick as the send that causes it (I2)."""
        return self._status

    def start(self) -> None:
        """Start a driver, unless one runs."""
        if self._status == "idle":
            self._status = "running"
            self.driven = True
            self.harness.owner.spawn(drive, self.as_agent())
            self.harness.watch_idle(idle_watch)
            self._tell_status()  # last, since an observer's KeyboardInterrupt leaves from here

    def check_thread(self) -> None:
        """Raise WrongThread outside the loop's thread (C12)."""
        self.harness.check_thread()

    def check_waiting(self) -> None:
        """Raise WouldDeadlock inside this agent's own turn, its last flush included (C12).

        What a turn of its waits for is a part of that turn, over any number of agents, whoever began their turns.
        """
        self.harness.check_thread()
        inside = _inside.get()
        part_of = [] if inside is None else [inside]
        for agent, turn in part_of:  # grows as it goes
            if turn <= agent.settled:
                continue
            if agent is self:
                raise WouldDeadlock(
                    f"the agent {self.id!r} cannot wait for itself inside its own turn; use send, or wait behind it"
                )
            part_of += [each for each in agent._waited_by if each not in part_of]

    def waited(self) -> Callable[[], None]:
        """Note that the turn the running code is part of, if any, waits for this agent; returns what ends that."""
        inside = _inside.get()
        if inside is None:
            return _nothing
        self._waited_by.append(inside)
        return partial(self._waited_by.remove, inside)

    # --- what the driver uses ---------------------------------------------------------------------

    def owes_turn(self) -> bool:
        """Whether a turn has to begin; a cancel between turns acts on the input it found, and on no other (C4)."""
        if self.cause is not None and not self.inbox.parked():
            self.cause = None
        return self.cause is not None or self.inbox.owed()

    def turn_scope(self) -> anyio.CancelScope:
        """A new scope for the next turn, the one `cancel` cancels (C1)."""
        scope = self._scope = anyio.CancelScope()
        _inside.set((self, self.session.state.turn + 1))
        if self.cause is not None or self.disposing:
            scope.cancel()
        return scope

    def stop_turn(self) -> None:
        """Cancel the open turn's scope, and watch whether it is heard."""
        scope = self._scope
        if scope is not None and not scope.cancel_called:
            scope.cancel()
            self.harness.owner.later(DEAF_S, partial(self._listen, scope))

    def _listen(self, scope: anyio.CancelScope) -> None:
        """Look whether the turn of a cancelled scope is still open."""
        if self._scope is scope and self.session.state.turn_open:
            self.beside(name_deaf, self.as_agent())

    def beside(self, fn: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Run something beside the driver; a KeyboardInterrupt in it is handed over as one in the driver (C10)."""
        self.harness.owner.spawn(self._beside, fn, args)

    async def _beside(self, fn: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]) -> None:
        try:
            await fn(*args)
        except KeyboardInterrupt as exc:
            if self.driven:
                self.hold(exc)
            else:
                self._interrupt = exc
                self._hand_over()

    @property
    def cancelled(self) -> bool:
        """Whether the open turn is to end now."""
        return self.cause is not None or self.disposing or self._interrupt is not None or self.failure is not None

    def checkpoint(self) -> None:
        """Look at a cancel where nothing awaits (C1).

        Raises:
            TurnCancelled: it came.
        """
        if self.cause is not None or self.disposing or self._interrupt is not None or self.failure is not None:
            raise TurnCancelled

    def fail(self, reason: Reason) -> None:
        """End the open turn from outside for this reason; a cancel or an error that came before stays."""
        if not self.cancelled and self._scope is not None:
            self.failure = reason
            self._scope.cancel()

    def hold(self, exc: BaseException) -> None:
        """Hold a KeyboardInterrupt until the turn is closed; then every waiter raises it (C10)."""
        self._interrupt = exc
        if self.cause is None:
            self.cause = Cause("signal")
        self.inbox.park()
        if self._scope is not None:
            self._scope.cancel()

    def internal(self, exc: BaseException) -> None:
        """A failure of our own around turns: visible, and the driver stops (C4)."""
        if isinstance(exc, KeyboardInterrupt):
            self.hold(exc)
        else:
            self.hooks.faults.write("checkrein", "driver", exc, self.session, "contained")
        self.inbox.park()

    async def settle_turn(self) -> None:
        """After turn/end: flush with a deadline; its failure is a fault, and the agent lives (T9)."""
        self.cause = self._scope = self.failure = None
        try:
            await self.flush("turn_end", contained=True)
        finally:
            self._settle()
            self._hand_over()
            self.notify()

    def _settle(self) -> None:
        """Turns up to here have ended and been flushed; one that is deaf and still open has not."""
        state = self.session.state
        self.settled = state.turn - 1 if state.turn_open else state.turn

    def _hand_over(self) -> None:
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is None:
            return
        if self.waiters:
            for waiter in self.waiters:
                waiter.interrupt = interrupt
                waiter.leave()  # it raises before it could see a result: its input is parked with the rest
        else:
            import signal

            signal.raise_signal(signal.SIGINT)  # the program's own path

    def rest(self) -> None:
        """The driver is gone."""
        self.driven = False
        self.cause = self.failure = self.task = self._scope = None
        self._settle()
        if self._status == "running" and not self.disposing:
            try:
                self.set_status("idle")
            except KeyboardInterrupt as exc:
                self._interrupt = exc
            if self.inbox.owed() and self.harness.owner.alive and self._interrupt is None:
                self.start()  # input came between the driver's last look and now
        self._hand_over()
        self.notify()

    def gone(self) -> None:
        """The agent is disposed, whatever failed on the way."""
        self._status = "disposed"
        try:
            self.harness.forget(self.as_agent())
        except KeyboardInterrupt as exc:
            self._interrupt = exc
        finally:
            self.notify()
            for buffer in self.live:
                buffer.wake()
        self._hand_over()

    async def flush(self, gate: str, contained: bool = False) -> None:
        """A flush point (R4).

        Raises:
            GateClosed: the events so far are not where they must be; not if that is contained.
        """
        chain = self.hooks.session_flush
        if chain is not None:
            so_far = self.session.state.next_seq
            if await self.hooks.gather(chain, self.session, gate, contained) and so_far > self.inbox.confirmed:
                self.inbox.confirmed = so_far

    def options_of(self, taken: Sequence[Pending]) -> dict[str, Any]:
        """The options of a turn: those of its inputs, the last one wins."""
        options: dict[str, Any] = {}
        for entry in taken:
            options.update(entry.options)
        return options

    # --- what a step uses -------------------------------------------------------------------------

    def resolve(self, model: str | None) -> tuple[Provider, str]:
        """The provider and model of a request.

        Raises:
            ConfigError, CredentialsError: it cannot be used.
        """
        model = model or self.spec.model
        if self._resolved is None or self._resolved[0] != model:
            self._resolved = (model, self.harness.providers.resolve(model))
        return self._resolved[1]

    def settings(self, options: dict[str, Any]) -> dict[str, Any]:
        """The request's settings: the agent's, and the turn's over them."""
        extra = dict(options.get("settings") or {})
        if options.get("output_schema") is not None:
            extra["output_schema"] = options["output_schema"]
        return {**self.spec.settings, **extra} if extra else self.spec.settings

    def tools(self) -> tuple[Tool, ...]:
        """The tools this agent may use, in a stable order."""
        return self.harness.tools.for_agent(self.spec.tools)

    def tool(self, name: str) -> Tool | None:
        """The tool of this name, if this agent may use it."""
        tool = self.harness.tools.get(name)
        return tool if tool is not None and (self.spec.tools is None or tool in self.tools()) else None

    def capped(self, outcome: Outcome) -> Outcome:
        """The outcome as it is logged: large output shortened, the whole in a blob (X5)."""
        return capped(outcome, self.harness.output_bytes, self.session.put_blob)

    # --- watching ---------------------------------------------------------------------------------

    def attach(self, buffer: Buffer) -> Callable[[], None]:
        """Feed a consumer's buffer with deltas, and wake it at each event; returns what ends it."""
        self.live.append(buffer)
        stop = self.session.observe(lambda event: buffer.wake())

        def detach() -> None:
            stop()
            self.live = [other for other in self.live if other is not buffer]

        return detach

    def show(self, delta: Delta) -> None:
        """Hand a delta to every consumer."""
        for buffer in self.live:
            buffer.push(len(self.session.events), delta)

    def set_status(self, status: str) -> None:
        """Change the status and tell the observers; the same one again is nothing."""
        if status != self._status:
            self._status = status
            self._tell_status()

    def _tell_status(self) -> None:
        status = self._status
        chain = self.hooks.agent_status
        if chain is not None:
            self.hooks.observe(chain, self.session, (self, status))
        self.notify()

    def notify(self) -> None:
        """Wake everybody who waits for this agent to change."""
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    async def moved(self) -> None:
        """Wait for the next change."""
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()
