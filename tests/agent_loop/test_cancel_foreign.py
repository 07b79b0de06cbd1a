"""C7: cancellations that are not ours."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from loopkit import balanced, nap, of, plugin, results

from checkrein import Agent, tool
from checkrein.testing import call, error, forever, text, wait

SELF = {
    "raises": lambda: _raise_cancelled(),
    "cancels itself": lambda: _cancel_task(True),
    "cancels itself and returns": lambda: _cancel_task(False),
}


async def _raise_cancelled() -> str:
    raise asyncio.CancelledError


async def _cancel_task(awaits: bool) -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    if awaits:
        await anyio.sleep(0)
    return "returned"


def run_asyncio(fn: Any) -> Any:
    """asyncio.CancelledError and current_task() are asyncio's own."""
    from checkrein.testing import run_virtual

    return run_virtual(fn, backend="asyncio")


@pytest.mark.parametrize("how", SELF)
@pytest.mark.parametrize("calls", [1, 3])
def test_C7_a_tool_that_cancels_its_own_task_is_a_failing_tool(scripted, how, calls):
    """In place and in a pool: OUTCOME_UNKNOWN (or what it returned), siblings keep theirs, the turn completes."""
    body = SELF[how]

    @tool
    async def bad() -> str:
        """Cancel."""
        return await body()

    asked = [call("bad"), *[call("nap", {"seconds": n}) for n in range(1, calls)]]
    model = scripted(asked, [wait(1), text("ok")], "again")

    async def main() -> Any:
        async with Agent(model, tools=[bad, nap], max_parallel_tool_calls=2) as agent:
            result = await agent.run("go")
            balanced(agent)
            assert (await agent.run("on")).ok
            return agent, result

    agent, result = run_asyncio(main)
    assert result.ok, result.reason
    codes = [code for _, code in results(agent)]
    assert codes == ["ok" if how.endswith("returns") else "OUTCOME_UNKNOWN", *["ok"] * (calls - 1)]
    assert [(f.plugin, f.hook) for f in of(agent, "plugin/fault")] == [("bad", "tool")]


def test_C7_trio_a_tool_that_raises_a_foreign_cancelled(scripted):
    """On trio a Cancelled can only come from a scope; one that ends inside the tool is the tool's own affair."""
    from checkrein.testing import run_virtual

    @tool
    async def bad() -> str:
        """Cancel a scope of its own."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep(1)
        return "left its own scope"

    model = scripted(call("bad"), "ok")

    async def main() -> Any:
        async with Agent(model, tools=[bad]) as agent:
            result = await agent.run("go")
            return agent, result

    agent, result = run_virtual(main, backend="trio")
    assert result.ok
    assert results(agent) == [("c1.1.1", "ok")]


@pytest.mark.parametrize("how", SELF)
@pytest.mark.parametrize("hook", ["agent_request", "step_result", "tools_guard", "turn_continuation", "request_error"])
def test_C7_a_hook_that_cancels_its_own_task_is_a_failing_hook(scripted, how, hook):
    """As any fault of that hook; the agent runs the next turn (case X06)."""
    body = SELF[how]

    async def bad(agent: Any) -> None:
        await body()

    first = [error("SERVER")] if hook == "request_error" else []
    model = scripted(*first, *[call("nap", {"seconds": 1})] * (hook != "agent_request"), forever([wait(1), text("ok")]))

    async def main() -> Any:
        async with Agent(model, tools=[nap], plugins=[plugin("acme", **{hook: bad})]) as agent:
            result = await agent.run("go")
            balanced(agent)
            agent.harness.plugins.unregister("acme")
            assert (await agent.run("on")).ok
            return agent, result

    agent, result = run_asyncio(main)
    assert result.reason.kind in ("completed", "error"), result.reason
    assert {f.plugin for f in of(agent, "plugin/fault")} == {"acme"}
    if hook in ("agent_request", "step_result", "turn_continuation"):
        assert (result.reason.error, result.reason.plugin) == ("plugin", "acme")
    elif hook == "tools_guard":
        assert results(agent) == [("c1.1.1", "REFUSED_BY_FAULT")]


@pytest.mark.parametrize("how", SELF)
def test_C7_a_provider_that_cancels_its_own_task_is_a_failing_provider(scripted, how):
    """Turn error, kind generate or stream; never `cancelled`, never a leak."""
    body = SELF[how]
    model = scripted([wait(body), text("said")], [wait(1), text("ok")])

    async def main() -> Any:
        async with Agent(model) as agent:
            result = await agent.run("go")
            balanced(agent)
            assert (await agent.run("on")).ok
            return agent, result

    agent, result = run_asyncio(main)
    assert result.reason.kind == ("completed" if how.endswith("returns") else "error"), result.reason
    assert {f.plugin for f in of(agent, "plugin/fault")} == {"scripted"}
