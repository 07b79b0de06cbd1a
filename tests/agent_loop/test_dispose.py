"""C5, C6: the end of an agent, in its order, whatever fails on the way."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from loopkit import Latch, nap, of, plugin, reasons, results

from checkrein import Agent, AgentDisposed, tool
from checkrein.memory_store import MemoryStore
from checkrein.testing import call, text, wait
from checkrein.testing.script import hang


def test_C5_the_order_of_a_disposal(run, scripted):
    """Cancel with reason disposed, wait for the loop, flush, agent_disposed, unregister; observers see all of it."""
    model = scripted(call("nap"))
    seen: list[str] = []

    def flush(session: Any, gate: str) -> None:
        if gate == "turn_end":
            seen.append(f"flush behind {session.events[-1].type}, writer {session.writer is not None}")

    async def main() -> Any:
        probe = plugin(
            session_event=lambda event: seen.append(event.type) if event.type.startswith(("tool/r", "turn")) else None,
            session_flush=flush,
            agent_status=lambda status: seen.append(f"status {status}"),
            agent_disposed=lambda agent: seen.append(f"disposed, registered {agent.id in agent.harness.agents}"),
        )
        async with Agent(model, tools=[nap], plugins=[probe], store=MemoryStore()) as agent:
            agent.send("go")
            await anyio.sleep(1)
            house = agent.harness
            await agent.dispose()
            assert agent.id not in house.agents
            assert agent.session.writer is None
            return agent

    agent = run(main)
    assert reasons(agent) == ["disposed"]
    assert results(agent) == [("c1.1.1", "OUTCOME_UNKNOWN")]
    assert seen[:4] == ["status running", "turn/start", "tool/result", "turn/end"]
    rest = list(dict.fromkeys(seen[4:]))
    assert rest == ["flush behind turn/end, writer True", "status disposed", "disposed, registered True"]


def test_C5_is_idempotent_and_every_caller_awaits_the_same_completion(run, scripted):
    """Three at once and one afterwards: one disposal, nobody returns before it is done."""
    model = scripted(hang())
    flushes: list[str] = []

    async def flush(gate: str) -> None:
        if gate == "turn_end":
            await anyio.sleep(5)
            flushes.append(gate)

    disposals: list[str] = []

    async def main() -> Any:
        probe = plugin(session_flush=flush, agent_disposed=lambda agent: disposals.append(agent.id))
        async with Agent(model, plugins=[probe]) as agent:
            agent.send("go")
            await anyio.sleep(1)
            returned: list[bool] = []

            async def caller() -> None:
                await agent.dispose()
                returned.append(bool(disposals))

            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(caller)
            await caller()
            return returned

    assert run(main) == [True] * 4
    assert disposals == ["main"]


def test_C5_a_cancelled_caller_does_not_stop_the_disposal(run, scripted):
    """It runs in the owner task."""
    model = scripted(hang())

    async def flush(gate: str) -> None:
        if gate == "turn_end":
            await anyio.sleep(5)

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(session_flush=flush)]) as agent:
            agent.send("go")
            await anyio.sleep(1)
            with anyio.move_on_after(1):
                await agent.dispose()
            assert agent.status == "running"
            await agent.dispose()
            return agent

    agent = run(main)
    assert (agent.status, reasons(agent)) == ("disposed", ["disposed"])


def test_C5_nothing_is_accepted_from_the_call_on(run, scripted):
    """Not even in the tick of dispose(); the waiters of pending input hear of it."""
    model = scripted(hang())

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.send("go")
            await anyio.sleep(1)
            pending = agent.send("later")
            got: list[Any] = []

            async def waits() -> None:
                with pytest.raises(AgentDisposed, match="before a turn took"):
                    await pending.result()
                got.append("told")

            called = Latch()

            async def disposes() -> None:
                called.open()
                await agent.dispose()

            async with anyio.create_task_group() as group:
                group.start_soon(waits)
                await anyio.sleep(1)
                group.start_soon(disposes)
                await called.wait()
                with pytest.raises(AgentDisposed):
                    agent.send("too late")
            return agent, got

    agent, got = run(main)
    assert got == ["told"]
    assert [e.id for e in of(agent, "inbox/accepted")] == ["i1", "i2"]
    assert list(agent.session.state.pending) == ["i2"]  # it is in the log, and pending after a resume (trap X21)


def test_C5_observers_that_raise_do_not_change_the_end(run, scripted):
    """A raising status listener, flush and agent_disposed: faults, and it is disposed all the same (trap X16)."""
    model = scripted(hang())

    def boom(*_: Any) -> None:
        raise ValueError("no")

    def flush(gate: str) -> None:
        if gate == "turn_end":
            raise OSError("disk full")

    async def main() -> Any:
        probe = plugin(
            agent_status=lambda status: boom() if status == "disposed" else None,
            session_flush=flush,
            agent_disposed=lambda agent: boom(),
        )
        async with Agent(model, plugins=[probe]) as agent:
            house = agent.harness
            agent.send("go")
            await anyio.sleep(1)
            await agent.dispose()
            assert agent.id not in house.agents
            return agent

    agent = run(main)
    assert (agent.status, reasons(agent)) == ("disposed", ["disposed"])
    assert {e.hook for e in of(agent, "plugin/fault")} >= {"agent_status", "session_flush"}


def test_C5_disposed_outranks_a_cancel_in_the_same_tick(run, scripted):
    """T4's precedence, whichever came first."""
    model = scripted(hang())

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            agent.cancel()
            async with anyio.create_task_group() as group:
                group.start_soon(agent.dispose)
            return await receipt.result()

    assert run(main).reason.kind in ("disposed", "cancelled")


