"""C1, C5: code that does not hear a cancel is named, keeps what it returns, and is not waited for."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import Place, nap, of, plugin, reasons, results

from checkrein import Agent, Ask, tool
from checkrein.agents import Approver
from checkrein.testing import ScriptedModel, call, text, wait
from checkrein_loop.generate import CLOSE_STREAM_S


def _deaf(seconds: float) -> Any:
    @tool
    async def deaf() -> str:
        """Shield."""
        with anyio.CancelScope(shield=True):
            await anyio.sleep(seconds)
        return "heard nothing"

    return deaf


def test_C1_deaf_code_is_named_after_a_second(run, scripted):
    """A tool that shields itself: its real result is kept when it comes, the turn is cancelled, a fault names it."""
    model = scripted(call("deaf"), "ok")

    async def main() -> Any:
        async with Agent(model, tools=[_deaf(5)]) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            began = anyio.current_time()
            agent.cancel()
            await anyio.sleep(1.5)
            assert [(f.plugin, f.hook) for f in of(agent, "plugin/fault")] == [("deaf", "cancel")]
            result = await receipt.result()
            assert 3 < anyio.current_time() - began < 5
            assert (await agent.run("on")).ok
            return agent, result

    agent, result = run(main)
    assert result.reason.kind == "cancelled"
    assert results(agent) == [("c1.1.1", "ok")]
    assert len(of(agent, "plugin/fault")) == 1


def test_C1_a_turn_that_heard_its_cancel_is_not_named_and_neither_is_the_next(run, scripted):
    """The look a second later finds another turn open, or the harness closed."""
    model = scripted(wait(9), [wait(5), "slow"], wait(9))

    async def cancelled(agent: Any) -> None:
        receipt = agent.send("go")
        await anyio.sleep(0.5)
        agent.cancel()
        assert (await receipt.result()).reason.kind == "cancelled"

    async def main() -> Any:
        async with Agent(model) as agent:
            await cancelled(agent)
            assert (await agent.run("at once")).ok
            await cancelled(agent)
        await anyio.sleep(3)
        return agent

    agent = run(main)
    assert reasons(agent) == ["cancelled", "completed", "cancelled"]
    assert not of(agent, "plugin/fault")


@pytest.mark.parametrize("hook", ["agent_request", "turn_continuation"])
def test_C1_a_deaf_hook_is_named_by_its_plugin(run, scripted, hook):
    """Not just 'a hook': whose."""
    model = scripted("one", "two", "three")

    async def deaf(agent: Any) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)

    async def main() -> Any:
        async with Agent(model, plugins=[plugin("acme", **{hook: deaf})]) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            agent.cancel()
            result = await receipt.result()
            return agent, result

    agent, result = run(main)
    assert result.reason.kind == "cancelled"
    assert [(f.plugin, f.hook) for f in of(agent, "plugin/fault")] == [("acme", "cancel")]


def test_C1_a_deaf_provider_is_named(run, scripted):
    """By its name."""
    model = scripted([wait(_shielded), text("late")], "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            agent.cancel()
            result = await receipt.result()
            return agent, result

    agent, result = run(main)
    assert result.reason.kind == "cancelled"
    assert [(f.plugin, f.hook) for f in of(agent, "plugin/fault")] == [("scripted", "cancel")]


@pytest.mark.parametrize("how", ["cancel", "dispose"])
def test_T4_a_stream_that_does_not_hear_a_cancel_is_no_error(run, scripted, how):
    """It brought nothing for longer than `limits.stream_idle_s`, but the turn was ended before: it says by whom."""
    model = scripted([wait(_shielded), text("late")])

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.harness.stream_idle_s = 2
            receipt = agent.send("go")
            await anyio.sleep(1)
            if how == "cancel":
                agent.cancel()
                await receipt.result()
            else:
                await agent.dispose()
            return agent

    assert reasons(run(main)) == ["cancelled" if how == "cancel" else "disposed"]


@pytest.mark.parametrize(("pause_s", "kind"), [(7.9, "completed"), (10.1, "error")])
def test_T4_a_stream_that_brings_nothing_ends_its_turn(run, scripted, pause_s, kind):
    """After `limits.stream_idle_s` and at most a quarter more; each piece begins it anew, however often."""
    model = scripted([*[wait(7.5), text("a")] * 3, wait(pause_s), text("b")], "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.harness.stream_idle_s = 8
            began = anyio.current_time()
            result = await agent.run("go")
            spent_s = anyio.current_time() - began
            assert (await agent.run("on")).ok
            return result, spent_s

    result, spent_s = run(main)
    assert result.reason.kind == kind
    if kind == "error":
        assert (result.reason.error, result.reason.code) == ("timeout", "IDLE")
        assert 22.5 + 8 <= spent_s <= 22.5 + 10
        assert "for 8 s" in result.reason.message


def test_C6_a_stream_that_does_not_close_is_left_and_named(run):
    """Its provider is told of in a fault, and the turn ends when the bound is over."""

    class Clings:
        def __aiter__(self) -> Clings:
            return self

        async def __anext__(self) -> Any:
            await anyio.sleep(60)

        async def aclose(self) -> None:
            await anyio.sleep(60)

    class Model(ScriptedModel):
        def stream(self, request: Any) -> Any:
            return Clings()

    async def main() -> Any:
        async with Agent(Model()) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            began = anyio.current_time()
            agent.cancel()
            await receipt.result()
            return agent, anyio.current_time() - began

    agent, spent_s = run(main)
    assert spent_s == pytest.approx(CLOSE_STREAM_S, abs=0.5)
    assert reasons(agent) == ["cancelled"]
    faults = of(agent, "plugin/fault")
    assert [(fault.plugin, fault.hook) for fault in faults] == [("scripted", "cancel"), ("scripted", "provider")]
    assert "did not close within 5 s" in faults[1].error.message


async def _shielded() -> None:
    with anyio.CancelScope(shield=True):
        await anyio.sleep(5)


def test_C1_a_tool_that_swallows_the_cancel_and_returns_keeps_its_result(run3, scripted):
    """It has a real result; the turn is cancelled all the same."""
    model = scripted([call("eats"), call("nap")], "ok")

    async def main() -> Any:
        place = Place()

        @tool
        async def eats() -> str:
            """Eat it."""
            try:
                await place.stay()
            except BaseException:  # noqa: S110
                pass
            return "ate"

        async with Agent(model, tools=[eats, nap]) as agent:
            receipt = agent.send("go")
            await place.reached.wait()
            agent.cancel()
            result = await receipt.result()
            return agent, result

    agent, result = run3(main)
    assert result.reason.kind == "cancelled"
    assert results(agent) == [("c1.1.1", "ok"), ("c1.1.2", "OUTCOME_UNKNOWN")]


def test_C5_disposal_does_not_wait_for_ever_for_deaf_code(run, scripted):
    """Closing the harness is bounded by close_timeout_s; the waiter gets its answer."""
    model = scripted(call("deaf"))

    async def main() -> Any:
        began = anyio.current_time()
        got: list[Any] = []
        async with anyio.create_task_group() as group:
            async with Agent(model, tools=[_deaf(1_000)]) as agent:

                async def waits() -> None:
                    try:
                        got.append((await agent.run("go")).reason.kind)
                    except Exception as exc:
                        got.append(type(exc).__name__)

                group.start_soon(waits)
                await anyio.sleep(1)
            closed_s = anyio.current_time() - began
        return got, closed_s

    got, closed_s = run(main)
    assert closed_s < 20
    assert got in (["disposed"], ["AgentDisposed"])


@pytest.mark.parametrize("who", ["guard", "approver", "store"])
def test_C2_no_tool_begins_behind_what_is_deaf_before_it(run, scripted, who):
    """The turn was cancelled while it was asked or flushed, in a shield: all may allow the call, it does not begin."""
    ran: list[str] = []

    @tool
    async def act() -> str:
        """Act at once."""
        ran.append("ran")
        return "done"

    async def shielded() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.5)

    class Allows:
        async def decide(self, agent: Any, approval: Any) -> str:
            await shielded()
            return "allowed_once"

    async def guard() -> Any:
        if who == "approver":
            return Ask("may it act?")
        return await shielded() if who == "guard" else None

    async def flush(gate: str) -> None:
        if who == "store" and gate == "call":
            await shielded()

    async def main() -> Any:
        probe = plugin(tools_guard=guard, session_flush=flush)
        async with Agent(scripted(call("act")), tools=[act], plugins=[probe]) as agent:
            agent.harness.provide(Approver, Allows())
            receipt = agent.send("go")
            await anyio.sleep(0.2)
            agent.cancel()
            await receipt.result()
            return agent

    agent = run(main)
    assert (reasons(agent), ran) == (["cancelled"], [])
    assert results(agent) == [("c1.1.1", "NOT_STARTED")]
    assert [event.outcome for event in of(agent, "approval/decided")] == ["allowed_once"] * (who == "approver")
