"""Public bug reports of other harnesses about steering and queued input, acted out: late, twice, lost, or in the way.

Each test is named by the report's id; its docstring says what went wrong there. docs/cases.md lists them all.
"""

from __future__ import annotations

from typing import Any

import anyio
from loopkit import (
    Flush,
    Latch,
    add,
    house,
    killed,
    nap,
    of,
    plugin,
    reasons,
    results,
    said,
    sent,
    until,
)

from checkrein import Agent, tool
from checkrein.agents import Approver
from checkrein.decisions import Ask, Deny
from checkrein.memory_store import MemoryStore
from checkrein.messages import ToolMessage, content_text
from checkrein.testing import call, forever, text, wait


def test_case_Q02_steered_during_the_last_chunk(run, scripted):
    """Sent while the agent was finishing, it lay in the steering queue until the next input."""
    reached: list[Latch] = []
    release: list[Latch] = []

    async def main() -> Any:
        reached.append(Latch())
        release.append(Latch())

        async def last() -> None:
            reached[0].open()
            await release[0].wait()

        model = scripted([text("almost"), wait(last), text(" done")], "and that too")
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await reached[0].wait()
            steered = agent.steer("one more thing")
            release[0].open()
            result = await receipt.result()
            return agent, result, await steered.result(), model

    agent, result, steered, model = run(main)
    assert steered.ok and steered.turn == result.turn == 1
    assert sent(model.requests[1])[-1] == "user: one more thing"
    assert result.text == "and that too"
    assert not agent.pending


def test_case_Q02_steered_when_nothing_can_extend_the_turn_any_more(run, scripted):
    """In the observer of turn/end: it becomes the next turn."""
    model = scripted("one", "two")

    async def main() -> Any:
        async with Agent(model) as agent:
            done: list[bool] = []

            def late(event: Any) -> None:
                if event.type == "turn/end" and not done:
                    done.append(True)
                    agent.steer("late")

            agent.session.observe(late)
            await agent.run("go")
            await agent.idle()
            return agent

    agent = run(main)
    assert reasons(agent) == ["completed", "completed"]
    assert [(e.turn, e.mark) for e in of(agent, "user/message")] == [(1, None), (2, "steering")]


def test_case_Q03_steering_accepted_before_a_kill_is_delivered_once(run, scripted):
    """It existed in memory only: killed, the instruction was gone."""
    model = scripted(call("nap", {"seconds": 60}))
    store = MemoryStore()

    async def main() -> Any:
        async with house(model, plugins=[Flush()], tools=[nap], store=store) as first:
            agent = first.agents["main"]
            agent.send("build")
            await until(lambda: of(agent, "tool/start"))
            await agent.steer("merge and send").durable()
            left = killed(store, agent.session.id)
            agent.cancel(discard_pending=True)
        again = scripted("ok")
        async with house(again, plugins=[Flush()], tools=[nap], store=left) as second:
            agent = await second.resume(agent.session.id)
            assert [entry.content[0].text for entry in agent.pending] == ["merge and send"]
            await agent.run("continue")
            await agent.idle()
            return agent, again

    agent, again = run(main)
    everything = " ".join(sent(again.requests[-1]))
    assert everything.count("merge and send") == 1
    assert not agent.pending


def test_case_Q04_the_steer_is_in_the_next_request_not_what_was_queued(run, scripted):
    """The queued message was delivered instead of the steering."""
    model = scripted(call("nap", {"seconds": 5}), "ok", "and A")

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            agent.send("go")
            await anyio.sleep(1)
            agent.send("A")
            agent.steer("B")
            await agent.idle()

    run(main)
    assert sent(model.requests[1])[-1] == "user: B"
    assert sent(model.requests[2])[-1] == "user: A"


def test_case_Q07_one_way_of_delivery(run, scripted):
    """What came while busy was delivered live, and again as a block of queued messages."""
    model = scripted(call("nap", {"seconds": 5}), forever("ok"))

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            agent.send("go")
            await anyio.sleep(1)
            for act in (agent.send, agent.steer, agent.inject):
                act(f"by {act.__name__}")
            await agent.idle()
            await agent.run("last")
            return agent

    agent = run(main)
    seen = sent(model.requests[-1])
    for word in ("send", "steer", "inject"):
        assert sum(f"by {word}" in line for line in seen) == 1
    taken = [e.id for e in agent.session.events if e.type.endswith("/message") and getattr(e, "id", None)]
    assert sorted(taken) == sorted(set(taken)) == ["i1", "i2", "i3", "i4", "i5"]


