"""I1-I8 and the parking of C4: input, its receipts, and where it is at any time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import PLUGIN, Latch, add, nap, of, plugin, reasons, results, said, sent, types

from checkrein import Agent, AgentDisposed, GateClosed, InboxFull, Source
from checkrein.agents import Approver
from checkrein.decisions import Ask
from checkrein.errors import AgentError, UnknownInput
from checkrein.memory_store import MemoryStore
from checkrein.messages import MediaBlock, TextBlock
from checkrein.testing import call, forever, text, wait


async def started(agent: Any) -> None:
    """Wait until a turn is open."""
    while not agent.session.state.turn_open:
        await anyio.sleep(0)


# --- I1, I2 -----------------------------------------------------------------------------------------------


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


# --- I3, I4 -----------------------------------------------------------------------------------------------


def test_I3_accepted_before_the_call_returns(run, scripted):
    """The log has `inbox/accepted` when send returns, and the input event names its id."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            last = of(agent, "inbox/accepted")[-1]
            assert (last.id, last.kind, receipt.id) == ("i1", "queued", "i1")
            await receipt.result()
            return agent

    assert of(run(main), "user/message")[0].id == "i1"


def test_I3_inside_an_observer_it_is_numbered_at_once(run, scripted):
    """Accepted right after the current notification; nothing is lost, ids do not repeat."""
    model = scripted("one", "two")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipts: list[Any] = []

            def observer(event: Any) -> None:
                if event.type == "turn/start" and not receipts:
                    receipts.extend([agent.send("a"), agent.steer("b"), agent.inject("c")])
                    assert [r.id for r in receipts] == ["i2", "i3", "i4"]
                    assert [r.status.state for r in receipts] == ["pending"] * 3

            agent.session.observe(observer)
            await agent.run("go")
            await agent.idle()
            return agent, [(await r.result()).turn for r in receipts]

    agent, turns = run(main)
    assert turns == [2, 1, 1]
    order = types(agent, free=True)
    at = order.index("turn/start")
    assert order[at + 1 : at + 4] == ["inbox/accepted"] * 3


def test_I3_a_client_key_accepts_once(run, scripted):
    """A second send with a known key is the first one again: one turn, also after it ended (case Q08)."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            first = agent.send("go", key="u7")
            again = agent.send("go", key="u7")
            assert first.id == again.id
            result = await first.result()
            await agent.idle()
            late = agent.send("something else", key="u7")
            assert agent.status == "idle"
            assert (await late.result()) == result
            return agent

    agent = run(main)
    assert said(agent) == ["go"]
    assert len(of(agent, "inbox/accepted")) == 1


def test_I3_a_key_is_known_after_a_cancel_and_in_every_kind(run, scripted):
    """steer and inject take keys too; a key of a discarded input gives its receipt."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            first = agent.inject("c", key="k")
            assert agent.steer("d", key="k").id == first.id
            agent.withdraw(first.id, "not needed")
            again = agent.send("e", key="k")
            assert again.status == first.status
            assert (again.status.state, again.status.reason) == ("discarded", "not needed")
            await anyio.sleep(1)
            return agent

    assert not of(run(main), "turn/start")


def test_I3_two_sends_with_one_key_inside_an_observer(run, scripted):
    """Also before the acceptance is committed the key is known."""
    model = scripted("1", "2", "3")

    async def main() -> Any:
        async with Agent(model) as agent:
            ids: list[str] = []

            def observer(event: Any) -> None:
                if event.type == "turn/start" and not ids:
                    ids.extend([agent.send("a", key="k").id, agent.send("a", key="k").id])

            agent.session.observe(observer)
            await agent.run("go")
            await agent.idle()
            return agent, ids

    agent, ids = run(main)
    assert ids == ["i2", "i2"]
    assert said(agent) == ["go", "a"]


