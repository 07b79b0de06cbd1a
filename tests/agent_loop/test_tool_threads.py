"""X3, X4: threads, and timeouts; with the real loop under virtual time."""

from __future__ import annotations

import contextvars
import threading
from math import isinf
from typing import Any

import anyio
import pytest
from callkit import Meter, codes, nap, of, play, text_of

from checkrein import Harness, hookimpl, threads, tool
from checkrein import events as ev
from checkrein.agents import AgentSpec
from checkrein.config.types import HarnessConfig, LimitsConfig
from checkrein.errors import ToolError
from checkrein.testing import ScriptedModel, call

# --- X3: threads --------------------------------------------------------------------------------------------


def test_case_T04_the_loop_stays_alive_while_sync_tools_block(run):
    """A heartbeat ticks while two threads wait for each other, and a steer comes in meanwhile."""
    go = threading.Event()
    beats: list[int] = []

    @tool
    def slow() -> str:
        """Block."""
        assert go.wait(20)
        return str(threading.get_ident())

    async def act(agent: Any) -> Any:
        receipt = agent.send("go")
        while not any(type(e) is ev.ToolStarted for e in agent.session.events):
            await anyio.sleep(0)
        for _ in range(20):
            await anyio.sleep(0)
            beats.append(1)
        agent.steer("hurry")
        go.set()
        return await receipt.result()

    result, events, _ = play(run, [call("slow"), call("slow")], "done", tools=[slow], act=act)
    assert result.ok and len(beats) == 20
    names = {text_of(e) for e in (*of(events, ev.ToolEnded), *of(events, ev.ToolResulted)) if e.content}
    assert names and str(threading.get_ident()) not in names
    assert of(events, ev.SteeringInput)


def test_case_T07_sync_tools_honour_the_limit(run):
    lock = threading.Lock()
    running: list[int] = [0, 0]
    barrier = threading.Barrier(3)

    @tool
    def sync(meet: bool) -> None:
        """Count who is here."""
        with lock:
            running[0] += 1
            running[1] = max(running)
        if meet:
            barrier.wait(10)
        with lock:
            running[0] -= 1

    play(run, [call("sync", {"meet": True})] * 3, "done", tools=[sync], max_parallel_tool_calls=3)
    assert running == [0, 3]
    running[:] = [0, 0]
    play(run, [call("sync", {"meet": False})] * 3, "done", tools=[sync], max_parallel_tool_calls=1)
    assert running == [0, 1]


def test_X3_context_variables_reach_the_thread(run):
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    class Sets:
        @hookimpl
        async def tools_execute(self, call: Any, proceed: Any) -> Any:
            variable.set("set by a plugin")
            return await proceed(call)

    @tool(read_only=True)
    def reads() -> str:
        """Read it."""
        return variable.get()

    _, events, _ = play(run, call("reads"), "done", tools=[reads], plugins=[Sets()])
    assert text_of(of(events, ev.ToolResulted)[0]) == "set by a plugin"


def test_X3_a_full_pool_answers_with_an_error_and_the_turn_goes_on(run):
    """One thread, kept by a call that was given up: the next call waits for it until its own timeout."""
    go = threading.Event()

    @tool(timeout_s=1)
    def stuck() -> None:
        """Block."""
        go.wait(20)

    async def main() -> Any:
        config = HarnessConfig(limits=LimitsConfig(tool_threads=1))
        harness = Harness(
            tools=[stuck],
            providers=[ScriptedModel(call("stuck"), call("stuck"), "done")],
            config=config,
            found=(),
        )
        harness.specs = [AgentSpec(model="scripted:x")]
        async with harness:
            agent = harness.agents["main"]
            from checkrein.testing import hold

            with hold():
                result = await agent.run("go")
            assert len(harness.threads.given_up) == 1
            go.set()
            return result, list(agent.session.events)

    result, events = run(main)
    assert result.ok
    assert [code for _, code in codes(events)] == ["TIMEOUT", "TIMEOUT"]


