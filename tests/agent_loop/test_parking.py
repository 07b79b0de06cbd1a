"""C4: input accepted before a cancel is parked; a cancel between turns."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import Latch, of, plugin, reasons, said, started, types

from checkrein import Agent
from checkrein.memory_store import MemoryStore
from checkrein.testing import text, wait


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
