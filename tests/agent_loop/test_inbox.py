"""I1, I2, I5-I8: where input lands, whom it names, and what happens to it while it waits."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import PLUGIN, add, nap, of, plugin, reasons, results, said, sent, started

from checkrein import Agent, AgentDisposed, InboxFull, Source
from checkrein.agents import Approver
from checkrein.decisions import Ask
from checkrein.errors import UnknownInput
from checkrein.messages import MediaBlock, TextBlock
from checkrein.testing import call, forever, text, wait

# --- I1, I2 -------------------------------------------------------------------------------------------------


def test_I1_send_queues_and_wakes(run, scripted):
    """A send on an idle agent begins a turn; one on a running agent is the next turn's."""
    model = scripted([wait(1), text("1")], "2")

    async def main() -> Any:
        async with Agent(model) as agent:
            first = agent.send("a")
            await started(agent)
            second = agent.send("b")
            return (await first.result()).turn, (await second.result()).turn

    assert run(main) == (1, 2)


def test_I1_steer_goes_to_the_nearest_step_boundary(run, scripted):
    """Steering during a tool stands in the next request of the same turn, behind the results."""
    model = scripted(call("nap", {"seconds": 5}), "ok")

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            steered = agent.steer("left, not right")
            result = await receipt.result()
            return result, await steered.result()

    result, steered = run(main)
    assert (result.turn, result.steps, steered.turn) == (1, 2, 1)
    assert sent(model.requests[1])[-2:] == ["tool: slept", "user: left, not right"]


def test_I1_steer_on_an_idle_agent_means_send(run, scripted):
    """It begins a turn as queued input, without a mark."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            assert (await agent.steer("go").result()).ok
            return agent

    agent = run(main)
    assert [event.kind for event in of(agent, "inbox/accepted")] == ["queued"]
    assert of(agent, "user/message")[0].mark is None


def test_I1_inject_never_wakes_and_is_context_for_the_next_request(run, scripted):
    """Injected into an idle agent, it waits for whatever comes next."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            injected = agent.inject("it rains", source=PLUGIN)
            await anyio.sleep(10)
            assert agent.status == "idle"
            assert injected.status.state == "pending"
            assert not of(agent, "turn/start")
            await agent.run("go out?")
            return agent, injected

    agent, injected = run(main)
    assert injected.status.turn == 1
    assert said(agent, "context/message") == ["it rains"]
    assert sent(model.requests[0]) == ["user: go out?", "user: [from clock] it rains"]


def test_I1_injected_into_a_running_turn_it_is_in_the_next_request(run, scripted):
    """Like steering at the step boundary, but it does not extend the turn."""
    model = scripted(call("nap", {"seconds": 5}), "ok", "later")

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            agent.inject("a")
            await receipt.result()
            agent.inject("b")
            await anyio.sleep(5)
            assert agent.status == "idle"
            await agent.run("again")
            return agent

    agent = run(main)
    assert [(e.turn, e.step) for e in of(agent, "context/message")] == [(1, 2), (2, 1)]


def test_I1_after_disposal_each_raises(run, scripted):
    """send, steer, inject, run, stream, wake, replace, withdraw."""
    model = scripted()

    async def main() -> None:
        async with Agent(model) as agent:
            await agent.dispose()
            for act in (agent.send, agent.steer, agent.inject):
                with pytest.raises(AgentDisposed, match="main"):
                    act("x")
            with pytest.raises(AgentDisposed):
                await agent.run("x")
            with pytest.raises(AgentDisposed):
                async with agent.stream("x"):
                    pass
            with pytest.raises(AgentDisposed):
                agent.wake()
            with pytest.raises(AgentDisposed):
                agent.withdraw("i1")
            agent.cancel()  # does nothing

    run(main)


