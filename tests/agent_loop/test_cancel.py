"""C1: cancelled at every await, once or twice, and at every place of a turn in between."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import Place, add, balanced, nap, of, plugin, results, spin

from checkrein import Agent, tool
from checkrein.agents import Approver
from checkrein.decisions import Ask, Retry
from checkrein.testing import call, error, finish, forever, text, thinking, wait
from checkrein.testing.script import hang


def _tool_place(place: Place) -> Any:
    @tool
    async def stay() -> str:
        """Stay."""
        await place.stay()
        return "never"

    return stay


async def _execute(agent: Any, call: Any, proceed: Any, place: Place) -> Any:
    await place.stay()


def _at(where: str, place: Place) -> dict[str, Any]:
    """The model's first turn, tools and plugins that make a turn stay at a place."""
    stay = place.stay
    ask = [call("add", {"a": 1, "b": 1}), call("stay")]
    made: dict[str, Any] = {"turn": ask, "plugins": [], "tools": [add, _tool_place(place)]}
    waits = wait(stay)
    if where == "request":
        made["turn"] = [waits, text("never")]
    elif where == "chunks":
        made["turn"] = [thinking("hm"), text("half"), waits, text(" never")]
    elif where == "arguments":
        made["turn"] = [text("I call"), call("add", raw='{"a": 1,'), waits]
    elif where == "after the last chunk":
        made["turn"] = [text("all of it"), finish("stop"), waits]
    elif where == "tools_execute":
        made["plugins"] = [plugin(tools_execute=_execute_at(place))]
    elif where == "approval":
        made["plugins"] = [plugin(tools_guard=lambda call: Ask("sure?") if call.name == "stay" else None)]
    elif where != "tool":
        hook = {"guard": "tools_guard", "vote": "turn_continuation"}.get(where, where)
        made["plugins"] = [plugin(**{hook: _hook_at(hook, place)})]
    return made


def _execute_at(place: Place) -> Any:
    async def tools_execute(agent: Any, call: Any, proceed: Any) -> Any:
        if call.name == "stay":
            await place.stay()
        return await proceed(call)

    return tools_execute


def _hook_at(hook: str, place: Place) -> Any:
    async def agent_request(request: Any) -> None:
        await place.stay()

    async def step_result(message: Any) -> None:
        await place.stay()

    async def tools_guard(call: Any) -> None:
        if call.name == "stay":
            await place.stay()

    async def turn_continuation(agent: Any) -> None:
        await place.stay()

    async def session_flush(gate: str) -> None:
        if gate == "request":
            await place.stay()

    return locals()[hook]


# where -> (codes of the results, whether the call began, text kept)
PLACES: dict[str, tuple[list[str], str]] = {
    "agent_request": ([], ""),
    "session_flush": ([], ""),
    "request": ([], ""),
    "chunks": ([], "half"),
    "arguments": ([], "I call"),
    "after the last chunk": ([], "all of it"),
    "step_result": ([], ""),
    "guard": (["ok", "NOT_STARTED"], ""),
    "tools_execute": (["ok", "NOT_STARTED"], ""),
    "approval": (["ok", "NOT_STARTED"], ""),
    "tool": (["ok", "OUTCOME_UNKNOWN"], ""),
    "vote": (["ok", "ok"], ""),
}


class Nobody:
    """An approver that never answers."""

    def __init__(self, place: Place) -> None:
        self.place = place

    async def decide(self, agent: Any, approval: Any) -> str:
        await self.place.stay()
        return "denied"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("where", PLACES)
