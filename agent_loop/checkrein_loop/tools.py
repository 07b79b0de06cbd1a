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
from checkrein.events import ToolCalled
from checkrein.messages import CallBlock
from checkrein.nearest import did_you_mean
from checkrein.owner import absorb, native_task, ours
from checkrein.settling import settle
from checkrein.text import preview

from .execute import execute, failed

if TYPE_CHECKING:
    from .agent import LoopAgent

__all__ = ["run_calls"]


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
            ToolCalled(
                turn=turn,
                step=step,
                call_id=block.call_id,
                name=block.name,
                provider_call_id=provider_ids.get(block.call_id),
            )
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
        settle(agent.session, item.call_id, agent.capped(outcome), int((perf_counter() - began) * 1000))
    except KeyboardInterrupt as exc:
        agent.hold(exc)  # the turn is being closed: what is unanswered is answered there
