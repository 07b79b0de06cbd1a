"""How long one agent that floods or blocks makes another wait: `python benchmarks/fairness.py`.

See docs/benchmarks.md.
Beside each busy agent runs a task that only ticks; printed is the longest gap between two ticks, in ms. The goal is
20 ms on a quiet machine.
"""

import time
from itertools import count

import anyio

from checkrein import Agent, tool
from checkrein.chunks import CallChunk, FinishChunk, TextChunk


class Eager:
    """A model that answers at once: `steps` answers with calls of a tool, then one without."""

    name = "eager"

    def __init__(self, steps=0, chunks=1, tool="now", calls=1):
        self.steps, self.chunks, self.tool, self.calls = steps, chunks, tool, calls
        self.asked = count(1)

    async def stream(self, request):
        asked = next(self.asked)
        for _ in range(self.chunks):
            yield TextChunk(0, "x")
        calls = self.calls if asked <= self.steps else 0
        for n in range(1, calls + 1):
            yield CallChunk(n, f"call{asked}.{n}", self.tool, "{}")
        yield FinishChunk("tool_calls" if calls else "stop")

    def missing(self):
        return None

    def default_model(self):
        return "eager"

    def window_tokens(self, model):
        return None


@tool
async def now() -> str:
    """Answer at once."""
    return "now"


@tool
def block() -> str:
    """Block a thread, as a slow library does."""
    time.sleep(0.2)
    return "done"


@tool
def spin() -> str:
    """Use a processor, as a calculation does."""
    end = time.perf_counter() + 0.2
    while time.perf_counter() < end:
        pass
    return "done"


async def longest_gap_ms(model, turns):
    worst, ready = 0.0, anyio.Event()

    async def tick():
        nonlocal worst
        last = time.perf_counter()
        while True:
            await anyio.sleep(0)
            ready.set()
            worst, last = max(worst, time.perf_counter() - last), time.perf_counter()

    async with Agent(model, tools=[now, block, spin], max_steps=0, queue_mode="one", inbox_max=turns + 1) as agent:
        for n in range(turns):
            agent.send(f"message {n}")
        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            await ready.wait()
            worst = 0.0
            await agent.idle()
            group.cancel_scope.cancel()
    return worst * 1000


async def main():
    rows = {
        "2,000 steps, nothing suspends": (Eager(steps=2_000), 1),
        "200,000 chunks, nothing suspends": (Eager(chunks=200_000), 1),
        "1,000 queued turns, nothing suspends": (Eager(), 1_000),
        "50 calls at once of a tool that blocks its thread 200 ms": (Eager(steps=3, tool="block", calls=50), 1),
        "4 calls at once of a tool that computes 200 ms": (Eager(steps=3, tool="spin", calls=4), 1),
    }
    for name, (model, turns) in rows.items():
        print(f"{await longest_gap_ms(model, turns):7.1f} ms  {name}")


anyio.run(main)