def test_C5_an_idle_agent_is_disposed_and_its_id_is_free(run, scripted):
    """Another agent may take the id."""
    from checkrein.agents import AgentSpec

    model = scripted("a", "b")

    async def main() -> Any:
        async with Agent(model) as agent:
            await agent.run("go")
            house = agent.harness
            await agent.dispose()
            other = await house.create_agent(AgentSpec(id="main", model="scripted:x"))
            return await other.run("go")

    assert run(main).text == "b"


@pytest.mark.parametrize("where", ["request", "tool", "thread", "flush"])
def test_C5_closing_the_harness_disposes_what_runs(run, scripted, where):
    """Wherever the turn is."""
    release, entered = threading.Event(), threading.Event()

    @tool
    def block() -> str:
        """Block."""
        entered.set()
        release.wait(10)
        return "late"

    async def flush(gate: str) -> None:
        if where == "flush" and gate == "request":
            await anyio.sleep(20)

    turn = {"request": hang(), "tool": call("nap"), "thread": call("block"), "flush": "x"}[where]

    async def main() -> Any:
        model = scripted(turn) if where != "flush" else scripted()
        async with Agent(model, tools=[nap, block], plugins=[plugin(session_flush=flush)]) as agent:
            agent.send("go")
            while where == "thread" and not entered.is_set():
                await anyio.sleep(0.01)
            await anyio.sleep(1)
        return agent

    agent = run(main)
    release.set()
    assert reasons(agent) == ["disposed"]


def test_C6_the_stream_of_a_disposed_turn_is_closed_before_the_end(run, scripted):
    """No generator outlives its owner."""

    async def main() -> Any:
        closed: list[str] = []
        latch = Latch()

        class Model:
            name = "slow"

            def stream(self, request: Any) -> Any:
                return self._play()

            async def _play(self) -> Any:
                from checkrein.chunks import TextChunk

                try:
                    yield TextChunk(0, "x")
                    latch.open()
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(0.5)
                    closed.append("closed")

            def missing(self) -> None:
                return None

            def default_model(self) -> str:
                return "x"

            def window_tokens(self, model: str) -> None:
                return None

        async with Agent(Model()) as agent:
            agent.send("go")
            await latch.wait()
            await agent.dispose()
            return closed

    assert run(main) == ["closed"]


def test_C5_dispose_between_turns(run, scripted):
    """While the last flush runs, with more input owed: no further turn begins."""
    model = scripted("1")
    latch: list[Latch] = []

    async def flush(gate: str) -> None:
        if gate == "turn_end" and latch:
            await latch[0].wait()

    async def main() -> Any:
        latch.append(Latch())
        async with Agent(model, plugins=[plugin(session_flush=flush)]) as agent:
            agent.send("a")
            await anyio.sleep(1)
            agent.send("b")
            async with anyio.create_task_group() as group:
                group.start_soon(agent.dispose)
                await anyio.sleep(1)
                latch.pop().open()
            return agent

    agent = run(main)
    assert reasons(agent) == ["completed"]
    assert list(agent.session.state.pending) == ["i2"]


def test_C5_a_disposal_seen_from_a_stream(run, scripted):
    """The consumer gets the end of its turn and leaves."""
    model = scripted([text("half"), wait(3600), text("never")])

    async def main() -> Any:
        async with Agent(model) as agent:
            items: list[str] = []
            async with anyio.create_task_group() as group, agent.stream("go") as turn:
                async for item in turn:
                    items.append(type(item).__name__)
                    if items[-1] == "TextDelta":
                        group.start_soon(agent.dispose)
                result = await turn.result()
            return items, result

    items, result = run(main)
    assert items[-1] == "TurnEnd"
    assert result.reason.kind == "disposed"


def test_C5_what_came_behind_the_last_turn_is_flushed_at_the_end(run, scripted):
    """Context for the next turn, and a plugin's own event: no turn's end has written them."""
    store = MemoryStore()

    async def main() -> Any:
        async with Agent(scripted("ok"), store=store) as agent:
            (await agent.run("go")).check()
            agent.inject("for the next turn")
            agent.session.append_free("notes/seen", {"page": 3}, plugin="notes")
            return agent.session

    session = run(main)
    lines = store.read(session.id).lines
    assert len(lines) == len(session.events)
    assert b"notes/seen" in lines[-1] and b"for the next turn" in lines[-2]
