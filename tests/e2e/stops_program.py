"""The program of test_stops.py that uses the library: `python stops_program.py STOP BACKEND [told]`.

It stops its turn in one of the ways a program does: where its plugin stays, or when a byte on standard input tells it
to. Then it goes on with the same agent and prints the answer.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import e2e_stops as stops

from checkrein.agents import Approver
from checkrein.harness import Harness

PROMPT = "Work, please."
AGAIN = "And now?"


class Person:
    """Somebody who is asked and does not answer."""

    async def decide(self, agent: Any, approval: Any) -> str:
        await anyio.sleep_forever()
        return "denied"


async def timeout(agent: Any) -> None:
    """The caller's own time limit ends."""
    with anyio.move_on_after(math.inf) as scope:
        stops.reached = lambda: setattr(scope, "deadline", anyio.current_time())
        await agent.run(PROMPT)
    assert scope.cancelled_caught


async def sibling(agent: Any) -> None:
    """A task beside it fails."""
    event = anyio.Event()
    stops.reached = event.set

    async def failing() -> None:
        await event.wait()
        raise ValueError("the sibling failed")

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(failing)
            await agent.run(PROMPT)
    except BaseExceptionGroup as failures:
        assert [type(failure) for failure in failures.exceptions] == [ValueError], failures
    else:
        raise AssertionError("the sibling's failure is gone")


async def task_cancel(agent: Any) -> None:
    """asyncio's own way."""
    task = asyncio.ensure_future(agent.run(PROMPT))
    stops.reached = task.cancel
    try:
        await task
    except asyncio.CancelledError:
        assert task.cancelled()
    else:
        raise AssertionError("the cancellation is gone")


async def ctrl_c(agent: Any) -> None:
    """Ctrl-C, which whoever started this process sends when it is told."""
    await agent.run(PROMPT)


WAYS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "timeout": timeout,
    "sibling": sibling,
    "task_cancel": task_cancel,
    "ctrl_c": ctrl_c,
}


async def when_told() -> None:
    """Stop when whoever started this process says so."""
    await anyio.wait_readable(0)
    stops.reached()


async def main(stop: str, told: bool) -> None:
    """Stop, and go on."""
    async with Harness() as harness:
        harness.provide(Approver, Person())
        agent = harness.agents["main"]
        if told:
            async with anyio.create_task_group() as group:
                group.start_soon(when_told)
                await WAYS[stop](agent)
        else:
            await WAYS[stop](agent)
        print((await agent.run(AGAIN)).check().text)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], len(sys.argv) > 3, backend=sys.argv[2])