def test_C1_cancel_reaches_every_await(run3, scripted, where, times):
    """Within one pass the turn is closed, balanced and honest; twice is as once; the agent goes on."""
    codes, kept = PLACES[where]

    async def main() -> Any:
        place = Place()
        made = _at(where, place)
        if where == "vote":
            made["turn"] = [call("add", {"a": 1, "b": 1}), call("add", {"a": 1, "b": 2})]
        unsent = where in ("agent_request", "session_flush")
        model = scripted(*([] if unsent else [made["turn"]]), "still here")
        async with Agent(model, tools=made["tools"], plugins=made["plugins"]) as agent:
            if where == "approval":
                agent.harness.provide(Approver, Nobody(place))
            receipt = agent.send("go")
            await place.reached.wait()
            for _ in range(times):
                agent.cancel()
            result = await receipt.result()
            balanced(agent)
            for name in [entry.name for entry in made["plugins"]]:
                agent.harness.plugins.unregister(name)
            assert (await agent.run("and now?")).ok
            return agent, result

    agent, result = run3(main)
    assert (result.reason.kind, result.reason.cause.kind) == ("cancelled", "user")
    assert [code for _, code in results(agent)] == codes
    partial = [e.text for e in of(agent, "assistant/partial")]
    assert partial == ([kept] if kept else partial if where == "step_result" else [])
    if where == "chunks":
        assert [e.text for e in of(agent, "assistant/thinking")] == ["hm"]
    if where == "approval":
        assert [e.outcome for e in of(agent, "approval/decided")] == ["closed"]
    assert not of(agent, "plugin/fault")


def test_C1_cancel_to_turn_end_takes_one_pass(run3, scripted):
    """When nothing shields itself, turn/end is in the log after the next pass of the scheduler."""
    model = scripted(hang())

    async def main() -> int:
        async with Agent(model) as agent:
            agent.send("go")
            await spin(lambda: of(agent, "request/start"))
            for _ in range(3):
                await anyio.sleep(0)
            agent.cancel()
            passes = 0
            while not of(agent, "turn/end"):
                passes += 1
                await anyio.sleep(0)
            return passes

    assert run3(main) <= 3


def test_C1_a_provider_and_tools_that_never_suspend_are_cancelled_between_steps(run3, scripted):
    """Nothing awaits, so nothing is delivered; the boundary looks (trap X1)."""
    model = scripted(forever(call("add", {"a": 1, "b": 1})))

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent:

            def observer(event: Any) -> None:
                if event.type == "step/end" and event.step == 3:
                    agent.cancel()

            agent.session.observe(observer)
            result = await agent.run("go")
            balanced(agent)
            return result

    result = run3(main)
    assert (result.reason.kind, result.steps) == ("cancelled", 3)


@pytest.mark.parametrize("when", ["assistant/message", "tool/call", "tool/start"])
def test_C1_between_the_message_and_the_first_call(run3, scripted, when):
    """A cancel from an observer that close to the calls: none begins that had not, each has its result (P05)."""
    model = scripted([call("nap"), call("nap"), call("nap")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[nap], max_parallel_tool_calls=2) as agent:
            agent.session.observe(lambda event: agent.cancel() if event.type == when else None)
            result = await agent.run("go")
            balanced(agent)
            return agent, result

    agent, result = run3(main)
    assert result.reason.kind == "cancelled"
    started = {e.call_id for e in of(agent, "tool/start")}
    assert len(started) == (0 if when != "tool/start" else len(started))
    for call_id, code in results(agent):
        assert code == ("OUTCOME_UNKNOWN" if call_id in started else "NOT_STARTED")


def test_C1_cancel_during_a_retrys_pause(run3, scripted):
    """The pause is an await like any other; no further request is sent."""
    model = scripted(error("SERVER"), "never")
    probe = plugin(request_error=lambda error: Retry(after_s=3600))

    async def main() -> Any:
        async with Agent(model, plugins=[probe]) as agent:
            receipt = agent.send("go")
            await spin(lambda: of(agent, "request/end"))
            agent.cancel()
            return await receipt.result()

    assert run3(main).reason.kind == "cancelled"
    assert len(model.requests) == 1


def test_C1_cancel_while_closing_changes_nothing(run3, scripted):
    """From an observer of the closing events themselves."""
    model = scripted([call("nap"), call("nap")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            closing = ("request/end", "tool/result", "step/end", "turn/end")
            receipt = agent.send("go")
            await spin(lambda: of(agent, "tool/start"))
            stop = agent.session.observe(lambda event: agent.cancel("parent") if event.type in closing else None)
            agent.cancel("user")
            result = await receipt.result()
            stop()
            balanced(agent)
            assert (await agent.run("on")).ok
            return result

    result = run3(main)
    assert (result.reason.kind, result.reason.cause.kind) == ("cancelled", "user")
