"""Public bug reports about clients that read a session, acted out; docs/cases.md lists them all."""

from __future__ import annotations

from typing import Any

from checkrein import Agent
from checkrein.memory_store import MemoryStore
from checkrein.store import StoredLog
from checkrein.testing import ScriptedModel, forever

CLIENTS, TURNS, MISSED = 10, 30, 5


class Counting(MemoryStore):
    """Counts how often a whole session is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def read(self, session_id: str, start: int = 0) -> StoredLog:
        self.reads += 1
        return super().read(session_id, start)


def test_case_D19_clients_that_come_back_get_what_they_missed_and_no_copy(run: Any) -> None:
    """Each reconnect read the whole transcript of 22 MB anew, for each client: the process ran out of memory."""
    store = Counting()

    async def missed(agent: Agent, seq: int) -> list[Any]:
        got = []
        async with agent.harness.events({agent.session.id: seq}) as feed:
            async for item in feed:
                got.append(item.item)
                if item.seq == agent.session.events[-1].seq:
                    return got
        return got

    async def main() -> None:
        async with Agent(ScriptedModel(forever("x" * 20_000)), store=store) as agent:
            for turn in range(TURNS):
                assert (await agent.run(f"{turn}: " + "y" * 20_000)).ok
            events = agent.session.events
            for _ in range(CLIENTS):
                got = await missed(agent, events[-1 - MISSED].seq)
                wanted = events[-MISSED:]
                assert [getattr(item, "event", item) for item in got] == wanted
                assert all(getattr(item, "event", item) is event for item, event in zip(got, wanted, strict=True))

    run(main)
    assert store.reads == 0
