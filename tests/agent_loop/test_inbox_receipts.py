"""I3, I4: when input is accepted, once, and what a receipt tells of it."""

from __future__ import annotations

from inspect import signature
from typing import Any

import anyio
import pytest
from loopkit import Flush, nap, of, plugin, said, started, types

from checkrein import Agent, AgentLike, GateClosed
from checkrein.errors import AgentError
from checkrein.memory_store import MemoryStore
from checkrein.session import Session
from checkrein.testing import call, forever, text, wait
from checkrein_loop.agent import LoopAgent


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


def test_I3_a_client_may_send_again_what_the_store_did_not_take(run, scripted):
    """It was told so; the second try, with the same key, is an input of its own, and the third is the second again."""
    model = scripted("ok")
    full = [True]

    def flush(gate: str) -> None:
        if gate == "input" and full:
            raise OSError("disk full")

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(session_flush=flush)]) as agent:
            with pytest.raises(GateClosed, match="disk full"):
                await agent.send("go", key="u7").result()
            full.clear()
            second = agent.send("go", key="u7")
            assert (await second.result()).ok
            assert agent.send("go", key="u7").id == second.id != "i1"
            return agent

    agent = run(main)
    assert said(agent) == ["go"]
    assert [event.id for event in of(agent, "inbox/accepted")] == ["i1", "i2"]
    assert Session.load("again", agent.session.events, agent.session.lines).state.keys == {"u7": "i2"}


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


def test_R4_an_input_sent_while_a_tool_runs_is_with_the_store_at_once(run, scripted):
    """It does not wait for the turn's next flush, also if nobody asks whether it is durable."""
    model = scripted(call("nap"), forever("ok"))

    async def main() -> Any:
        async with Agent(model, tools=[nap], plugins=[Flush()], store=MemoryStore()) as agent:
            agent.send("go")
            await anyio.sleep(1)
            agent.send("more")
            await anyio.sleep(1)
            assert not of(agent, "tool/result")
            kept = agent.session.writer.taken == len(agent.session.lines)
            agent.cancel()
            return kept

    assert run(main)


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


def test_I2_what_is_sent_while_the_driver_gives_up_is_taken(run, scripted):
    """A plugin sends again what a store refused: the driver that leaves sees it, and the next one begins the turn."""
    full, sent = [True], []

    def flush(gate: str) -> None:
        if gate == "input" and full:
            full.clear()
            raise OSError("disk full")

    def again(event: Any) -> None:
        if event.type == "inbox/discarded":
            sent.append(made[0].send("again"))

    made: list[Any] = []

    async def main() -> Any:
        async with Agent(scripted("ok"), plugins=[plugin(session_flush=flush, session_event=again)]) as agent:
            made.append(agent)
            agent.send("a")
            await agent.idle()
            return sent[0].status.turn

    assert run(main) == 1


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


@pytest.mark.parametrize("name", ["send", "steer", "inject", "run", "stream", "cancel", "withdraw", "replace"])
def test_I3_what_the_loops_agent_takes_the_protocol_says(name):
    """A typed program sees AgentLike only: an option it lacks there is an error of the type checker."""

    def named(owner: Any) -> set[str]:
        return {p.name for p in signature(getattr(owner, name)).parameters.values()}

    protocol = named(AgentLike)
    assert "options" in protocol or named(LoopAgent) <= protocol