def test_I4_a_receipt_says_where_the_input_is(run, scripted):
    """pending, in turn n, or discarded with a reason; result() of a discarded one says why."""
    model = scripted([wait(5), text("ok")])

    async def main() -> None:
        async with Agent(model) as agent:
            first = agent.send("a")
            assert first.status.state == "pending"
            await started(agent)
            assert (first.status.state, first.status.turn) == ("in turn", 1)
            second = agent.send("b")
            agent.withdraw(second.id, "changed my mind")
            assert (second.status.state, second.status.reason) == ("discarded", "changed my mind")
            with pytest.raises(AgentError, match="changed my mind"):
                await second.result()
            assert (await first.result()).ok
            assert (await first.result()).ok  # asked again, the same
            assert (first.status.state, first.status.turn) == ("in turn", 1)

    run(main)


def test_I4_several_wait_for_one_receipt(run, scripted):
    """Each gets the same result."""
    model = scripted([wait(5), text("ok")])

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("a")
            got: list[Any] = []

            async def one() -> None:
                got.append(await receipt.result())

            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(one)
            return got

    got = run(main)
    assert len(got) == 3 and got[0] == got[1] == got[2]


def test_I4_durable_says_memory_without_a_store(run, scripted):
    """It returns at once (R4)."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("a")
            assert await receipt.durable() == "memory"
            return await receipt.result()

    assert run(main).ok


def test_I4_durable_waits_for_the_store(run, scripted):
    """With a store it returns behind the flush, and says its name; a failing one raises GateClosed."""
    model = scripted([wait(60), text("ok")])
    flushed: list[str] = []
    broken: list[bool] = []

    async def flush(session: Any, gate: str) -> None:
        await anyio.sleep(2)
        if gate == "input" and broken:
            raise OSError("disk full")
        flushed.append(gate)

    async def main() -> None:
        async with Agent(model, plugins=[plugin(session_flush=flush)], store=MemoryStore()) as agent:
            receipt = agent.send("a")
            assert not flushed
            assert await receipt.durable() == "memory"  # the store's name is memory
            assert flushed[0] == "input"
            await anyio.sleep(20)
            broken.append(True)
            with pytest.raises(GateClosed, match="disk full"):
                await agent.send("b").durable()
            agent.cancel()

    run(main)


def test_I3_a_store_that_refuses_an_input_discards_it_visibly(run, scripted):
    """The gate is closed: no turn, the waiter gets GateClosed, the log says discarded (R4)."""
    model = scripted("never")

    def flush(session: Any, gate: str) -> None:
        if gate == "input":
            raise OSError("disk full")

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(session_flush=flush)]) as agent:
            with pytest.raises(GateClosed, match="disk full") as caught:
                await agent.run("a")
            assert str(caught.value).count("did not take") == 1
            await agent.idle()
            return agent

    agent = run(main)
    assert not of(agent, "turn/start")
    assert "disk full" in of(agent, "inbox/discarded")[0].reason


def test_I3_withdrawn_while_it_is_flushed_begins_no_turn(run, scripted):
    """The driver looks again behind the flush: a turn without input does not exist."""
    model = scripted("ok")

    async def flush(session: Any, gate: str) -> None:
        await anyio.sleep(5)

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(session_flush=flush)]) as agent:
            receipt = agent.send("a")
            await anyio.sleep(1)
            agent.withdraw(receipt.id)
            await agent.idle()
            assert not of(agent, "turn/start")
            return await agent.run("b")

    assert run(main).ok


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


# --- C4: parking --------------------------------------------------------------------------------------------


def test_C4_input_accepted_before_a_cancel_is_parked(run, scripted):
    """It is not lost, not run, and taken with the next input, first in first out."""
    model = scripted([wait(5), text("never")], "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.send("go")
            await started(agent)
            parked = agent.send("a")
            agent.cancel()
            await agent.idle()
            await anyio.sleep(10)
            assert (agent.status, parked.status.state) == ("idle", "pending")
            agent.send("b")
            await agent.idle()
            return agent

    agent = run(main)
    assert [(event.turn, event.id) for event in of(agent, "user/message")] == [(1, "i1"), (2, "i2"), (2, "i3")]
    assert reasons(agent) == ["cancelled", "completed"]


def test_C4_wake_takes_parked_input_now(run, scripted):
    """agent.wake(); with nothing parked it does nothing."""
    model = scripted([wait(5), text("never")], "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.wake()
            assert agent.status == "idle"
            agent.send("go")
            await started(agent)
            agent.send("a")
            agent.steer("s")
            agent.cancel()
            await agent.idle()
            agent.wake()
            assert agent.status == "running"
            await agent.idle()
            return agent

    agent = run(main)
    assert [(e.id, e.mark) for e in of(agent, "user/message")] == [("i1", None), ("i2", None), ("i3", "steering")]


def test_C4_input_that_someone_waits_for_is_not_parked(run, scripted):
    """run, stream and result: the driver goes on with it."""
    model = scripted([wait(5), text("never")], "a", "b", "c")

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.send("go")
            await started(agent)
            got: dict[str, str] = {}

            async def by_run() -> None:
                got["run"] = (await agent.run("a")).reason.kind

            async def by_result() -> None:
                got["result"] = (await agent.send("b").result()).reason.kind

            async def by_stream() -> None:
                async with agent.stream("c") as turn:
                    async for _ in turn:
                        pass
                    got["stream"] = (await turn.result()).reason.kind

            async with anyio.create_task_group() as group:
                for waiter in (by_run, by_result, by_stream):
                    group.start_soon(waiter)
                await anyio.sleep(1)
                agent.cancel()
            return agent, got

    agent, got = run(main)
    assert got == {"run": "completed", "result": "completed", "stream": "completed"}
    assert reasons(agent)[0] == "cancelled"


def test_C4_a_waiter_that_comes_later_wakes_its_parked_input(run, scripted):
    """result() on a parked receipt is somebody who waits."""
    model = scripted([wait(5), text("never")], "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.send("go")
            await started(agent)
            parked = agent.send("a")
            agent.cancel()
            await agent.idle()
            return await parked.result()

    assert run(main).ok


def test_C4_discard_pending_discards_with_events(run, scripted):
    """`inbox/discarded` for each; what somebody waits for stays."""
    model = scripted([wait(5), text("never")], "kept")

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.send("go")
            await started(agent)
            a, b = agent.send("a"), agent.steer("b")
            got: list[Any] = []

            async def waits() -> None:
                got.append(await agent.run("w"))

            async with anyio.create_task_group() as group:
                group.start_soon(waits)
                await anyio.sleep(1)
                agent.cancel(discard_pending=True)
            assert [a.status.reason, b.status.reason] == ["cancelled", "cancelled"]
            assert not agent.pending
            return agent, got[0]

    agent, result = run(main)
    assert [event.id for event in of(agent, "inbox/discarded")] == ["i2", "i3"]
    assert result.text == "kept"


def test_C4_parked_input_stays_parked_over_a_resume(run, scripted):
    """Opening a session begins no turn; wake() or the next input takes what waits."""
    from checkrein.config.types import AgentConfig, HarnessConfig
    from checkrein.harness import Harness

    store = MemoryStore()

    def flush(session: Any, gate: str) -> None:
        writer = session.writer
        if writer is not None and writer.taken != len(session.lines):
            writer.append(session.lines[writer.taken :])

    def harness(*turns: Any) -> Any:
        config = HarnessConfig(agents=(AgentConfig(id="main", model="scripted:x"),))
        model = scripted(*turns)
        return Harness(config=config, providers=[model], store=store, plugins=[plugin(session_flush=flush)], found=[])

    async def main() -> Any:
        async with harness([wait(5), text("never")]) as first:
            agent = first.agents["main"]
            agent.send("go")
            await started(agent)
            agent.send("a")
            agent.cancel()
            await agent.idle()
            session_id = agent.session.id
        async with harness("ok") as second:
            agent = await second.resume(session_id)
            await anyio.sleep(5)
            assert agent.status == "idle"
            assert [entry.id for entry in agent.pending] == ["i2"]
            agent.wake()
            await agent.idle()
            return agent

    assert said(run(main)) == ["go", "a"]


def test_C4_a_cancel_between_turns_acts_on_the_next_one(run, scripted):
    """Input is owed and no turn is open: it is taken, and the turn ends cancelled without a step."""
    model = scripted("never", "b")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("a")
            agent.cancel()
            later = agent.send("b")
            await agent.idle()
            first, second = await receipt.result(), await later.result()
            assert types(agent)[:3] == ["turn/start", "user/message", "turn/end"]
            return first, second

    first, second = run(main)
    assert (first.turn, first.reason.kind, first.reason.cause.kind, first.steps) == (1, "cancelled", "user", 0)
    assert (second.turn, second.reason.kind) == (2, "completed")


def test_C4_a_cancel_between_turns_parks_what_that_turn_leaves(run, scripted):
    """queue_mode one: the first input is in the cancelled turn, the rest is parked."""
    model = scripted()

    async def main() -> Any:
        async with Agent(model, queue_mode="one") as agent:
            for word in ("a", "b", "c"):
                agent.send(word)
            agent.cancel()
            await agent.idle()
            return agent, [entry.id for entry in agent.pending]

    agent, pending = run(main)
    assert said(agent) == ["a"]
    assert pending == ["i2", "i3"]


@pytest.mark.parametrize("owed", [False, True])
def test_C4_a_cancel_during_the_last_flush(run, scripted, owed):
    """With nothing owed it does nothing and arms nothing; else it acts on the next turn."""
    model = scripted("1", "2")
    latch: list[Latch] = []

    async def flush(session: Any, gate: str) -> None:
        if gate == "turn_end" and latch:
            await latch[0].wait()

    async def main() -> Any:
        latch.append(Latch())
        async with Agent(model, plugins=[plugin(session_flush=flush)]) as agent:
            first = agent.send("a")
            await anyio.sleep(1)
            assert of(agent, "turn/end") and agent.status == "running"
            if owed:
                agent.send("b")
            agent.cancel()
            latch.pop().open()
            assert (await first.result()).ok
            await agent.idle()
            after = await agent.run("c")
            return agent, after

    agent, after = run(main)
    assert after.ok
    assert reasons(agent) == (["completed", "cancelled", "completed"] if owed else ["completed", "completed"])


def test_C4_a_cancel_on_an_idle_agent_arms_nothing(run, scripted):
    """Neither before the first turn nor between two."""
    model = scripted("1", "2")

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.cancel()
            first = await agent.run("a")
            await agent.idle()
            agent.cancel(discard_pending=True)
            return first, await agent.run("b")

    first, second = run(main)
    assert first.ok and second.ok


def test_C4_a_driver_behind_a_closed_gate_does_not_spin(run, scripted):
    """It stops, the waiters hear of it, and the next input works when the store does."""
    model = scripted("ok")
    broken = [True]
    flushes: list[str] = []

    def flush(session: Any, gate: str) -> None:
        flushes.append(gate)
        if broken:
            raise OSError("disk full")

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(session_flush=flush)]) as agent:
            receipts = [agent.send(word) for word in ("a", "b")]
            await agent.idle()
            for receipt in receipts:
                with pytest.raises(GateClosed):
                    await receipt.result()
            assert len(flushes) == 1
            broken.clear()
            return await agent.run("c")

    assert run(main).ok


@pytest.mark.parametrize("content", ["", "  \n", [], [TextBlock("")]])
def test_I3_input_that_says_nothing_is_refused(run, scripted, content):
    """The caller is told; nothing is logged, nothing begins."""
    model = scripted()

    async def main() -> Any:
        async with Agent(model) as agent:
            for act in (agent.send, agent.steer, agent.inject):
                with pytest.raises(ValueError, match="expected input"):
                    act(content)
            with pytest.raises(ValueError, match="expected input"):
                await agent.run(content)
            assert agent.status == "idle"
            return agent

    assert not of(run(main), "inbox/accepted")


def test_I3_options_of_an_input_are_the_turns(run, scripted):
    """model, settings and max_steps travel in the log; the last input of a turn wins."""
    model = scripted("ok", "ok")

    async def main() -> Any:
        async with Agent(model, settings={"temperature": 0.1, "top_p": 0.5}) as agent:
            agent.send("a", settings={"temperature": 0.7})
            await agent.send("b", settings={"temperature": 0.9}).result()
            await agent.run("c")
            return agent

    agent = run(main)
    assert [r.settings["temperature"] for r in model.requests] == [0.9, 0.1]
    assert of(agent, "inbox/accepted")[0].options == {"settings": {"temperature": 0.7}}
