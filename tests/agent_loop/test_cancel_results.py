"""C1-C3, C6: what a cancel leaves: real results and honest words, what was shown, closed streams, typed ends."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from loopkit import Place, add, balanced, nap, of, plugin, reasons, results, said, spin, types

from checkrein import Agent, tool
from checkrein.decisions import Allow, Ask
from checkrein.messages import content_text
from checkrein.testing import call, error, text, wait
from checkrein.testing.script import hang


def test_C1_types_of_a_cancelled_turn(run3, scripted):
    """The whole picture once: what a cancel in a tool leaves in the log."""
    model = scripted([text("I"), call("nap")])

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            receipt = agent.send("go")
            await spin(lambda: of(agent, "tool/start"))
            agent.cancel()
            await receipt.result()
            return types(agent)

    assert run3(main) == [
        *("turn/start", "user/message", "step/start", "request/start", "request/end", "assistant/message"),
        *("tool/call", "tool/result", "step/end", "turn/end"),
    ]


def test_C2_who_has_a_real_result_keeps_it_the_others_get_honest_words(run3, scripted):
    """Model order, and in each text whether it may have run (case Q15)."""
    model = scripted([call("nap"), call("add", {"a": 1, "b": 2}), call("nap"), call("nap")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[nap, add], max_parallel_tool_calls=2) as agent:
            receipt = agent.send("go")
            await spin(lambda: len(of(agent, "tool/start")) == 3)
            agent.cancel()
            await receipt.result()
            balanced(agent)
            return agent

    agent = run3(main)
    assert [code for _, code in results(agent)] == ["OUTCOME_UNKNOWN", "ok", "OUTCOME_UNKNOWN", "NOT_STARTED"]
    texts = [content_text(e.content) for e in of(agent, "tool/result") if e.content]
    assert "may" in texts[0] and "run" in texts[0]
    assert texts[-1].startswith("cancelled before execution")


def test_C2_a_worker_threads_late_result_is_dropped_with_an_event(run, scripted):
    """The call says OUTCOME_UNKNOWN at once; what the thread returns later is `tool/late`, not a result."""
    model = scripted(call("block"), "ok")
    gate, entered = threading.Event(), threading.Event()

    @tool
    def block() -> str:
        """Block."""
        entered.set()
        gate.wait(10)
        return "late"

    async def main() -> Any:
        async with Agent(model, tools=[block]) as agent:
            receipt = agent.send("go")
            await spin(entered.is_set) if False else None
            while not entered.is_set():
                await anyio.sleep(0.01)
            agent.cancel()
            await receipt.result()
            gate.set()
            while not of(agent, "tool/late"):
                await anyio.sleep(0.01)
            assert (await agent.run("again")).ok
            return agent

    agent = run(main)
    assert results(agent) == [("c1.1.1", "OUTCOME_UNKNOWN")]
    assert [e.call_id for e in of(agent, "tool/late")] == ["c1.1.1"]


def test_O13_what_a_thread_returns_behind_the_disposal_is_not_logged(run, scripted):
    """Nothing but closing events follows a disposal; the thread is only let go."""
    gate, entered, left = threading.Event(), threading.Event(), threading.Event()

    @tool
    def block() -> str:
        """Block."""
        entered.set()
        gate.wait(10)
        left.set()
        return "late"

    async def main() -> Any:
        async with Agent(scripted(call("block")), tools=[block]) as agent:
            agent.send("go")
            while not entered.is_set():
                await anyio.sleep(0.01)
            await agent.dispose()
            count = len(agent.session.events)
            gate.set()
            while not left.is_set() or agent.harness.threads.busy:
                await anyio.sleep(0.01)
            return agent.session.events[count:]

    assert run(main) == []


def test_C2_a_thread_that_asks_hears_that_it_is_cancelled(run, scripted):
    """`ToolContext.cancelled()` is for threads."""
    from checkrein import ToolContext

    model = scripted(call("watch"), "ok")
    heard, entered = threading.Event(), threading.Event()

    @tool
    def watch(ctx: ToolContext) -> str:
        """Watch."""
        entered.set()
        for _ in range(2_000):
            if ctx.cancelled():
                heard.set()
                break
            heard.wait(0.005)
        return "left"

    async def main() -> None:
        async with Agent(model, tools=[watch]) as agent:
            receipt = agent.send("go")
            while not entered.is_set():
                await anyio.sleep(0.01)
            agent.cancel()
            await receipt.result()

    run(main)
    assert heard.wait(10)


def test_C3_no_half_call_is_ever_run(run3, scripted):
    """Cancelled inside the arguments: no call in the log, none in the next request (case P04)."""
    ran: list[int] = []

    @tool
    async def edit(a: int = 0) -> str:
        """Edit."""
        ran.append(a)
        return "edited"

    async def main() -> Any:
        place = Place()
        model = scripted([call("edit", raw='{"a": 1'), wait(place.stay)], "ok")
        async with Agent(model, tools=[edit]) as agent:
            receipt = agent.send("go")
            await place.reached.wait()
            agent.cancel()
            await receipt.result()
            await agent.run("continue")
            return agent

    agent = run3(main)
    assert not ran and not of(agent, "tool/call")
    assert said(agent) == ["go", "continue"]


def test_C3_what_was_shown_of_a_cancelled_answer_is_kept_beside_the_history(run3, scripted):
    """assistant/partial is no answer: the model does not read it back as one."""

    async def main() -> Any:
        place = Place()
        model = scripted([text("half of"), wait(place.stay), text(" it")], "ok")
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await place.reached.wait()
            agent.cancel()
            result = await receipt.result()
            await agent.run("on")
            return agent, result, model

    agent, result, model = run3(main)
    assert result.text == ""
    assert [e.outcome for e in of(agent, "request/end")] == ["cancelled", "ok"]
    assert not any(type(m).__name__ == "AssistantMessage" for m in model.requests[1].messages)


def test_C6_streams_are_closed_wherever_a_turn_ends(run3, scripted):
    """Opened = closed: cancelled, failed, torn, completed, and one never started."""
    model = scripted(hang(), error("SERVER"), [text("x"), error("SERVER")], "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await spin(lambda: of(agent, "request/start"))
            agent.cancel()
            await receipt.result()
            for _ in range(3):
                await agent.run("on")
            return reasons(agent)

    assert run3(main) == ["cancelled", "error", "error", "completed"]
    assert model.opened == model.closed == 4


@pytest.mark.parametrize("vote", [None, Allow(), Ask("may it?")], ids=["none", "allow", "ask"])
@pytest.mark.parametrize("shielded", [False, True])
def test_C2_a_call_whose_guard_cancels_the_turn_is_not_begun(run, scripted, vote, shielded):
    """Also a tool that never suspends, which no cancellation could strike."""
    ran: list[str] = []

    @tool
    async def act() -> str:
        """Acts."""
        ran.append("act")
        return "acted"

    async def late(agent: Any) -> Any:
        with anyio.CancelScope(shield=True):
            agent.cancel()
            await anyio.sleep(0.1)
        return vote

    def at_once(agent: Any) -> Any:
        agent.cancel()
        return vote

    async def main() -> Any:
        model = scripted(call("act"), "done")
        async with Agent(model, tools=[act], plugins=[plugin(tools_guard=late if shielded else at_once)]) as agent:
            return await agent.run("go")

    result = run(main)
    assert (result.reason.kind, ran) == ("cancelled", [])
    ended = [event for event in result.events if event.type in ("tool/start", "tool/result", "approval/asked")]
    assert [(event.type, event.error.code) for event in ended] == [("tool/result", "NOT_STARTED")]
