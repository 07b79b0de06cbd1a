"""The hook `tools_execute`: a chain of `proceed` around a call (H1, H4).

Each plugin may wrap, rewrite, or answer instead. Its deadline's clock stops while `proceed` runs. What it
raises refuses the call, or withholds the result of a tool that has run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from .calls import Call, Outcome, check_members, error_outcome
from .errors import AlreadyBegun, PluginFault
from .owner import Suspending, absorb, ours, stray
from .wrapping import Wraps, wrapped

if TYPE_CHECKING:
    from .hooks import Chain, Hooks
    from .session import Session

__all__ = ["around", "refused", "Innermost"]

Innermost: TypeAlias = Callable[[Call, tuple[str, ...]], Awaitable[Outcome]]


async def around(
    hooks: Hooks,
    chain: Chain,
    session: Session,
    agent: Any,
    call: Call,
    begun: Callable[[], bool],
    innermost: Innermost,
) -> Outcome:
    """Run a call through the chain of `tools_execute`.

    Args:
        begun: whether the tool of this call has begun to run.
        innermost: runs the call: guards, then the tool; gets the names of those who rewrote it.

    Returns:
        The outcome. A plugin that fails refuses the call, or withholds its result (H1).
    """

    async def stage(index: int, call: Call, changed: tuple[str, ...]) -> Outcome:
        if index == len(chain.impls):
            return await innermost(call, changed)
        return await _Stage(hooks, chain, index, session, agent, call, changed, begun, stage).run()

    if not chain.wrappers:
        return await stage(0, call, ())

    async def core() -> Any:
        return await stage(0, call, ())

    async def unreachable(call: Call) -> Outcome:
        raise RuntimeError("a wrapper does not call proceed; it yields")

    try:
        wraps = Wraps(lambda impl, exc: hooks.classified(impl, exc, session, "refused"), _outcome)
        result: Outcome = await wrapped(wraps, chain, (agent, call, unreachable), core)
        return result
    except PluginFault as fault:
        return refused(fault, begun())


class _Stage:
    """One plugin's turn in the chain of `tools_execute`; its `proceed` knows what was asked before."""

    __slots__ = (
        "hooks",
        "chain",
        "index",
        "session",
        "agent",
        "call",
        "changed",
        "begun",
        "next",
        "scope",
        "left",
        "open",
        "asked",
        "proceeding",
        "got",
        "waits",
    )

    def __init__(
        self,
        hooks: Hooks,
        chain: Chain,
        index: int,
        session: Session,
        agent: Any,
        call: Call,
        changed: tuple[str, ...],
        begun: Callable[[], bool],
        next_: Callable[[int, Call, tuple[str, ...]], Awaitable[Outcome]],
    ) -> None:
        self.hooks = hooks
        self.chain = chain
        self.index = index
        self.session = session
        self.agent = agent
        self.call = call
        self.changed = changed
        self.begun = begun
        self.next = next_
        self.scope: anyio.CancelScope | None = None
        self.left = chain.deadline_s
        self.open = True
        self.asked = 0
        self.proceeding = 0
        self.got: Outcome | None = None  # what the rest of the chain came to last: it is checked already
        self.waits = False  # whether something suspended since the clock stands still, or it ran before

    async def run(self) -> Outcome:
        impl = self.chain.impls[self.index]
        impl.calls += 1
        began = perf_counter()
        try:
            out = await self._within(impl.call(self.agent, self.call, self.proceed))
            if out is not self.got:
                _outcome(out)
            if (left := await stray()) is not None:
                raise left
        except BaseException as exc:
            if ours(exc) or isinstance(exc, KeyboardInterrupt):
                raise
            if isinstance(exc, AlreadyBegun) and self.index and self.asked == 1:
                raise  # it belongs to a plugin further out, which asked twice at once
            absorb()
            fault = self.hooks.faults.record(impl, exc, self.session, "refused")
            return refused(fault, self.begun())
        finally:
            self.open = False
            impl.time_s += perf_counter() - began
        if self.asked and (out is self.got or out == self.got):
            return out
        impl.changes += 1  # it answered instead of the tool, or in other words than what came of it
        by = impl.plugin if self.asked else out.by or impl.plugin
        return Outcome(out.content, out.is_error, out.error, out.value, out.decision, by)

    async def _within(self, answer: Awaitable[Outcome]) -> Outcome:
        if self.left is None:
            return await answer
        with anyio.CancelScope() as self.scope:
            return await Suspending(answer, self._suspends)
        raise TimeoutError(f"no answer within {self.chain.deadline_s:g} s of its own time")

    def _suspends(self) -> None:
        """Set the deadline, unless it is set or its clock stands still."""
        if self.proceeding:
            self.waits = True
        elif self.scope is not None and self.scope.deadline == inf:
            self.scope.deadline = anyio.current_time() + (self.left or 0.0)

    async def proceed(self, call: Call) -> Outcome:
        """Run the rest of the chain; the deadline's clock stops meanwhile."""
        if not self.open:
            raise RuntimeError("proceed was called after the hook had ended; await it inside the hook")
        if not isinstance(call, Call) or call.call_id != self.call.call_id or call.name != self.call.name:
            raise TypeError("expected the same call, at most with other arguments (call.replace)")
        self.asked += 1
        if self.begun() and self.call.effect == "effectful":
            raise AlreadyBegun(f"the effectful call {call.call_id} ({call.name}) has begun; it is never run twice")
        changed = self.changed
        if call.arguments != self.call.arguments:
            changed = (*changed, self.chain.impls[self.index].plugin)
            self.chain.impls[self.index].changes += 1
        scope = self.scope
        if scope is None:
            self.got = await self.next(self.index + 1, call, changed)
            return self.got
        if not self.proceeding:
            self.waits = scope.deadline != inf
            if self.waits:
                self.left = scope.deadline - anyio.current_time()
                scope.deadline = inf
        self.proceeding += 1
        try:
            self.got = await self.next(self.index + 1, call, changed)
            return self.got
        finally:
            self.proceeding -= 1
            if not self.proceeding and self.waits:  # the hook itself may be suspended already, in another task
                scope.deadline = anyio.current_time() + (self.left or 0.0)


def _outcome(value: Any) -> None:
    if not isinstance(value, Outcome):
        raise TypeError(f"expected an Outcome (as proceed returns), got {type(value).__name__}")
    check_members(value)


def refused(fault: BaseException, begun: bool) -> Outcome:
    """The result of a call whose plugin failed: not run, or run and withheld (H1)."""
    if begun:
        return error_outcome(
            "WITHHELD_BY_FAULT",
            f"the tool has run, but its result is withheld because a plugin failed afterwards: {fault}",
        )
    return error_outcome("REFUSED_BY_FAULT", f"the call was refused and the tool did not run: {fault}")