def test_X3_an_async_tool_that_holds_the_loop_is_reported(run, monkeypatch):
    """By the machine's time; under virtual time, where the machine would decide what a test sees, it is not."""

    async def act(agent: Any) -> Any:
        assert isinf(threads.BLOCKED_S)
        with monkeypatch.context() as patch:
            patch.setattr(threads, "BLOCKED_S", -1.0)  # every step of the tool counts as too long
            return await agent.run("go")

    @tool(read_only=True)
    async def blocks() -> str:
        """Compute for long."""
        return "ok"

    result, events, _ = play(run, call("blocks"), "done", tools=[blocks], act=act)
    assert result.ok and codes(events) == [("c1.1.1", "ok")]
    assert threads.BLOCKED_S == 0.1
    fault = of(events, ev.PluginFaulted)[0]
    assert (fault.plugin, fault.hook) == ("blocks", "tool") and "held the event loop" in fault.error.message


def test_X3_an_async_tool_that_waits_is_not_reported(run):
    meter = Meter()
    _, events, _ = play(run, nap("a", 3600), "done", tools=meter.tools())
    assert not of(events, ev.PluginFaulted)


# --- X4: timeouts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("effect", "may"), [("read_only", False), ("idempotent", True), ("effectful", True)])
def test_X4_a_timeout_is_a_result_that_says_what_may_have_run(run, effect, may):
    options = {} if effect == "effectful" else {effect: True}

    @tool(timeout_s=5, **options)
    async def slow() -> None:
        """Sleep."""
        await anyio.sleep(100)

    result, events, took = play(run, call("slow"), "done", tools=[slow])
    assert result.ok and took == pytest.approx(5, abs=0.01)
    assert codes(events) == [("c1.1.1", "TIMEOUT")]
    assert ("may have run" in text_of(of(events, ev.ToolResulted)[0])) is may


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (ConnectionError("pool is gone"), "TIMEOUT", "stopped; it may have run, at least in part; then it raised Conn"),
        (ToolError("rolled back", code="ROLLED_BACK"), "ROLLED_BACK", "rolled back"),
    ],
)
def test_X4_a_tool_that_raises_because_it_was_stopped_has_timed_out(run, raised, code, said):
    """As clients and clean-up code do; the model read of a lost connection and nothing of the timeout."""

    @tool(timeout_s=5)
    async def slow() -> None:
        """Sleep."""
        try:
            await anyio.sleep(100)
        finally:
            raise raised

    result, events, _ = play(run, call("slow"), "done", tools=[slow])
    assert result.ok and codes(events) == [("c1.1.1", code)]
    assert said in text_of(of(events, ev.ToolResulted)[0])


def test_X4_a_timeout_leaves_the_siblings(run):
    meter = Meter()

    @tool(timeout_s=1)
    async def slow() -> None:
        """Sleep."""
        await anyio.sleep(100)

    _, events, _ = play(run, [call("slow"), nap("a", 3)], "done", tools=[slow, *meter.tools()])
    assert codes(events) == [("c1.1.1", "TIMEOUT"), ("c1.1.2", "ok")]


def test_X4_a_tool_may_have_timeouts_of_its_own(run):
    @tool(timeout_s=50, read_only=True)
    async def own() -> str:
        """Give up early."""
        with anyio.move_on_after(1):
            await anyio.sleep(10)
        with pytest.raises(TimeoutError):
            with anyio.fail_after(1):
                await anyio.sleep(10)
        return "moved on"

    _, events, took = play(run, call("own"), "done", tools=[own])
    assert codes(events) == [("c1.1.1", "ok")] and took == pytest.approx(2, abs=0.01)


def test_X4_the_clock_of_a_timeout_starts_with_the_tool_not_with_its_hooks(run):
    class Slow:
        @hookimpl
        async def tools_execute(self, call: Any, proceed: Any) -> Any:
            await anyio.sleep(30)
            return await proceed(call)

    @tool(timeout_s=5, read_only=True)
    async def quick() -> str:
        """Sleep."""
        await anyio.sleep(4)
        return "ok"

    _, events, _ = play(run, call("quick"), "done", tools=[quick], plugins=[Slow()])
    assert codes(events) == [("c1.1.1", "ok")]
