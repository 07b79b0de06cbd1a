"""Public bug reports of other harnesses about cancellation, parallel tools and limits, acted out.

Each test is named by the report's id; its docstring says what went wrong there. docs/cases.md lists them all.
"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from loopkit import (
    add,
    of,
    plugin,
    reasons,
    results,
    types,
    until,
)

from checkrein import Agent, tool
from checkrein.testing import call, forever, run_virtual


def test_case_X03_a_stream_that_is_left_runs_no_further_tool(run, scripted):
    """A half-consumed generator was dropped; the run went on to its end in a detached thread."""
    ran: list[int] = []

    @tool
    async def work(n: int) -> str:
        """Work."""
        ran.append(n)
        await anyio.sleep(10)
        return "x"

    model = scripted(*[call("work", {"n": n}) for n in range(5)], "end")

    async def main() -> Any:
        async with Agent(model, tools=[work]) as agent:
            async with agent.stream("go") as turn:
                async for item in turn:
                    if type(item).__name__ == "ToolCall":
                        await until(lambda: ran)
                        break
            await anyio.sleep(100)
            return agent

    agent = run(main)
    assert ran == [0]
    assert reasons(agent) == ["cancelled"]


@pytest.mark.parametrize("hook", ["agent_request", "turn_continuation", "tools_guard"])
def test_case_X06_a_plugin_that_cancels_the_task_it_runs_in(scripted, hook):
    """A transport's cancel scope leaked into the loop and killed it."""

    async def host(agent: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    model = scripted(*[call("add", {"a": 1, "b": 1})] * (hook != "agent_request"), forever("ok"))

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[plugin("mcp", **{hook: host})]) as agent:
            result = await agent.run("go")
            agent.harness.plugins.unregister("mcp")
            assert (await agent.run("on")).ok
            return agent, result

    agent, result = run_virtual(main, backend="asyncio")
    assert {e.plugin for e in of(agent, "plugin/fault")} == {"mcp"}
    if hook == "tools_guard":
        assert results(agent)[0] == ("c1.1.1", "REFUSED_BY_FAULT")
    else:
        assert (result.reason.error, result.reason.plugin) == ("plugin", "mcp")


@pytest.mark.parametrize("calls", [1, 3])
def test_case_X08_T03_a_tool_that_raises_cancelled_error_by_itself(scripted, calls):
    """It went through everything that catches Exception, and killed the siblings or the process."""

    @tool
    async def task(n: int) -> str:
        """Cancelled inside."""
        await asyncio.sleep(1)
        if n == 1:
            raise asyncio.CancelledError
        return f"done {n}"

    model = scripted([call("task", {"n": n + 1}) for n in range(calls)], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[task]) as agent:
            return agent, await agent.run("go")

    agent, result = run_virtual(main, backend="asyncio")
    assert result.ok
    assert [code for _, code in results(agent)] == ["OUTCOME_UNKNOWN", *["ok"] * (calls - 1)]


def test_case_T02_no_tool_outlives_its_turn(run, scripted):
    """One failed, the run unwound, and its sibling went on and wrote to the disk."""
    wrote: list[float] = []
    ended: list[float] = []

    @tool
    async def computer() -> str:
        """Fail."""
        raise ValueError("user error")

    @tool
    async def shell() -> str:
        """Write later."""
        await anyio.sleep(1)
        wrote.append(anyio.current_time())
        return "written"

    model = scripted([call("computer"), call("shell")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[computer, shell]) as agent:
            result = await agent.run("go")
            ended.append(anyio.current_time())
            await anyio.sleep(10)
            return agent, result

    agent, result = run(main)
    assert result.ok
    assert results(agent) == [("c1.1.1", "TOOL_ERROR"), ("c1.1.2", "ok")]
    assert len(wrote) == 1 and wrote[0] <= ended[0]


def test_case_T06_a_call_is_executed_at_most_once(run, scripted):
    """Delivering one of several results made the others run again."""
    ran: list[int] = []

    @tool
    async def render(n: int) -> str:
        """Render."""
        ran.append(n)
        await anyio.sleep(n * 10)
        return f"video {n}"

    model = scripted([call("render", {"n": n}) for n in (1, 2, 3)], "ok", "and on")

    async def main() -> Any:
        async with Agent(model, tools=[render]) as agent:
            receipt = agent.send("go")
            await anyio.sleep(15)
            agent.steer("how far are you?")
            await receipt.result()
            await agent.run("on")
            return agent

    agent = run(main)
    assert sorted(ran) == [1, 2, 3]
    starts = [e.call_id for e in of(agent, "tool/start")]
    assert sorted(starts) == ["c1.1.1", "c1.1.2", "c1.1.3"]


def test_case_L05_the_step_limit_is_named_keeps_results_and_goes_on(run, scripted):
    """The cap was a quiet `break`, and the run a success."""
    model = scripted(*[call("add", {"a": n, "b": 0}) for n in range(3)], "finished")

    async def main() -> Any:
        async with Agent(model, tools=[add], max_steps=2) as agent:
            first = await agent.run("go")
            return agent, first, await agent.run("continue")

    agent, first, second = run(main)
    assert (first.reason.kind, first.reason.max_steps, first.ok) == ("step_limit", 2, False)
    assert results(agent)[:2] == [("c1.1.1", "ok"), ("c1.2.1", "ok")]
    assert second.reason.kind == "completed"
    assert types(agent)[-1] == "turn/end"
