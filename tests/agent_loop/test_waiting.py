"""C8: stops from outside take the path of cancel, and who waits leaves in time."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from loopkit import add, nap, of, plugin, reasons, requested, said, until

from checkrein import Agent, tool
from checkrein.testing import call, text, wait
from checkrein.testing.script import hang


@pytest.mark.parametrize("how", ["scope", "move_on_after", "task group"])
def test_C8_a_cancelled_waiter_takes_the_path_of_cancel(run, scripted, how):
    """Its turn is cancelled, cause task, and it leaves behind turn/end."""
    model = scripted(hang(), "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            ended_when_left: list[bool] = []

            async def waits() -> None:
                try:
                    await agent.run("go")
                finally:
                    ended_when_left.append(bool(of(agent, "turn/end")))

            if how == "scope":
                async with anyio.create_task_group() as group:
                    group.start_soon(waits)
                    await anyio.sleep(1)
                    group.cancel_scope.cancel()
            elif how == "move_on_after":
                with anyio.move_on_after(2):
                    await waits()
            else:
                with pytest.raises(ExceptionGroup) as caught:
                    async with anyio.create_task_group() as group:
                        group.start_soon(waits)
                        await anyio.sleep(1)
                        raise ValueError("a sibling fails")
                assert [type(exc) for exc in caught.value.exceptions] == [ValueError]
            assert ended_when_left == [True]
            assert (await agent.run("on")).ok
            return of(agent, "turn/end")[0].reason

    reason = run(main)
    assert (reason.kind, reason.cause.kind) == ("cancelled", "task")


def test_C8_a_native_task_cancel_does_the_same(scripted):
    """asyncio: task.cancel() of the task that awaits run(); it ends as cancelled."""
    from checkrein.testing import run_virtual

    model = scripted(hang(), "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            task = asyncio.get_running_loop().create_task(agent.run("go"))
            await anyio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
            assert reasons(agent) == ["cancelled"]
            assert (await agent.run("on")).ok
            return of(agent, "turn/end")[0].reason

    assert run_virtual(main, backend="asyncio").cause.kind == "task"


def test_C8_wait_for_raises_timeout_behind_turn_end(scripted):
    """asyncio.wait_for: TimeoutError, and the agent is free."""
    from checkrein.testing import run_virtual

    model = scripted(hang(), "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(agent.run("go"), 2)
            assert reasons(agent) == ["cancelled"]
            return await agent.run("on")

    assert run_virtual(main, backend="asyncio").ok


def test_C8_a_cancelled_waiters_pending_input_is_withdrawn(run, scripted):
    """It never became a turn; the running turn of somebody else goes on."""
    model = scripted([wait(10), text("1")])

    async def main() -> Any:
        async with Agent(model) as agent:
            first = agent.send("go")
            await anyio.sleep(1)
            with anyio.move_on_after(2):
                await agent.run("never")
            assert (await first.result()).ok
            await agent.idle()
            return agent

    agent = run(main)
    assert said(agent) == ["go"]
    assert "waiter" in of(agent, "inbox/discarded")[0].reason


@pytest.mark.parametrize("place", ["pending", "in its turn"])
def test_C8_a_cancelled_waiter_leaves_the_input_to_another_one(run, scripted, place):
    """Two wait for one receipt: the first to be cancelled just goes, the last one takes the path of cancel."""
    model = scripted([wait(5), text("1")], [wait(5), text("2")], hang())

    async def main() -> Any:
        async with Agent(model) as agent:
            if place == "pending":
                agent.send("before")
                await anyio.sleep(1)
            receipt = agent.send("go")
            results: list[Any] = []

            async def stays() -> None:
                results.append(await receipt.result())

            async with anyio.create_task_group() as group:
                group.start_soon(stays)
                with anyio.move_on_after(1):
                    await receipt.result()
                assert not of(agent, "inbox/discarded") and agent.cause is None
            if place == "pending":
                receipt = agent.send("and again")
                async with anyio.create_task_group() as both:
                    both.start_soon(receipt.result)
                    both.start_soon(receipt.result)
                    await anyio.sleep(1)
                    both.cancel_scope.cancel()
            return agent, results[0]

    agent, result = run(main)
    assert result.ok
    assert reasons(agent) == (["completed", "completed", "cancelled"] if place == "pending" else ["completed"])


def test_C8_a_waiter_leaves_a_deaf_turn_after_the_close_timeout(run, scripted):
    """Shielded, at most close_timeout_s (5)."""
    model = scripted(call("deaf"), "ok")

    @tool
    async def deaf() -> str:
        """Shield."""
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)
        return "x"

    async def main() -> float:
        async with Agent(model, tools=[deaf]) as agent:
            began = anyio.current_time()
            with anyio.move_on_after(1):
                await agent.run("go")
            left = anyio.current_time() - began
            await agent.idle()
            return left

    assert 5.5 < run(main) < 7


def test_C8_a_stream_left_early_on_a_deaf_turn_leaves_in_time(run, scripted):
    """The same bound for the block of a stream."""
    model = scripted(call("deaf"), "ok")

    @tool
    async def deaf() -> str:
        """Shield."""
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)
        return "x"

    async def main() -> float:
        async with Agent(model, tools=[deaf]) as agent:
            began = anyio.current_time()
            async with agent.stream("go"):
                await anyio.sleep(1)
            left = anyio.current_time() - began
            await agent.idle()
            return left

    assert 5.5 < run(main) < 7


@pytest.mark.parametrize(
    ("first", "second", "given_up", "ends"),
    [
        ("send", "send", "first", "completed"),
        ("send", "send", "both", "cancelled"),
        ("send", "steer", "second", "completed"),
        ("send", "steer", "first", "cancelled"),
        ("run", "steer", "second", "completed"),
        ("run", "steer", "first", "cancelled"),
    ],
)
def test_C8_a_cancelled_waiter_leaves_the_turn_to_those_it_was_begun_for(run, scripted, first, second, given_up, ends):
    """Two inputs in one turn: one who gave up does not end it for another; who only steered it, never does."""
    model = scripted([wait(5), call("add", {"a": 1, "b": 1})], [wait(5), text("2")])

    async def main() -> Any:
        async with Agent(model, tools=[add], queue_mode="all") as agent:
            async with anyio.create_task_group() as group:
                scopes = {"first": anyio.CancelScope(), "second": anyio.CancelScope()}
                receipts = {"first": None if first == "run" else agent.send("a")}
                if second == "send":
                    receipts["second"] = agent.send("b")

                async def waits(who: str) -> None:
                    with scopes[who]:
                        receipt = receipts[who]
                        await (agent.run("a") if receipt is None else receipt.result())

                group.start_soon(waits, "first")
                await anyio.sleep(1)
                if second == "steer":
                    receipts["second"] = agent.steer("b")
                group.start_soon(waits, "second")
                await anyio.sleep(6)
                for who in scopes if given_up == "both" else [given_up]:
                    scopes[who].cancel()
            await agent.idle()
            return agent

    agent = run(main)
    assert reasons(agent) == [ends]
    assert len(said(agent)) + len(of(agent, "steering/message")) == 2


def test_C8_a_stream_left_early_waits_for_the_end_also_beside_another_waiter(run, scripted):
    """It has cancelled the turn, so it leaves behind its end, whoever else waits."""
    model = scripted(call("slow"), "ok")

    @tool
    async def slow() -> str:
        """Take two seconds to stop."""
        try:
            await anyio.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(2)
        return "x"

    async def main() -> Any:
        async with Agent(model, tools=[slow]) as agent, anyio.create_task_group() as group:
            async with agent.stream("go") as turn:
                group.start_soon(turn.receipt.result)
                await anyio.sleep(1)
            return list(reasons(agent))

    assert run(main) == ["cancelled"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_C8_sigint_while_anyio_run_waits(scripted, backend):
    """The program's Ctrl-C: the turn is closed, KeyboardInterrupt leaves anyio.run, nothing else."""
    import signal

    model = scripted(hang())
    seen: list[Any] = []

    async def main() -> None:
        async with Agent(model) as agent:
            seen.append(agent)

            async def strike() -> None:
                await requested(agent)
                signal.raise_signal(signal.SIGINT)

            async with anyio.create_task_group() as group:
                group.start_soon(strike)
                await agent.run("go")

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        anyio.run(main, backend=backend)
    exc: BaseException = caught.value
    while isinstance(exc, BaseExceptionGroup):  # the program's own task group may wrap it
        exc = exc.exceptions[0]
    assert isinstance(exc, KeyboardInterrupt)
    end = of(seen[0], "turn/end")
    assert len(end) == 1
    assert end[0].reason.kind in ("cancelled", "disposed")