def test_case_Q08_a_client_that_sends_again_after_a_reconnect(run, scripted):
    """The acknowledgement was lost; the same prompt ran twice. Here over a restart too."""
    model = scripted("ok")
    store = MemoryStore()

    async def main() -> Any:
        async with house(model, plugins=[Flush()], store=store) as first:
            agent = first.agents["main"]
            one = agent.send("deploy", key="u7")
            assert agent.send("deploy", key="u7").id == one.id
            await one.result()
            session_id = agent.session.id
        again = scripted()
        async with house(again, plugins=[Flush()], store=store) as second:
            agent = await second.resume(session_id)
            late = agent.send("deploy", key="u7")
            assert (late.id, late.status.turn) == (one.id, 1)
            assert (await late.result()).text == "ok"
            await agent.idle()
            return agent

    assert said(run(main)) == ["deploy"]


def test_case_Q09_accepted_while_the_process_ends(run, scripted):
    """Popped at turn end, a turn opened and aborted by the exit: in two of five cases it was nowhere on disk."""
    model = scripted([wait(5), text("one")])
    store = MemoryStore()

    async def main() -> Any:
        async with house(model, plugins=[Flush()], store=store) as first:
            agent = first.agents["main"]
            receipt = agent.send("one-shot")
            await anyio.sleep(1)
            agent.send("late")
            await receipt.result()
            session_id = agent.session.id
        again = scripted(forever("ok"))
        async with house(again, plugins=[Flush()], store=store) as second:
            agent = await second.resume(session_id)
            await agent.run("next")
            await agent.idle()
            return agent

    agent = run(main)
    assert said(agent).count("late") == 1
    assert sorted(said(agent)) == ["late", "next", "one-shot"]


def test_case_Q11_steering_without_an_open_turn_is_queued(run, scripted):
    """While a task of another kind ran, it stayed `working` for ever."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent, anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 60)  # a shell command of the user's, no turn
            result = await agent.steer("hi").result()
            await agent.idle()
            assert agent.status == "idle"
            return result

    assert run(main).ok


def test_case_Q13_a_message_during_an_approval_is_queued_and_the_question_decided_once(run, scripted):
    """A plain message raised the same interrupt again, for ever, without an outcome."""
    model = scripted(call("nap", {"seconds": 0}), forever("ok"))
    asked: list[str] = []

    class Person:
        async def decide(self, agent: Any, approval: Any) -> str:
            asked.append(approval.id)
            await anyio.sleep(30)
            return "allowed_once"

    async def main() -> Any:
        async with Agent(model, tools=[nap], plugins=[plugin(tools_guard=lambda call: Ask("sure?"))]) as agent:
            agent.harness.provide(Approver, Person())
            receipt = agent.send("go")
            await until(lambda: asked)
            for _ in range(3):
                agent.send("what are you doing?")
            await receipt.result()
            await agent.idle()
            return agent

    agent = run(main)
    assert asked == ["a1"]
    assert [e.outcome for e in of(agent, "approval/decided")] == ["allowed_once"]
    assert said(agent) == ["go", *["what are you doing?"] * 3]


def test_case_Q14_cancel_writes_results_at_once_and_the_question_does_not_come_back(run, scripted):
    """Approved, then cancelled while the tool hung: no result, and the approval appeared again."""
    import threading

    model = scripted(call("hangs"), "ok")
    entered, release = threading.Event(), threading.Event()
    asked: list[str] = []

    @tool
    def hangs() -> str:
        """Hear nothing."""
        entered.set()
        release.wait(10)
        return "at last"

    class Person:
        async def decide(self, agent: Any, approval: Any) -> str:
            asked.append(approval.id)
            return "allowed_once"

    async def main() -> Any:
        async with Agent(model, tools=[hangs], plugins=[plugin(tools_guard=lambda call: Ask("sure?"))]) as agent:
            agent.harness.provide(Approver, Person())
            receipt = agent.send("go")
            await until(entered.is_set)
            agent.cancel()
            result = await receipt.result()
            assert not release.is_set()  # the tool still hangs
            await agent.run("on")
            release.set()
            return agent, result

    agent, result = run(main)
    assert result.reason.kind == "cancelled"
    assert results(agent) == [("c1.1.1", "OUTCOME_UNKNOWN")]
    assert asked == ["a1"]


def test_case_Q15_three_endings_three_texts(run, scripted):
    """Cancelled in mid tool was told as `rejected, not written`, though it may have been."""
    guard = plugin(tools_guard=lambda call: Deny("not this one") if call.arguments.get("a") == 9 else None)
    model = scripted([call("nap"), call("add", {"a": 9, "b": 1}), call("nap"), call("nap")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[nap, add], plugins=[guard], max_parallel_tool_calls=2) as agent:
            receipt = agent.send("go")
            await until(lambda: len(of(agent, "tool/start")) == 2)
            agent.cancel()
            await receipt.result()
            await agent.run("on")
            return agent

    agent = run(main)
    assert [code for _, code in results(agent)] == ["OUTCOME_UNKNOWN", "DENIED", "OUTCOME_UNKNOWN", "NOT_STARTED"]
    told = [content_text(m.content) for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert "may" in told[0] and "denied" in told[1] and "before execution" in told[3]
    assert len({told[0], told[1], told[3]}) == 3
