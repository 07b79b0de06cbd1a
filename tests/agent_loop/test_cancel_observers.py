"""C1, C4, I1: cancelled, or sent to, from inside the observers."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import add, balanced, of, plugin, reasons, said, spin

from checkrein import Agent, tool
from checkrein.decisions import Continue
from checkrein.testing import call, forever, text, thinking, wait

EVENTS = (
    "inbox/accepted turn/start user/message step/start prompt/part request/header request/start assistant/thinking"
    " request/end assistant/message tool/call tool/start tool/end tool/result decision step/end turn/end"
)


@pytest.mark.parametrize("suspends", [True, False])
@pytest.mark.parametrize("kind", EVENTS.split())
def test_C1_cancel_from_an_observer_of_each_event(run3, scripted, kind, suspends):
    """Whatever was just logged: balanced, cancelled if a turn was open or owed, and the agent goes on."""

    async def pass_by() -> None:
        if suspends:
            await anyio.sleep(0)

    @tool
    async def brief(n: int) -> int:
        """Return."""
        await pass_by()
        return n

    async def main() -> Any:
        asked = [thinking("hm"), wait(pass_by), call("brief", {"n": 1}), call("add", {"a": 1, "b": 1})]
        model = scripted(asked, forever([wait(pass_by), text("ok")]))
        votes = [Continue("more", "go on")]
        probe = plugin(turn_continuation=lambda: votes.pop() if votes else None)
        async with Agent(model, tools=[brief, add], plugins=[probe], system_prompt="be brief") as agent:
            done: list[bool] = []

            def observer(event: Any) -> None:
                if event.type == kind and not done:
                    done.append(True)
                    agent.cancel()

            agent.session.observe(observer)
            receipt = agent.send("go")
            result = await receipt.result()
            balanced(agent)
            assert done or kind == "tool/end"  # nothing has to finish before an earlier sibling
            assert (await agent.run("on")).ok
            return result

    reason = run3(main).reason
    if kind not in ("inbox/accepted", "turn/end", "tool/end"):
        assert reason.kind == "cancelled"


def test_C1_a_cancel_in_the_observer_of_the_last_event_arms_nothing(run3, scripted):
    """turn/end is in the log: there is nothing to cancel."""
    model = scripted("1", "2")

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.session.observe(lambda event: agent.cancel() if event.type == "turn/end" else None)
            return [(await agent.run("a")).reason.kind, (await agent.run("b")).reason.kind]

    assert run3(main) == ["completed", "completed"]


def test_C4_a_cancel_from_the_observer_of_the_status(run3, scripted):
    """`running` is told before the turn: its input is in a cancelled turn; `idle` arms nothing."""
    model = scripted("never", "on")

    async def main() -> Any:
        box: list[Any] = []
        probe = plugin(agent_status=lambda status: box[0].cancel() if box and status in words else None)
        words = ["running"]
        async with Agent(model, plugins=[probe]) as agent:
            box.append(agent)
            first = agent.send("go")
            words[:] = ["idle"]
            reason = (await first.result()).reason
            await agent.idle()
            second = await agent.run("on")
            return reason, second

    reason, second = run3(main)
    assert reason.kind == "cancelled"
    assert second.ok


def test_I1_a_send_from_the_observer_of_idle_begins_the_next_turn(run3, scripted):
    """One driver at a time, and nothing is left lying."""
    model = scripted("one", "two", "three")

    async def main() -> Any:
        box: list[Any] = []
        words = ["again", "and again"]
        probe = plugin(agent_status=lambda status: box[0].send(words.pop(0)) if status == "idle" and words else None)
        async with Agent(model, plugins=[probe]) as agent:
            box.append(agent)
            await agent.run("go")
            await spin(lambda: len(of(agent, "turn/end")) == 3)
            await agent.idle()
            return agent

    agent = run3(main)
    assert said(agent) == ["go", "again", "and again"]
    assert reasons(agent) == ["completed"] * 3