def test_I2_send_then_steer_in_one_tick_steers(run, scripted):
    """The status changes in the same tick as the send: the steering is in the first request of that turn."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            assert agent.status == "idle"
            receipt = agent.send("go")
            assert agent.status == "running"
            agent.steer("left")
            await receipt.result()
            await agent.idle()
            return agent

    agent = run(main)
    assert [event.kind for event in of(agent, "inbox/accepted")] == ["queued", "steering"]
    assert sent(model.requests[0]) == ["user: go", "user: left"]
    assert reasons(agent) == ["completed"]


# --- I5-I8 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (Source("user"), "hi"),
        (Source("plugin", name="clock"), "[from clock] hi"),
        (Source("agent", id="helper"), "[from helper] hi"),
        (Source("schedule", id="nightly"), "[from nightly] hi"),
    ],
)
@pytest.mark.parametrize("kind", ["send", "steer", "inject"])
def test_I5_every_source_but_user_is_told_to_the_model(run, scripted, source, shown, kind):
    """Logged as it is, shown in the request as `[from NAME] `."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            if kind == "send":
                agent.send("hi", source=source)
            else:
                getattr(agent, kind)("hi", source=source)
            await receipt.result()
            return agent

    agent = run(main)
    assert sent(model.requests[0]) == ["user: go", f"user: {shown}"]
    assert of(agent, "inbox/accepted")[1].source == source


def test_I5_a_picture_keeps_its_source(run, scripted):
    """Content without text is prefixed too."""
    model = scripted("ok")

    async def main() -> None:
        async with Agent(model) as agent:
            await agent.run([MediaBlock("image/png", data="AAAA")], source=PLUGIN)

    run(main)
    blocks = model.requests[0].messages[0].content
    assert [type(block) for block in blocks] == [TextBlock, MediaBlock]
    assert blocks[0].text == "[from clock] "


def test_I6_pending_input_is_listed_replaced_and_withdrawn(run, scripted):
    """First in, first out; by id; what is not pending is refused."""
    model = scripted([wait(5), text("1")], "2")

    async def main() -> Any:
        async with Agent(model) as agent:
            first = agent.send("a")
            await started(agent)
            b, c, d = agent.send("b"), agent.steer("c"), agent.send("d")
            listed = [(entry.id, entry.kind, entry.content[0].text) for entry in agent.pending]
            assert listed == [("i2", "queued", "b"), ("i3", "steering", "c"), ("i4", "queued", "d")]
            agent.replace(b.id, "B")
            agent.replace(c.id, "C")
            agent.withdraw(d.id)
            assert [entry.id for entry in agent.pending] == ["i2", "i3"]
            for wrong in (first.id, d.id, "i99", ""):
                with pytest.raises(UnknownInput, match="pending"):
                    agent.replace(wrong, "x")
                with pytest.raises(UnknownInput):
                    agent.withdraw(wrong)
            with pytest.raises(ValueError, match="expected input"):
                agent.replace(b.id, "  ")
            await agent.idle()
            return agent

    agent = run(main)
    assert said(agent) == ["a", "B"]
    assert said(agent, "steering/message") == ["C"]


def test_I6_steering_overtakes_queued_input_and_each_kind_keeps_its_order(run, scripted):
    """The next request holds the steering, not what is queued (case Q04)."""
    model = scripted(call("nap", {"seconds": 5}), "1", "2")

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            agent.send("go")
            await anyio.sleep(1)
            agent.send("A")
            agent.steer("B")
            agent.send("C")
            agent.steer("D")
            await agent.idle()
            return agent

    agent = run(main)
    assert sent(model.requests[1])[-2:] == ["user: B", "user: D"]
    assert said(agent) == ["go", "A", "C"]


@pytest.mark.parametrize("how", ["run", "one"])
def test_T5_T6_steering_that_was_left_over_is_no_part_of_a_turn_that_waited_before_it(run, scripted, how):
    """A run() that was accepted first answers its own input only; with `queue_mode = "one"` a send does, too."""
    model = scripted([wait(5), text("never")], call("nap", {"seconds": 5}), "mine", "the rest")

    async def main() -> Any:
        async with Agent(model, tools=[nap], queue_mode="one" if how == "one" else "all") as agent:
            agent.send("go")
            await started(agent)
            async with anyio.create_task_group() as group:
                if how == "run":
                    group.start_soon(agent.run, "mine?")
                    await anyio.sleep(1)
                else:
                    agent.send("mine?")
                agent.steer("left over")
                agent.cancel()
                agent.wake()
                await anyio.sleep(1)
                agent.steer("for this turn")
            await agent.idle()
            return agent

    agent = run(main)
    assert said(agent) == ["go", "mine?", "left over"]
    assert said(agent, "steering/message") == ["for this turn"]
    assert [(event.turn, event.mark) for event in of(agent, "user/message")] == [(1, None), (2, None), (3, "steering")]
    assert sent(model.requests[2])[-1] == "user: for this turn"


