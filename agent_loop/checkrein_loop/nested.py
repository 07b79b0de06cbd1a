"""Calls that a running tool makes: `ToolContext.call` (X7). They take the way of every call, guards included.

A nested call is logged with its `parent`, gets its one result before its parent's, and is never seen by
the model. It lives no longer than its parent: what a tool leaves running is cancelled and answered (C2).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from checkrein.calls import Call, Outcome, error_outcome
from checkrein.codec import copied
from checkrein.derive import WORDS
from checkrein.errors import InvalidArguments, ToolError
from checkrein.events import ToolCalled
from checkrein.owner import absorb, native_task, ours
from checkrein.settling import settle

from .execute import execute, failed

if TYPE_CHECKING:
    from checkrein.tools import Tool

    from .agent import LoopAgent

__all__ = ["Children"]

MAX_DEPTH = 8
MAX_CALLS = 1_000


class Children:
    """The nested calls of one run of a tool.

    Args:
        agent: whose turn it is.
        parent: the call whose tool runs.
    """

    __slots__ = ("_agent", "_ended", "_open", "_parent")

    def __init__(self, agent: LoopAgent, parent: Call) -> None:
        self._agent = agent
        self._parent = parent
        self._open: dict[str, anyio.CancelScope] = {}
        self._ended = False

    async def call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Make a call and return what it came to; see checkrein.tools.ToolContext.call."""
        agent, parent = self._agent, self._parent
        if self._ended:
            raise ToolError(f"the call {parent.call_id} is over: expected nested calls while its tool runs")
        call_id = self._next_id()
        with anyio.CancelScope() as scope:
            self._open[call_id] = scope
            try:
                return await self._logged(call_id, name, arguments)
            except KeyboardInterrupt as exc:
                agent.hold(exc)  # it must not leave a task that the tool may have started for this call (C10)
                self._abandon(call_id)
                await checkpoint()  # the turn is cancelled: this is where the tool hears of it
                raise ToolError(f"the turn was interrupted during {call_id}") from None
            except BaseException as exc:
                if ours(exc):
                    self._abandon(call_id)
                raise
            finally:
                self._open.pop(call_id, None)
        raise ToolError(f"the call {parent.call_id} ended before its nested call {call_id}")

    async def _logged(self, call_id: str, name: str, arguments: dict[str, Any]) -> Outcome:
        """Run a nested call between its `tool/call` and its `tool/result`."""
        parent = self._parent
        self._agent.session.append(
            ToolCalled(turn=parent.turn, step=parent.step, call_id=call_id, name=name, parent=parent.call_id)
        )
        began = perf_counter()
        try:
            outcome = await self._run(call_id, name, arguments)
        except BaseException as exc:
            if ours(exc) or isinstance(exc, KeyboardInterrupt):
                raise
            absorb()
            outcome = failed(exc)
        settle(self._agent.session, call_id, self._agent.capped(outcome), int((perf_counter() - began) * 1000))
        # The tool may change what it gets, not what is logged.
        return replace(outcome, content=list(outcome.content), value=copied(outcome.value))

    def close(self) -> None:
        """The tool has returned or was stopped: what it left running is cancelled and answered; never awaits."""
        self._ended = True
        for call_id, scope in list(self._open.items()):
            scope.cancel()
            self._abandon(call_id)

    async def _run(self, call_id: str, name: str, arguments: dict[str, Any]) -> Outcome:
        tool = self._agent.tool(name)
        parent = self._parent
        if tool is None:
            return error_outcome("UNKNOWN_TOOL", f"there is no tool {name!r} this agent may use")
        if tool.exclusive and not _is_exclusive(parent.tool):
            return error_outcome(
                "NOT_STARTED", f"{name} runs alone: only an exclusive tool may call it; it did not run"
            )
        try:
            checked = tool.validate(arguments)
        except InvalidArguments as exc:
            return error_outcome(exc.code, str(exc), name=type(exc).__name__)
        nested = Call(call_id, name, checked, parent.turn, parent.step, tool, parent=parent.call_id)
        return await execute(self._agent, nested, native_task())

    def _next_id(self) -> str:
        parent = self._parent.call_id
        # c<turn>.<step>.<n> is the model's; each level below adds a part.
        if parent.count(".") - 2 >= MAX_DEPTH:
            raise ToolError(f"expected calls nested at most {MAX_DEPTH} deep, got one more in {parent}")
        calls = self._agent.session.state.calls
        if sum(call.parent is not None for call in calls.values()) >= MAX_CALLS:
            raise ToolError(f"expected at most {MAX_CALLS} nested calls in a step, got one more in {parent}")
        n = 1 + sum(call.parent == parent for call in calls.values())
        return f"{parent}.{n}"

    def _abandon(self, call_id: str) -> None:
        call = self._agent.session.state.calls.get(call_id)
        if call is not None and not call.resulted:
            settle(self._agent.session, call_id, error_outcome(call.code, WORDS[call.code]), 0)


def _is_exclusive(tool: Tool | None) -> bool:
    return tool is not None and tool.exclusive
