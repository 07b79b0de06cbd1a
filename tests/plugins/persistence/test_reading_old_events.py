"""Old events cost a session nothing that goes on: they are read back only when somebody asks for them (R5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkrein import Harness, tool
from checkrein.agents import AgentSpec
from checkrein.errors import CheckreinError
from checkrein.log import Page, Pages, onward
from checkrein.testing import ScriptedModel, call
from checkrein_persistence import FileOps, JsonlStore

TURNS = 6


def test_what_is_recent_is_had_without_reading_a_page() -> None:
    reads: list[int] = []

    def page(first: int) -> Page[int]:
        def read() -> list[int]:
            reads.append(first)
            return list(range(first, first + 10))

        return Page(10, read)

    numbers = Pages([page(0), page(10), page(20)], [30, 31, 32])
    assert list(onward(numbers, 30)) == [30, 31, 32] and list(onward(numbers, 33)) == []
    assert (numbers[30:], numbers[31:33], numbers[33:], numbers[-2:], numbers[-1]) == (
        [30, 31, 32],
        [31, 32],
        [],
        [31, 32],
        32,
    )
    assert reads == []
    assert list(onward(numbers, 28)) == [28, 29, 30, 31, 32] and numbers[29:31] == [29, 30]
    assert reads == [20, 20]


class Counting(FileOps):
    """Counts what is read of logs."""

    def __init__(self) -> None:
        self.reads = 0

    def read(self, path: Path, offset: int = 0, size: int = -1) -> bytes:
        self.reads += path.name == "log.jsonl"
        return super().read(path, offset, size)


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "something"


def test_R5_a_turn_of_a_resumed_session_reads_its_last_page_at_most(run: Any, tmp_path: Path) -> None:
    """With every plugin that comes installed: the oracle, guards, budgets and compaction among them."""

    def harness(ops: FileOps) -> Harness:
        model = ScriptedModel(*[turn for _ in range(TURNS) for turn in (call("look"), "seen")])
        made = Harness(
            tools=[look], providers=[model], store=JsonlStore(tmp_path / "kept", ops=ops, long_bytes=0, page_bytes=700)
        )
        made.specs = []
        return made

    async def main() -> None:
        spec = AgentSpec(id="a", model="scripted:x")
        async with harness(FileOps()) as first:
            agent = await first.create_agent(spec, session_id="s")
            for _ in range(TURNS):
                (await agent.run("and?")).check()
        ops = Counting()
        async with harness(ops) as second:
            agent = await second.resume("s", spec=spec)
            assert isinstance(agent.session.events, Pages) and len(agent.session.events.pages) > 10
            ops.reads = 0
            for _ in range(2):
                (await agent.run("and?")).check()
            assert ops.reads <= 2, "compaction looks for the last request; nobody else looks back"

    run(main)


def test_R4_a_rule_allowed_for_always_is_known_without_reading_the_log(run: Any, tmp_path: Path) -> None:
    """Permissions ask the session's projections, which a resumed one has from its log or its snapshot."""
    asked: list[str] = []

    @tool
    def act() -> str:
        """Act."""
        return "done"

    class Yes:
        async def decide(self, agent: Any, approval: Any) -> str:
            asked.append(approval.call_id)
            return "allowed_rule"

    async def main() -> None:
        from checkrein.agents import Approver

        spec = AgentSpec(id="a", model="scripted:x")
        for n in range(2):
            model = ScriptedModel(call("act"), "done")
            store = JsonlStore(tmp_path / "kept", long_bytes=0, page_bytes=700)
            harness = Harness(tools=[act], providers=[model], store=store)
            harness.specs = []
            async with harness:
                harness.provide(Approver, Yes())
                agent = await (harness.resume("s", spec=spec) if n else harness.create_agent(spec, session_id="s"))
                result = await agent.run("act")
                if not result.ok:
                    raise CheckreinError(str(result.reason))
                assert agent.session.state.allowed_rules == [agent.session.state.allowed_rules[0]]

    run(main)
    assert asked == ["c1.1.1"], "the second turn is another process's, and is not asked again"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the plugins' own folder is not this one's
