"""R4, C4, I3: what becomes of input when a store, or a driver, fails: refused, parked, never lost, never for ever."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import of, plugin, said, started

from checkrein import Agent, GateClosed
from checkrein.memory_store import MemoryStore
from checkrein.testing import text, wait


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


def test_C4_a_driver_that_fails_around_turns_does_not_spin(run, scripted, monkeypatch):
    """A defect of our own: a fault says so, the input is parked, and the next try works."""
    model = scripted("ok")
    failed: list[str] = []

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(session_flush=lambda: None)]) as agent:
            plain = agent.hooks.gather

            async def gather(chain: Any, session: Any, gate: str, contained: bool) -> Any:
                if not failed:
                    failed.append(gate)
                    raise RuntimeError("a defect")
                return await plain(chain, session, gate, contained)

            monkeypatch.setattr(agent.hooks, "gather", gather)
            receipt = agent.send("go")
            await anyio.sleep(1)
            assert (agent.status, receipt.status.state) == ("idle", "pending")
            assert [(f.plugin, f.hook) for f in of(agent, "plugin/fault")] == [("checkrein", "driver")]
            agent.wake()
            return await receipt.result()

    assert run(main).ok and failed == ["input"]


class FillsUp(MemoryStore):
    """Takes nothing more once it is full."""

    full = False

    def create(self, session_id: str, lines: Any) -> Any:
        writer = super().create(session_id, lines)
        append = writer.append

        def checked(lines: Any) -> None:
            if self.full:
                raise OSError("disk full")
            append(lines)

        writer.append = checked  # type: ignore[method-assign]
        return writer


def test_I3_R4_a_store_that_fills_up_refuses_what_it_did_not_take_and_keeps_what_it_did(run, scripted):
    """An input that was durable before stays pending, whatever the store does later; one with a waiter is told."""
    model = scripted([wait(5), text("1")], "2")
    store = FillsUp()
    told: list[str] = []

    async def waits(agent: Any) -> None:
        with pytest.raises(GateClosed, match="disk full"):
            await agent.run("waited for")
        told.append("waited for")

    async def main() -> Any:
        async with Agent(model, store=store) as agent, anyio.create_task_group() as group:
            agent.send("go")
            await started(agent)
            kept = agent.send("kept")
            await kept.durable()
            group.start_soon(waits, agent)
            await anyio.sleep(1)
            store.full = True
            await agent.idle()
            with pytest.raises(GateClosed, match="disk full"):
                await agent.send("refused").result()
            assert kept.status.state == "pending" and agent.status == "idle"
            store.full = False
            agent.wake()
            assert (await kept.result()).text == "2"
            return agent

    agent = run(main)
    assert (said(agent), told) == (["go", "kept"], ["waited for"])
    assert [event.id for event in of(agent, "inbox/discarded")] == ["i3", "i4"]


def test_I3_R4_an_input_that_a_second_flusher_refuses_is_refused(run, scripted):
    """The store's plugin took it, the replica's did not: the gate is closed, and the key may come again."""
    model = scripted([wait(5), text("1")], "2")
    broken: list[bool] = []

    def replicate(session: Any, gate: str) -> None:
        if broken:
            raise OSError("replica gone")

    async def main() -> Any:
        async with Agent(model, store=MemoryStore(), plugins=[plugin(session_flush=replicate)]) as agent:
            agent.send("go")
            await started(agent)
            kept = agent.send("kept")
            await anyio.sleep(10)  # the turn's end confirms it, then a turn takes it
            assert kept.status.state == "in turn"
            broken.append(True)
            refused = agent.send("again", key="k")
            await agent.idle()
            assert refused.status.state == "discarded"
            with pytest.raises(GateClosed, match="replica gone"):
                await agent.send("again", key="k").result()
            broken.clear()
            again = agent.send("again", key="k")
            await again.result()
            return agent

    agent = run(main)
    assert said(agent) == ["go", "kept", "again"]


def test_R4_what_the_end_of_a_turn_confirmed_stays_pending(run, scripted):
    """Input that came during a turn is with the store behind its end: a gate that closes then parks it."""
    model = scripted([wait(5), text("1")], "2")
    gates: list[str] = []

    def replicate(session: Any, gate: str) -> None:
        gates.append(gate)
        if gates[-2:] == ["turn_end", "input"] and gates.count("turn_end") == 1:
            raise OSError("replica gone")

    async def main() -> Any:
        async with Agent(model, store=MemoryStore(), plugins=[plugin(session_flush=replicate)]) as agent:
            agent.send("go")
            await started(agent)
            kept = agent.send("kept")
            await agent.idle()
            assert kept.status.state == "pending"
            agent.wake()
            return (await kept.result()).text

    assert run(main) == "2"
