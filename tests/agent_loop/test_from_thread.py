"""C12: `harness.from_thread`, where the loop does not get to it or what it is asked to call does not return at once."""

from __future__ import annotations

import threading
from typing import Any

import anyio
from loopkit import of

from checkrein import Agent
from checkrein.testing import hold


def test_C12_from_thread_that_gave_up_is_not_run_later(run, scripted):
    """Who is told that the loop did not get to it sends again: the input is not accepted twice."""
    model = scripted("ok")
    caught: list[BaseException] = []

    async def main() -> Any:
        async with Agent(model) as agent:

            def elsewhere() -> None:
                try:
                    agent.harness.from_thread(agent.send, "go", timeout_s=0.01)
                except BaseException as exc:
                    caught.append(exc)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()  # it holds the loop
            await anyio.sleep(1)
            return of(agent, "inbox/accepted")

    assert run(main) == []
    assert isinstance(caught[0], TimeoutError)
    assert "LoopAgent.send within 0.01 s" in str(caught[0]), "it said nothing"


def test_C12_from_thread_may_wait_for_ever(run, scripted):
    """A timeout no lock can wait for raised OverflowError, and the function was called all the same."""
    got: list[Any] = []

    async def main() -> Any:
        async with Agent(scripted()) as agent:

            def elsewhere() -> None:
                try:
                    got.append(agent.harness.from_thread(lambda: agent.id, timeout_s=float("inf")))
                except BaseException as exc:
                    got.append(exc)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join(0.05)  # it holds the loop until the other one waits
            with hold():
                while thread.is_alive():
                    await anyio.sleep(0.001)
            return agent.id

    assert [run(main)] == got


def test_C12_from_thread_refuses_what_has_to_be_awaited(run, scripted):
    """`from_thread(agent.run, ...)` would hand out a coroutine that nobody runs."""
    caught: list[BaseException] = []

    async def main() -> Any:
        async with Agent(scripted()) as agent:

            def elsewhere() -> None:
                try:
                    agent.harness.from_thread(agent.run, "go")
                except BaseException as exc:
                    caught.append(exc)

            thread = threading.Thread(target=elsewhere)
            with hold():
                thread.start()
                while thread.is_alive():
                    await anyio.sleep(0.001)
            return of(agent, "inbox/accepted")

    assert run(main) == []
    assert isinstance(caught[0], TypeError) and "LoopAgent.run" in str(caught[0])
