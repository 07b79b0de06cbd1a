"""An agent whose model and tools never suspend leaves the others their turn: in steps, in chunks and between turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest

from checkrein import Agent, tool
from checkrein.chunks import CallChunk, Chunk, FinishChunk, TextChunk
from checkrein_loop.generate import UNBROKEN_CHUNKS
from checkrein_loop.loop import UNBROKEN_STEPS


class Eager:
    """A model that answers at once, always: `steps` answers with a call, then one without."""

    name = "eager"

    def __init__(self, steps: int = 0, chunks: int = 1) -> None:
        self.steps, self.chunks, self.asked = steps, chunks, 0

    async def stream(self, request: Any) -> AsyncIterator[Chunk]:
        self.asked += 1
        for _ in range(self.chunks):
            yield TextChunk(0, "x")
        if self.asked <= self.steps:
            yield CallChunk(1, f"call{self.asked}", "now", "{}")
        yield FinishChunk("tool_calls" if self.asked <= self.steps else "stop")

    def missing(self) -> str | None:
        return None

    def default_model(self) -> str:
        return "eager"

    def window_tokens(self, model: str) -> int | None:
        return None


@tool
async def now() -> str:
    """What it says."""
    return "now"


async def one_turn(agent: Agent) -> None:
    await agent.run("go")


async def many_turns(agent: Agent) -> None:
    for n in range(10 * UNBROKEN_STEPS):
        agent.send(f"message {n}")
    await agent.idle()


@pytest.mark.parametrize(
    ("model", "work"),
    [
        (lambda: Eager(steps=10 * UNBROKEN_STEPS), one_turn),
        (lambda: Eager(chunks=10 * UNBROKEN_CHUNKS), one_turn),
        (Eager, many_turns),
    ],
    ids=["steps", "chunks", "turns"],
)
def test_a_busy_agent_leaves_the_others_their_turn(
    run: Callable[..., Any], model: Callable[[], Eager], work: Callable[[Agent], Awaitable[None]]
) -> None:
    """A task beside it runs about once every so many steps or chunks, though nothing in the agent ever waits."""
    ticks = 0

    async def beside() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0)
            ticks += 1

    async def main() -> None:
        async with (
            Agent(model(), tools=[now], max_steps=0, queue_mode="one", inbox_max=1_000) as agent,
            anyio.create_task_group() as group,
        ):
            group.start_soon(beside)
            await work(agent)
            group.cancel_scope.cancel()

    run(main)
    assert ticks >= 9
