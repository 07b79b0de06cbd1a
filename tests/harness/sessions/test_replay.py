"""R5: every session of the sweeps' worlds is replayed, and each event that is no outside fact comes out equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import world
from click.testing import CliRunner

import checkrein.session as session_module
from checkrein import Agent, Harness, tool
from checkrein import events as ev
from checkrein.cli.sessions import sessions as command
from checkrein.memory_store import MemoryStore
from checkrein.messages import TextBlock
from checkrein.recovery import recover
from checkrein.replay import replay
from checkrein.testing import ScriptedModel, call, run_virtual, text, thinking
from checkrein.testing.faults import FaultPlan, Seams
from checkrein_persistence import JsonlStore
from checkrein_persistence import Plugin as Persistence


@pytest.fixture
def made() -> Iterator[list[Any]]:
    """The sessions a test makes."""
    found: list[Any] = []

    def watch(session: Any) -> None:
        found.append(session)

    session_module.WATCHERS.append(watch)
    yield found
    session_module.WATCHERS.remove(watch)


def again(events: list[Any], backend: str = "asyncio") -> Any:
    """Replay a log in real time: its own watch looks for a loop that waits."""
    return anyio.run(replay, events, backend=backend)


def shown(report: Any) -> str:
    return "\n".join([str(report.stopped), *(f"{d.recorded}\n{d.replayed}" for d in report.differences)])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", sorted(world.SCRIPTS))
def test_R5_replay_makes_every_other_event_equal(name, backend, made):
    run_virtual(world.run_script, world.SCRIPTS[name], Seams(), backend=backend)
    events = list(made[0].events)
    report = again(events, backend)
    assert report.equal, shown(report)
    assert (report.events, report.total) == (len(events), len(events)) and report.made > 5


@pytest.mark.parametrize("kind", ["exception", "hang", "cancelled"])
@pytest.mark.parametrize("name", ["one_call", "three_parallel", "error_retried", "asked_allowed", "continued"])
def test_R5_sessions_in_which_something_failed_are_replayed_too(name, kind, made, faults):
    count = 0
    for k in range(1, 60, 3 if faults is None else 13):
        del made[:]
        run_virtual(world.run_script, world.SCRIPTS[name], Seams(FaultPlan(k=k, kind=kind)), backend="asyncio")
        if not made or not made[0].events:
            continue
        report = again(list(made[0].events))
        assert report.equal, f"fault {kind} at {k}:\n{shown(report)}"
        count += 1
    assert count > 3


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def talk(store: Any) -> str:
    model = ScriptedModel([thinking("hm"), text("I pay."), call("pay", {"amount": 3})], "done", "bye")
    async with Agent(model, tools=[pay], plugins=[Persistence()], store=store, system_prompt="be brief") as agent:
        await agent.run("pay")
        await agent.run("thanks")
        return agent.session.id


async def go_on(store: Any, session_id: str) -> None:
    options: dict[str, Any] = {"found": (), "overrides": {"model": "scripted:x"}}
    model = ScriptedModel("on", "on", "on")
    harness = Harness(tools=[pay], plugins=[Persistence()], providers=[model], store=store, **options)
    async with harness:
        (await (await harness.resume(session_id)).run("go on")).check()


def test_R5_killed_and_resumed_sessions_are_replayed():
    whole = MemoryStore()
    session_id = anyio.run(talk, whole)
    lines = list(whole.read(session_id).lines)
    for keep in range(2, len(lines)):
        store = MemoryStore()
        store.create(session_id, lines[:keep]).close()
        anyio.run(go_on, store, session_id)
        report = again(recover(store.read(session_id)).events)
        assert report.equal, f"killed behind {keep} lines:\n{shown(report)}"


def test_R5_a_log_that_ends_in_the_middle_is_replayed_up_to_there():
    store = MemoryStore()
    events = recover(store.read(anyio.run(talk, store))).events
    for keep in range(1, len(events)):
        report = again(events[:keep])
        assert report.equal and report.events == keep, shown(report)


@pytest.mark.checkrein_oracle_off(reason="the log was changed")
def test_R5_a_difference_is_shown_event_beside_event():
    store = MemoryStore()
    events = list(recover(store.read(anyio.run(talk, store))).events)
    at = next(n for n, e in enumerate(events) if type(e) is ev.UserInput)
    events[at] = msgspec.structs.replace(events[at], content=[TextBlock("something else")])
    report = again(events)
    assert not report.equal
    assert "something else" in report.differences[0].recorded and '"pay"' in report.differences[0].replayed
    rest = {msgspec.json.decode(d.recorded)["type"] for d in report.differences[1:]}
    assert rest == {"request/start"}, "the digests are of other words; everything else is equal"


@pytest.mark.checkrein_oracle_off(reason="the log was changed")
def test_R5_a_changed_digest_or_number_is_found():
    store = MemoryStore()
    events = list(recover(store.read(anyio.run(talk, store))).events)
    at = next(n for n, e in enumerate(events) if type(e) is ev.RequestStart)
    events[at] = msgspec.structs.replace(events[at], digest="0" * 64)
    report = again(events)
    assert [d.recorded.count("0" * 64) for d in report.differences] == [1]


@pytest.mark.checkrein_oracle_off(reason="a log with an event taken out")
def test_R5_a_log_that_goes_another_way_stops_the_replay():
    store = MemoryStore()
    events = list(recover(store.read(anyio.run(talk, store))).events)
    end = next(n for n, e in enumerate(events) if type(e) is ev.StepEnd)
    del events[end]
    report = again(events)
    assert not report.equal and report.stopped is not None


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    store = JsonlStore(tmp_path / ".checkrein")
    session_id = anyio.run(talk, store)
    before = Path(store.locate(session_id)).read_bytes()
    done = CliRunner().invoke(command, ["replay", session_id], catch_exceptions=False)
    assert done.exit_code == 0 and done.stdout.endswith(": equal\n"), done.stdout
    assert Path(store.locate(session_id)).read_bytes() == before
