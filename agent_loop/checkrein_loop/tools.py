"""The calls of a step: all are logged, run at once up to a limit, and answered in the model's order (X1-X6).

run_calls -> pool -> run_call -> (tools_execute ⊃ tools_guard ⊃ the tool). A worker never raises
anything but our own cancellation, so siblings keep their results and no ExceptionGroup can arise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct

from checkrein.calls import Call, Outcome, error_outcome
from checkrein.errors import InvalidArguments
from checkrein.events import ToolCalled, ToolEnded, ToolResulted
from checkrein.messages import CallBlock
from checkrein.nearest import did_you_mean
from checkrein.owner import absorb, native_task, ours
from checkrein.text import preview

from .execute import execute, failed

if TYPE_CHECKING:
    from .agent import LoopAgent

__all__ = ["run_calls", "settle"]


class Item(Struct):
    """A call of the answer: either it can run, or its outcome is known already."""

    call_id: str
    call: Call | None
    outcome: Outcome | None


async def run_calls(
    agent: LoopAgent, turn: int, step: int, blocks: Sequence[CallBlock], provider_ids: dict[str, str]
) -> None:
    """Run a step's calls; when this returns, each has its result."""
    for block in blocks:
        agent.session.append(
            ToolCalled,
            turn=turn,
            step=step,
            call_id=block.call_id,
            name=block.name,
            provider_call_id=provider_ids.get(block.call_id),
        )
    items = [prepare_call(agent, turn, step, block) for block in blocks]
    if len(items) == 1:
        agent.checkpoint()
        await run_call(agent, items[0], agent.task)
    else:
        for segment in segments(items):
            await pool(agent, segment)
    agent.checkpoint()


def prepare_call(agent: LoopAgent, turn: int, step: int, block: CallBlock) -> Item:
    """A call runs only if its tool is known and its arguments fit; else the model is told what is wrong (M8)."""
    tool = agent.tool(block.name)
    if tool is None:
        names = [tool.name for tool in agent.tools()]
        text = (
            f"there is no tool {preview(block.name, 80)!r}; expected one of"
            f" {', '.join(names) or '(none)'}{did_you_mean(block.name, names)}"
        )
        return Item(block.call_id, None, error_outcome("UNKNOWN_TOOL", text))
    try:
        arguments = tool.decode(block.arguments)
    except InvalidArguments as exc:
        return Item(block.call_id, None, error_outcome(exc.code, str(exc), name=type(exc).__name__))
    return Item(block.call_id, Call(block.call_id, block.name, arguments, turn, step, tool), None)


def segments(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Cut the calls where an exclusive tool has to run alone."""
    together: list[Item] = []
    for item in items:
        if item.call is not None and item.call.tool is not None and item.call.tool.exclusive:
            if together:
                yield together
            yield [item]
            together = []
        else:
            together.append(item)
    if together:
        yield together


async def pool(agent: LoopAgent, items: Sequence[Item]) -> None:
    """Run calls in a rolling pool; workers pull from one queue."""
    queue = iter(items)

    async def work() -> None:
        task = native_task()
        for item in queue:
            if agent.cancelled:
                return  # the scope may never be heard where nothing suspends; the caller looks again
            await run_call(agent, item, task)

    workers = min(agent.spec.max_parallel_tool_calls, len(items))
    if workers <= 1:
        await work()
        return
    async with anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(work)


async def run_call(agent: LoopAgent, item: Item, task: Any) -> None:
    """Run one call and settle it. Everything but our cancellation ends here (C10, X2)."""
    outcome = item.outcome
    began = perf_counter()
    try:
        if outcome is None:
            assert item.call is not None
            try:
                outcome = await execute(agent, item.call, task)
            except KeyboardInterrupt:
                raise
            except BaseException as exc:
                if ours(exc):
                    raise
                absorb()
                outcome = failed(exc)
        settle(agent, item.call_id, outcome, int((perf_counter() - began) * 1000))
    except KeyboardInterrupt as exc:
        agent.hold(exc)  # the turn is being closed: what is unanswered is answered there


def settle(agent: LoopAgent, call_id: str, outcome: Outcome, duration_ms: int) -> None:
    """Log what a call came to: as its result if it is due, else as `tool/end`, and then what became due (X1)."""
    session, state = agent.session, agent.session.state
    call = state.calls.get(call_id)
    if call is None or call.resulted or call.end is not None:
        return  # closed meanwhile
    outcome = agent.capped(outcome)
    fields = {
        "turn": state.turn,
        "step": state.step,
        "content": outcome.content,
        "is_error": outcome.is_error,
        "error": outcome.error,
        "value": outcome.value,
        "decision": outcome.decision,
        "by": outcome.by,
        "duration_ms": duration_ms,
        "cleaned": outcome.cleaned,
    }
    if state.due and state.due[0] != call_id:
        session.append(ToolEnded, call_id=call_id, **fields)
        return
    session.append(ToolResulted, call_id=call_id, **fields)
    while state.due and (end := state.calls[state.due[0]].end) is not None:
        session.append(
            ToolResulted,
            turn=state.turn,
            step=state.step,
            call_id=end.call_id,
            end=end.seq,
            is_error=end.is_error,
            error=end.error,
            decision=end.decision,
            by=end.by,
            duration_ms=end.duration_ms,
        )