def test_C8_the_loop_ends_without_the_harness_being_closed(scripted):
    """Shutdown of the loop is a stop from outside too: the log is balanced."""
    from checkrein.testing import run_virtual

    for backend in ("asyncio", "trio"):
        model = scripted([call("nap"), call("nap")])
        seen: list[Any] = []

        async def main(model: Any = model, seen: list[Any] = seen) -> None:
            maker = Agent(model, tools=[nap])
            agent = await maker.__aenter__()
            seen.append((agent, maker))
            agent.send("go")
            await anyio.sleep(1)

        run_virtual(main, backend=backend)
        agent = seen[0][0]
        assert len(of(agent, "turn/end")) == 1, backend
        assert [e.call_id for e in of(agent, "tool/call")] == [e.call_id for e in of(agent, "tool/result")]


@pytest.mark.parametrize("how", ["run", "stream"])
def test_C8_a_waiter_cancelled_while_its_turn_is_flushed_cancels_no_other(run, scripted, how):
    """Its turn has ended; the next one is somebody else's, and is neither cancelled nor parked."""
    model = scripted("mine", "theirs")

    async def flush(gate: str) -> None:
        if gate == "turn_end":
            await anyio.sleep(2)

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(session_flush=flush)]) as agent:

            async def waits() -> None:
                with anyio.move_on_after(1) as scope:
                    if how == "run":
                        await agent.run("mine")
                    else:
                        async with agent.stream("mine"):
                            await anyio.sleep_forever()
                assert scope.cancelled_caught

            async with anyio.create_task_group() as group:
                group.start_soon(waits)
                await until(lambda: of(agent, "turn/end"))
                other = agent.send("theirs")
            await agent.idle()
            assert other.status.turn == 2
            return await other.result()

    result = run(main)
    assert (result.reason.kind, result.text) == ("completed", "theirs")
