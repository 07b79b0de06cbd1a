"""Logs of processes that died, opened again by a real harness: what comes out is balanced (R1, R2)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from checkrein import Agent, Harness, tool
from checkrein.codec import encode, seal
from checkrein.events import AnyEvent, ApprovalAsked, RequestHeader, RequestStart, ToolResulted
from checkrein.memory_store import MemoryStore
from checkrein.messages import ToolMessage
from checkrein.requests import rebuild
from checkrein.session import Session
from checkrein.testing import ScriptedModel
from checkrein_invariants import LogBuilder, Oracle, check_events
from checkrein_invariants.deep import EVERY, Deep
from checkrein_invariants.rules import Report
from checkrein_invariants.samples import everything, with_true_requests
from checkrein_persistence import Plugin


def sealed(events: list[AnyEvent]) -> list[bytes]:
    return [seal(encode(event)) for event in events]


def prefixes() -> list[Any]:
    """Every state the process could have died in; one prefix a length."""
    log = busy()
    return [
        pytest.param(length, id=f"{length:02}-{log.events[length - 1].type}") for length in range(1, len(log.events))
    ]


def busy() -> LogBuilder:
    """Two turns with everything that may be open: approvals, ended siblings, unstarted calls, nested calls."""
    log = LogBuilder()
    log.start_turn()
    log.start_step()
    log.start_request()
    log.think()
    log.end_request()
    a, b, c = log.answer("I will", [("write", "{}"), ("read", "{}"), ("write", "{}")], thinking=[0])
    log.start(b, "read_only")
    end = log.end(b, "text")
    log.ask(a, "a1")
    log.decide("a1")
    log.start(a)
    inner = log.nested(a)
    log.start(inner)
    log.result(inner)
    log.result(a)
    log.result(b, end=end)
    log.result(c, code="DENIED")
    log.end_step()
    log.start_step()
    log.start_request()
    log.end_request("error")
    log.partial()
    log.start_request()
    log.end_request()
    log.answer("done")
    log.end_step()
    log.end_turn()
    log.compact(1, len(log.events) - 1)
    log.simple_turn()
    return with_true_requests(log)


async def resumed(lines: list[bytes]) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """Open the log, run one turn, open it again; returns its events after each open."""
    store = MemoryStore()
    store.create("s1", lines).close()
    opened: list[list[AnyEvent]] = []
    for _ in range(2):
        async with Harness(providers=[ScriptedModel("hello")], plugins=[Plugin], store=store, found=()) as harness:
            agent = await harness.resume("s1")
            opened.append(list(agent.session.events))
    return opened[0], opened[1]


def problems(events: list[AnyEvent]) -> list[str]:
    found = [str(violation) for violation in check_events(events) if violation.severity == "error"]
    report = Report()
    derived = Deep(report, when=EVERY)
    for event in events:
        report.seq = event.seq
        derived.feed(event)
    return found + [str(violation) for violation in report.violations]


@pytest.mark.parametrize("length", prefixes())
def test_R2_a_log_cut_anywhere_is_balanced_when_it_is_opened(length: int) -> None:
    events = busy().events[:length]
    first, second = anyio.run(resumed, sealed(events))
    assert problems(first) == []
    assert first[:length] == events
    assert second == first, "opening twice adds nothing"


def test_R1_a_log_with_a_hole_anywhere_is_right_when_it_is_opened() -> None:
    log = everything()
    lines = sealed(log.events)
    for hole in range(1, len(lines) - 1, 3):
        first, second = anyio.run(resumed, [*lines[:hole], b"\x00" * 9, *lines[hole + 1 :]])
        oracle = Oracle()
        for event in first:
            oracle.feed(event)
        assert [str(v) for v in oracle.finish() if v.severity == "error"] == [], hole
        assert second == first, f"opening twice adds nothing ({hole})"


async def gone_on(lines: list[bytes]) -> tuple[str, list[AnyEvent]]:
    """Open a log and run one turn: what came of it, and the events."""
    store = MemoryStore()
    store.create("s1", lines).close()
    model = ScriptedModel("one", "two", "three")
    async with Harness(providers=[model], plugins=[Plugin], store=store, found=()) as harness:
        agent = await harness.resume("s1")
        result = await agent.run("go on")
        return result.reason.kind, list(agent.session.events)


def lost() -> list[Any]:
    """Each event of a busy log alone, and all of a type."""
    events = busy().events
    holes = {f"{seq:02}-{event.type}": {seq} for seq, event in enumerate(events)}
    for event in events:
        holes.setdefault(f"all-{event.type}", set()).add(event.seq)
    return [pytest.param(hole, id=name) for name, hole in holes.items()]


@pytest.mark.parametrize("hole", lost())
def test_R1_a_session_goes_on_whatever_its_log_has_lost(hole: set[int]) -> None:
    """Its next input and what follows are legal: no id of something whose beginning is lost is given again."""
    lines = [b"\x00" * 9 if seq in hole else line for seq, line in enumerate(sealed(busy().events))]
    reason, events = anyio.run(gone_on, lines)
    assert reason == "completed"
    assert problems(events) == []


@pytest.mark.parametrize("part", ["system", "tool"])
def test_L7_what_the_log_lost_of_the_prompt_is_written_again(part: str) -> None:
    """The header that names it is still there: each request of the resumed session can be rebuilt all the same."""
    store = MemoryStore()

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def agent() -> Agent:
        return Agent(ScriptedModel("ok"), system_prompt="be good", tools=[look], store=store, plugins=[Plugin])

    async def first() -> str:
        async with agent() as made:
            await made.run("go")
            return made.session.id

    async def again(session_id: str) -> list[AnyEvent]:
        async with agent() as made:
            resumed = await made.harness.resume(session_id)
            await resumed.run("go on")
            return list(resumed.session.events)

    lines = [line for line in store.read(anyio.run(first)).lines if f'"kind":"{part}"'.encode() not in line]
    store.create("s2", lines).close()
    events = anyio.run(again, "s2")
    before, behind = [event.seq for event in events if type(event) is RequestStart]
    request, _ = rebuild(events, behind)
    assert (list(request.system), [tool.name for tool in request.tools]) == (["be good"], ["look"])
    with pytest.raises(ValueError, match="prompt/part"):
        rebuild(events, before)
    assert len([event for event in events if type(event) is RequestHeader]) == 1


@pytest.mark.parametrize("lost", ["a1", "a2"])
def test_R1_no_approval_gets_the_id_of_another_when_one_is_lost(lost: str) -> None:
    """They are numbered on behind the last one that is known, be it by its decision alone."""
    log = LogBuilder()
    log.start_turn()
    log.start_step()
    log.start_request()
    log.end_request()
    calls = log.answer("I will", [("write", "{}"), ("write", "{}")])
    for call_id, approval in zip(calls, ("a1", "a2"), strict=True):
        log.ask(call_id, approval)
        log.decide(approval)
    kept = [event for event in log.events if not (type(event) is ApprovalAsked and event.id == lost)]
    assert Session.load("s1", kept, sealed(kept)).state.approvals_asked == 2


def test_R2_what_a_nested_call_came_to_stands_before_its_parents_result() -> None:
    """All were running when the process died: a call ended no later than the one that made it, at any depth."""
    log = LogBuilder()
    log.start_turn()
    log.start_step()
    log.start_request()
    log.end_request()
    (outer,) = log.answer("I will", [("write", "{}")])
    log.start(outer)
    inner = log.nested(outer)
    log.start(inner)
    innermost = log.nested(inner)
    events, _ = anyio.run(resumed, sealed(log.events))
    assert [event.call_id for event in events if type(event) is ToolResulted] == [innermost, inner, outer]


@pytest.mark.parametrize("is_error", [False, True])
def test_R1_an_end_whose_result_is_lost_is_told_as_what_it_was(is_error: bool) -> None:
    """A call that failed stays failed to the model, when all that is left of it is its `tool/end`."""
    log = LogBuilder()
    log.start_turn()
    log.start_step()
    log.start_request()
    log.end_request()
    first, second = log.answer("I will", [("write", "{}"), ("write", "{}")])
    log.start(second)
    end = log.end(second, "what it said", is_error)
    log.result(first)
    log.result(second, end=end)
    log.end_step()
    kept = [event for event in log.events if type(event) is not ToolResulted]
    answers = [m for m in Session.load("s1", kept, sealed(kept)).state.history.view() if isinstance(m, ToolMessage)]
    assert [(m.call_id, m.is_error) for m in answers] == [(first, True), (second, is_error)]
