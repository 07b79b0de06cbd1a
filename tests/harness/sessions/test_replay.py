"""R5: every session of the sweeps' worlds is replayed, and each event that is no outside fact comes out equal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import world
from click.testing import CliRunner

import checkrein.session as session_module
from checkrein import Agent, AgentSpec, Approver, Ask, Harness, Retry, ToolContext, hookimpl, tool
from checkrein import events as ev
from checkrein.cli.sessions import sessions as command
from checkrein.memory_store import MemoryStore
from checkrein.messages import TextBlock, content_text
from checkrein.recovery import recover
from checkrein.replay import replay
from checkrein.testing import ScriptedModel, call, error, run_virtual, text, thinking
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


def every_part(events: list[Any], step: int = 1) -> None:
    """Replay a log that is cut anywhere, under virtual time: each part is equal, to its end."""
    for keep in range(1, len(events) + 1, step):
        report = run_virtual(replay, events[:keep], backend="asyncio")
        assert report.equal and report.events == keep, f"{keep} events:\n{shown(report)}"


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


async def live(store: Any, session_id: str, *answers: Any, said: str = "sss", **spec: Any) -> None:
    """One life of a session, under limits of its own: sends (s) and steers (t) while its first call takes a while."""
    harness = Harness(
        tools=[nap, asks], plugins=[Questions()], providers=[ScriptedModel(*answers)], store=store, found=()
    )
    harness.specs = []
    async with harness:
        harness.provide(Approver, Someone())
        spec_ = AgentSpec(id="a", model="scripted:x", **spec)
        known = [info.id for info in store.list()]
        if session_id in known:
            agent = await harness.resume(session_id, spec=spec_)
        else:
            agent = await harness.create_agent(spec_, session_id=session_id)
        agent.send("first")
        await anyio.sleep(0.5)
        for n, how in enumerate(said):
            (agent.send if how == "s" else agent.steer)(f"{how} {n}")
        await agent.idle()


@tool(read_only=True)
async def nap() -> str:
    """Nap."""
    await anyio.sleep(1)
    return "slept"


@tool
async def asks(context: ToolContext) -> str:
    """Call another one, which has to be allowed."""
    return (await context.call("nap", {})).content[0].text  # type: ignore[union-attr]


class Questions:
    """Asks about each nap."""

    @hookimpl
    def tools_guard(self, call: Any) -> Ask | None:
        return Ask("may it?") if call.name == "nap" else None


class Someone:
    """Allows everything, after a while."""

    async def decide(self, agent: Any, approval: Any) -> str:
        await anyio.sleep(0.2)
        return "allowed_once"


LIVES: dict[str, list[tuple[list[Any], dict[str, Any]]]] = {
    "a limit of steps was raised": [
        ([call("nap")] * 2, {"max_steps": 2, "said": ""}),
        ([call("nap")] * 4 + ["done"], {"max_steps": 9, "said": ""}),
    ],
    "one by one, then all at once": [
        ([call("nap"), "1", "2", "3"], {"queue_mode": "one", "said": "ss"}),
        ([call("nap"), "1", "2"], {"queue_mode": "all", "said": "sss"}),
        ([call("nap"), "1", "2", "3"], {"queue_mode": "one", "said": "ss"}),
    ],
    "steering extends, then no more": [
        (["1", "2"], {"said": "t"}),
        ([call("nap"), "1", "2", "3"], {"max_steering_extensions": 0, "said": "t", "max_steps": 2}),
        ([call("nap"), "1", "2", "3"], {"max_steps": 1, "said": "t"}),
    ],
    "a question inside a call": [([call("asks"), "done"], {"said": "t"})],
}


@pytest.mark.parametrize("name", sorted(LIVES))
def test_R5_each_life_has_its_own_limits_and_what_they_allowed_is_in_the_log(name):
    store = MemoryStore()
    for answers, options in LIVES[name]:
        run_virtual(partial(live, store, "s", *answers, **options), backend="asyncio")
    events = recover(store.read("s")).events
    every_part(list(events))


class Refuses:
    """Takes no answer of calls alone, and sends a failed request again with other settings."""

    @hookimpl
    def step_result(self, message: Any) -> None:
        if message.calls and not content_text(message.content):
            raise ValueError("not this")

    @hookimpl
    def agent_request(self, request: Any, agent: Any) -> Any:
        return request.replace(settings={"n": len(agent.session.events)})

    @hookimpl
    def request_error(self, attempt: int) -> Retry | None:
        return Retry() if attempt == 1 else None


@pytest.mark.checkrein_oracle_off(reason="behind the end of a log that was cut, the replay writes in its own name")
@pytest.mark.parametrize("answers", [[call("nap")], [error("SERVER"), "done"]], ids=["an answer refused", "sent again"])
def test_R5_a_plugin_that_refuses_an_answer_or_changes_what_is_sent_again(answers):
    """Cut anywhere, also between the two attempts."""
    store = MemoryStore()

    async def main() -> str:
        async with Agent(ScriptedModel(*answers), tools=[nap], plugins=[Refuses()], store=store) as agent:
            await agent.run("go")
            return agent.session.id

    events = recover(store.read(run_virtual(main, backend="asyncio"))).events
    every_part(list(events))


class FailsOnce:
    """Raises in the first turn."""

    @hookimpl
    def agent_request(self, turn: int) -> None:
        if turn == 1:
            raise ValueError("not now")


@pytest.mark.checkrein_oracle_off(reason="behind the end of a log that was cut, the replay writes in its own name")
@pytest.mark.parametrize("plugins", [[], [FailsOnce()]], ids=["sent", "not sent"])
def test_R5_a_turn_on_another_model_is_replayed_also_where_nothing_says_which_it_used(plugins):
    """The log ends before the header, or a plugin fails before it."""
    store = MemoryStore()
    other = ScriptedModel(call("nap"), "done")
    other.name = "other"

    async def main() -> str:
        async with Agent(ScriptedModel("one"), tools=[nap], plugins=plugins, store=store) as agent:
            agent.harness.providers.add(other)
            await agent.run("go", model="other:x")
            await agent.run("not there", model="nowhere:x")
            (await agent.run("go")).check()
            return agent.session.id

    events = recover(store.read(run_virtual(main, backend="asyncio"))).events
    every_part(list(events))


@pytest.mark.parametrize("kind", ["hang", "cancelled"])
@pytest.mark.parametrize("name", ["steered", "asked_allowed", "three_parallel"])
def test_R5_a_log_that_was_cut_anywhere_is_replayed_up_to_there(name, kind, made):
    """Also between the events that closed a turn, and behind an input that the store did not take."""
    for k in (7, 12):
        del made[:]
        run_virtual(world.run_script, world.SCRIPTS[name], Seams(FaultPlan(k=k, kind=kind)), backend="asyncio")
        events = list(made[0].events)
        every_part(events, step=2)


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
