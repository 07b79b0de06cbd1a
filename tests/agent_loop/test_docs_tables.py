"""docs/seed-tests.md, docs/traps.md and docs/cases.md name tests that are there; docs/events.md what lines have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from loopkit import add, house, nap, until

from checkrein import Agent, events
from checkrein.memory_store import MemoryStore
from checkrein.sessions import fork
from checkrein.testing import ScriptedModel, call, hang, thinking

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"([\w/]+\.py)::(test_\w+)")


def rows(page: str) -> list[list[str]]:
    """The rows of a page's tables, without their heads."""
    lines = (ROOT / "docs" / page).read_text("utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in cells if row[-1] != "shown by" and row[-1] != "shown right by"]


@pytest.mark.parametrize(("page", "at_least"), [("seed-tests.md", 80), ("traps.md", 55), ("cases.md", 145)])
def test_each_row_names_a_test_that_is_there_or_says_not_yet(page, at_least):
    found = rows(page)
    assert len(found) >= at_least
    for row in found:
        named = TEST.findall(row[-1])
        assert named or (page == "cases.md" and row[-1].startswith("not yet")), row
        for file, test in named:
            assert f"def {test}(" in (ROOT / "tests" / file).read_text("utf-8"), (row[0], file, test)


def test_each_trap_and_each_report_stands_once():
    traps = [row[0] for row in rows("traps.md") if re.fullmatch(r"X\d+", row[0])]
    assert traps == [f"X{n}" for n in range(1, 23)]
    cases = [row[0] for row in rows("cases.md")]
    assert len(cases) == len(set(cases)) == 145


def test_every_loop_case_is_shown():
    """The kinds that concern the loop: none is missing but what needs a shell tool."""
    kinds = {"pairing", "steering-queue", "loops-limits", "async-cancel", "parallel-tools"}
    missing = [row[0] for row in rows("cases.md") if row[1] in kinds and row[-1].startswith("not yet")]
    assert missing in ([], ["T12"])


def members() -> dict[str, set[str]]:
    """By type, the members that docs/events.md does not mark as optional."""
    found: dict[str, set[str]] = {}
    for kinds, said in (row for row in rows("events.md") if len(row) == 2):
        for kind in re.findall("`([^`]+)`", kinds):
            parts = [part for part in said.split(" · ") if " or `" not in part and not part.endswith("}?")]
            found[kind] = {name for part in parts for name in re.findall(r"^`(\w+)`(?!\?)", part)}
    return found


def test_what_events_md_does_not_mark_as_optional_stands_in_every_line(run, monkeypatch):
    """A request that took no time says so, and facts name the derivation: a line that names none is of the first."""
    monkeypatch.setattr(events, "DERIVATION", 2)
    store = MemoryStore()
    model = ScriptedModel([thinking("so"), call("add", {"a": 1, "b": 2})], "ok", call("nap"), hang(), "on")

    async def main() -> list[Any]:
        async with Agent(model, tools=[add, nap], store=store) as agent:
            await agent.run("one")
            for due in (lambda: agent.turn.calls, lambda: agent.session.state.request_open):
                receipt = agent.send("more")
                await until(due)
                agent.cancel()
                await receipt.result()
            stored = MemoryStore()
            stored.create(agent.session.id, agent.session.lines).close()
            forked = fork(stored, agent.session.id)
        async with house(model, store=stored) as harness:
            resumed = await harness.resume(forked)
            await resumed.run("go on")
            return list(resumed.session.lines)

    documented = members()
    lines = [msgspec.json.decode(line) for line in run(main)]
    assert {"session/created", "session/resumed", "request/end", "tool/result"} <= {line["type"] for line in lines}
    for line in lines:
        assert documented[line["type"]] <= set(line), line
    facts = [line for line in lines if line["type"] in ("session/created", "session/resumed")]
    assert [fact["derivation"] for fact in facts] == [2, 2, 2]
    assert "duration_ms" in next(line for line in lines if line["type"] == "request/end")