def test_I7_a_full_inbox_refuses_and_never_drops(run, scripted):
    """inbox_max, all kinds together; a known key is no new input."""
    model = scripted([wait(5), text("1")], forever("ok"))

    async def main() -> Any:
        async with Agent(model, inbox_max=3) as agent:
            agent.send("go")
            await started(agent)
            agent.send("a", key="k")
            agent.steer("b")
            agent.inject("c")
            for act in (agent.send, agent.steer, agent.inject):
                with pytest.raises(InboxFull, match="inbox_max"):
                    act("d")
            assert agent.send("a", key="k").id == "i2"
            await agent.idle()
            agent.send("d")
            await agent.idle()
            return agent

    agent = run(main)
    assert said(agent) == ["go", "a", "d"]


def test_I7_a_flood_inside_an_observer_is_refused_too(run, scripted):
    """What waits to be committed counts."""
    model = scripted(forever("ok"))

    async def main() -> Any:
        async with Agent(model, inbox_max=3, queue_mode="all") as agent:
            refused: list[int] = []
            done: list[bool] = []

            def observer(event: Any) -> None:
                if event.type == "turn/start" and not done:
                    done.append(True)
                    for n in range(10):
                        try:
                            agent.send(f"n{n}")
                        except InboxFull:
                            refused.append(n)

            agent.session.observe(observer)
            await agent.run("go")
            await agent.idle()
            return agent, refused

    agent, refused = run(main)
    assert len(of(agent, "inbox/accepted")) + len(refused) == 11
    assert len(refused) >= 7


def test_I7_what_an_observer_sent_and_the_log_took_counts_once(run, scripted):
    """Three notifications, one input each: they fill an inbox of three, and do not overfill it."""
    model = scripted(forever("ok"))
    sends = ["turn/start", "step/start", "request/start"]

    async def main() -> Any:
        async with Agent(model, inbox_max=3) as agent:
            agent.session.observe(
                lambda event: agent.send(event.type) if event.type in sends and event.turn == 1 else None
            )
            assert (await agent.run("go")).ok
            await agent.idle()
            return agent

    agent = run(main)
    assert said(agent) == ["go", *sends]
    assert not of(agent, "plugin/fault")


def test_I8_input_never_lands_between_a_call_and_its_result(run, scripted):
    """Whatever comes while calls are open waits for the boundary."""
    model = scripted([call("nap", {"seconds": 5}), call("add", {"a": 1, "b": 1})], "ok", "later")

    async def main() -> Any:
        async with Agent(model, tools=[nap, add]) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            agent.steer("s")
            agent.inject("c")
            agent.send("q")
            await receipt.result()
            await agent.idle()
            return agent

    run(main)
    assert sent(model.requests[1])[1:] == ["assistant: ", "tool: slept", "tool: 2", "user: c", "user: s"]


def test_I8_input_does_not_answer_an_approval(run, scripted):
    """A plain message during a question is queued; only the approver's answer decides (case Q13)."""
    model = scripted(call("nap", {"seconds": 0}), "ok", "fine")
    asked: list[Any] = []

    class Person:
        async def decide(self, agent: Any, approval: Any) -> str:
            asked.append(approval)
            await anyio.sleep(60)
            return "allowed_once"

    async def main() -> Any:
        maker = Agent(model, tools=[nap], plugins=[plugin(tools_guard=lambda agent, call: Ask("sure?"))])
        async with maker as agent:
            agent.harness.provide(Approver, Person())
            receipt = agent.send("go")
            await anyio.sleep(10)
            agent.send("yes")
            agent.send("what are you doing?")
            assert agent.session.state.approvals
            await receipt.result()
            await agent.idle()
            return agent

    agent = run(main)
    assert len(asked) == 1
    assert [event.outcome for event in of(agent, "approval/decided")] == ["allowed_once"]
    assert results(agent) == [("c1.1.1", "ok")]
    assert said(agent) == ["go", "yes", "what are you doing?"]
