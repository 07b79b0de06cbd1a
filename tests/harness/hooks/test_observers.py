"""H2, H4, H5, H7 and L4: observers that fail, answer events with events, come and leave inside a call; accounts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from hookkit import CALL, act, call, play, plugin, raising

import checkrein.faults as faults_module
from checkrein import Deny, Harness, hookimpl, tool
from checkrein import events as ev
from checkrein.agents import AgentSpec
from checkrein.cli.plugins import hook_rows, plugins
from checkrein.decisions import Allow
from checkrein.errors import RefusedAtAppend
from checkrein.testing import ScriptedModel

# --- H5: switched off ---------------------------------------------------------------------------------


def counting(name: str, counts: dict[str, int], fails: int = 10**9) -> Any:
    """An observer of events that fails so many times."""

    def session_event(event: Any) -> None:
        counts[name] = counts.get(name, 0) + 1
        if counts[name] <= fails:
            raise ValueError(f"failure {counts[name]}")

    return plugin(name, session_event=session_event)


def test_H5_an_observer_is_switched_off_after_three_faults_visibly(run):
    counts: dict[str, int] = {}
    played = play(run, counting("bad", counts), counting("good", counts, fails=0))
    assert counts["bad"] == 3 and counts["good"] > 10
    assert [action for _, _, action in played.faults] == ["contained", "contained", "switched_off"]
    account = played.account("bad", "session_event")
    assert (account.calls, account.faults, account.off) == (3, 3, True)


def test_H5_two_faults_are_not_enough(run):
    counts: dict[str, int] = {}
    played = play(run, counting("shaky", counts, fails=2))
    assert counts["shaky"] > 10 and len(played.faults) == 2


def test_H5_faults_far_apart_are_forgiven(run, monkeypatch):
    now = iter(range(0, 10**6, 31))
    monkeypatch.setattr(faults_module, "monotonic", lambda: float(next(now)))
    counts: dict[str, int] = {}
    played = play(run, counting("rarely", counts))
    assert counts["rarely"] > 10 and {action for _, _, action in played.faults} == {"contained"}


def test_H5_only_the_hook_that_fails_is_switched_off(run):
    seen: list[str] = []
    both = plugin("both", session_event=raising(), agent_status=lambda status: seen.append(status))
    play(run, both)
    assert seen == ["running", "idle", "disposed"]


def test_H5_what_can_refuse_is_never_switched_off(run):
    async def tools_execute(call: Any, proceed: Any) -> Any:
        raise ValueError("broken")

    calls = [call("act")] * 3
    played = play(run, plugin("bad", tools_execute=tools_execute), turns=[calls, calls, "done"])
    assert played.outcomes == ["REFUSED_BY_FAULT"] * 6
    assert not any(impl.off for impl in played.harness.hooks.accounts())


def test_H5_a_failing_store_closes_its_gate_every_time(run):
    async def act_on(agent: Any) -> Any:
        for _ in range(5):
            with pytest.raises(Exception, match="did not take"):
                await agent.run("go")
        return SimpleNamespace(ok=True)

    played = play(run, plugin("store", session_flush=raising(OSError("disk full"))), act_on=act_on)
    assert len(played.faults) >= 5 and not any(impl.off for impl in played.harness.hooks.accounts())


def test_case_H14_a_plugin_that_fails_at_every_turn_end_is_shown(run):
    """Not swallowed: its faults are events, accounts, and in the end `switched_off`."""

    def session_event(event: Any) -> None:
        if event.type == "turn/end":
            raise AttributeError("'Session' object has no attribute 'events_v1'")

    async def act_on(agent: Any) -> Any:
        for _ in range(4):
            result = await agent.run("go")
        return result

    played = play(run, plugin("v1", session_event=session_event), turns=["1", "2", "3", "4"], act_on=act_on)
    assert [action for _, _, action in played.faults] == ["contained", "contained", "switched_off"]
    rows = {row["hook"]: row for row in hook_rows(played.harness.plugins, accounts=played.harness.hooks.accounts())}
    assert rows["session_event"]["implementations"][0]["faults"] == 3


# --- L4: appends of observers -----------------------------------------------------------------------------


def test_L4_an_append_inside_an_observer_is_committed_right_after(run):
    pending: list[Any] = []

    class Notes:
        name = "notes"

        @hookimpl
        def session_event(self, session: Any, event: Any) -> None:
            if event.type == "step/start":
                pending.append(session.append_free("notes/seen", {"of": event.seq}, plugin="notes"))
                assert pending[-1].event is None

    played = play(run, Notes())
    kinds = [event.type for event in played.events]
    for deferred, at in zip(pending, [i for i, kind in enumerate(kinds) if kind == "step/start"], strict=True):
        assert kinds[at + 1] == "notes/seen" and deferred.event is played.events[at + 1]


@pytest.mark.parametrize("depth", [3, 8, 9, 20])
def test_L4_events_answer_events_at_most_eight_generations_deep(run, depth):
    class Answers:
        name = "answers"

        @hookimpl
        def session_event(self, session: Any, event: Any) -> None:
            if event.type == "turn/start":
                session.append_free("answers/1", {}, plugin="answers")
            elif event.type.startswith("answers/") and int(event.type[8:]) < depth:
                session.append_free(f"answers/{int(event.type[8:]) + 1}", {}, plugin="answers")

    played = play(run, Answers())
    assert played.result.ok
    made = [event.type for event in played.events if event.type.startswith("answers/")]
    assert made == [f"answers/{n}" for n in range(1, min(depth, 8) + 1)]
    assert played.faults == ([] if depth <= 8 else [("answers", "session_event", "contained")])


def test_L4_observers_that_answer_each_other_for_ever_come_to_an_end(run):
    def answering(name: str) -> Any:
        def session_event(session: Any, event: Any) -> None:
            if event.type == "turn/start" or event.type.startswith("ping/"):
                session.append_free(f"ping/{name}", {}, plugin=name)

        return plugin(name, session_event=session_event)

    played = play(run, answering("a"), answering("b"))
    assert played.result.ok and len(played.events) < 2_000


@pytest.mark.checkrein_oracle_off(reason="a plugin appends what no rule allows, and is contained")
def test_L4_an_illegal_append_inside_an_observer_is_its_plugins_fault(run):
    def session_event(session: Any, event: Any) -> None:
        if event.type == "turn/start":
            session.append(ev.StepEnd, turn=1, step=1)

    played = play(run, plugin("bad", session_event=session_event))
    assert played.result.ok and played.faults == [("bad", "session_event", "contained")]
    assert "O5" in played.of(ev.PluginFaulted)[0].error.message


def test_L4_every_observer_is_told_even_when_interrupted(run):
    """A KeyboardInterrupt is held until all were called; then the turn is closed and the waiter gets it (C10)."""
    seen: list[str] = []

    def strikes(event: Any) -> None:
        if event.type == "step/start":
            raise KeyboardInterrupt

    async def act_on(agent: Any) -> Any:
        with pytest.raises(KeyboardInterrupt):
            await agent.run("go")
        return SimpleNamespace(ok=True)

    played = play(
        run,
        plugin("strikes", session_event=strikes),
        plugin("sees", session_event=lambda event: seen.append(event.type)),
        act_on=act_on,
    )
    assert seen.count("step/start") == seen.count("step/end") == 1 and seen.count("turn/end") == 1
    assert played.of(ev.TurnEnd)[0].reason.cause.kind == "signal"


def test_H2_an_observer_is_not_told_of_faults_it_caused(run):
    told: list[str] = []

    def session_event(event: Any) -> None:
        if type(event) is ev.PluginFaulted:
            told.append(event.plugin)
        if event.type == "turn/start":
            raise ValueError("mine")

    other: list[str] = []

    def sees(event: Any) -> None:
        if type(event) is ev.PluginFaulted:
            other.append(event.plugin)

    play(run, plugin("culprit", session_event=session_event), plugin("other", session_event=sees))
    assert told == [] and other == ["culprit"]


def test_L2_what_an_observer_appends_is_cleaned_or_refused_with_its_path(run):
    refused: list[str] = []

    def session_event(session: Any, event: Any) -> None:
        if event.type == "turn/start":
            session.append_free("x/clean", {"text": "a\ud800"}, plugin="p")
            with pytest.raises(RefusedAtAppend) as info:
                session.append_free("x/bad", {"a": [1, object()]}, plugin="p")
            refused.append(str(info.value))

    played = play(run, plugin("p", session_event=session_event))
    clean = next(event for event in played.events if event.type == "x/clean")
    assert (clean.fields["text"], clean.fields["cleaned"]) == ("a\ufffd", 1)
    assert "$.a[1]" in refused[0] and not played.faults


# --- H4: coming and leaving inside a call --------------------------------------------------------------------


def test_H4_registering_and_unregistering_inside_a_call_changes_the_next_call(run):
    order: list[str] = []

    class First:
        name = "first"

        @hookimpl
        def agent_request(self, agent: Any, step: int) -> None:
            order.append(f"first {step}")
            if step == 1:
                agent.harness.plugins.unregister("second")
                agent.harness.plugins.register(plugin("third", agent_request=lambda: order.append("third")))

    played = play(run, First(), plugin("second", agent_request=lambda: order.append("second")))
    assert played.result.ok
    assert order == ["first 1", "second", "first 2", "third"], "the running chain is a snapshot"


def test_H4_a_plugin_may_unregister_itself_inside_every_hook(run):
    left: list[str] = []

    def leaving(name: str, hook: str) -> Any:
        def once(agent: Any) -> None:
            agent.harness.plugins.unregister(name)
            left.append(name)

        return plugin(name, **{hook: once})

    hooks = ["agent_created", "agent_status", "agent_request", "step_result", "tools_guard", "turn_continuation"]
    played = play(run, *[leaving(f"p{n}", hook) for n, hook in enumerate(hooks)])
    assert played.result.ok and sorted(left) == [f"p{n}" for n in range(len(hooks))]
    assert played.harness.plugins.names() == []


def test_H4_a_guard_that_joins_while_a_call_runs_is_asked_about_the_next(run):
    @tool
    async def joins() -> str:
        """Register a guard."""
        harnesses[0].plugins.register(plugin("late", tools_guard=lambda: Deny("from now on")))
        return "joined"

    harnesses: list[Any] = []
    created = plugin("keeps", agent_created=lambda agent: harnesses.append(agent.harness))
    played = play(run, created, turns=[call("joins"), CALL, "ok"], tools=[joins, act])
    assert played.outcomes == ["joined", "DENIED"]


def test_H4_what_a_plugin_brought_is_gone_for_the_model_at_once(run):
    @tool
    async def brought() -> str:
        """Came with a plugin."""
        return "here"

    async def act_on(agent: Any) -> Any:
        first = await agent.run("go")
        agent.harness.plugins.unregister("brings")
        await agent.run("again")
        return first

    played = play(
        run,
        plugin("brings", register_tools=lambda: [brought]),
        turns=[call("brought"), "ok", call("brought"), "ok"],
        act_on=act_on,
    )
    assert played.outcomes == ["here", "UNKNOWN_TOOL"]
    assert [len(request.tools) for request in played.model.requests] == [4, 4, 3, 3]


# --- H6: config per agent ------------------------------------------------------------------------------------


def test_H6_an_agents_own_config_reaches_the_plugin(run):
    from dataclasses import dataclass

    seen: dict[str, int] = {}

    class Limit:
        @dataclass(frozen=True)
        class Config:
            most: int = 20
            word: str = "calls"

        def __init__(self, config: Config) -> None:
            self.config = config

        @hookimpl
        def tools_guard(self, agent: Any) -> Any:
            config = agent.harness.plugins.config_for("limit", agent.spec)
            seen[agent.id] = config.most
            return Deny(f"more than {config.most} {config.word}") if agent.turn.calls > config.most else Allow()

    Limit.name = "limit"  # type: ignore[attr-defined]

    async def main() -> Any:
        harness = Harness(tools=[act], providers=[ScriptedModel(CALL, "a", CALL, "b")], found=(), plugins=[Limit])
        harness.specs = [
            AgentSpec(id="a", model="scripted:x"),
            AgentSpec(id="b", model="scripted:x", plugins={"limit": {"most": 0}}),
        ]
        async with harness:
            for name in "ab":
                (await harness.agents[name].run("go")).check()
            return [
                e.content[0].text
                for name in "ab"
                for e in harness.agents[name].session.events
                if type(e) is ev.ToolResulted
            ]

    assert run(main) == ["acted 1", "denied: more than 0 calls"] and seen == {"a": 20, "b": 0}


# --- H7: accounts ---------------------------------------------------------------------------------------------


def test_H7_calls_time_changes_and_faults_are_accounted_per_plugin_and_hook(run):
    async def slow(request: Any) -> Any:
        await anyio.sleep(0)
        return request.replace(settings={"n": 1})

    played = play(
        run,
        plugin("busy", agent_request=slow, tools_guard=lambda: None),
        plugin("bad", agent_status=raising()),
    )
    rows = {row["hook"]: row for row in hook_rows(played.harness.plugins, accounts=played.harness.hooks.accounts())}
    busy = rows["agent_request"]["implementations"][0]
    assert (busy["plugin"], busy["calls"], busy["changes"], busy["faults"]) == ("busy", 2, 2, 0) and busy["time_s"] > 0
    assert rows["tools_guard"]["implementations"][0]["changes"] == 0
    bad = rows["agent_status"]["implementations"][0]
    assert (bad["calls"], bad["faults"]) == (3, 3)


def test_H7_the_contracts_are_printed_by_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    done = CliRunner().invoke(plugins, ["--hooks"], catch_exceptions=False)
    assert done.exit_code == 0
    table = done.stdout[done.stdout.index("hook ") :]
    from checkrein.hookspecs import SPECS

    for hook, info in SPECS.items():
        line = next(line for line in table.splitlines() if line.startswith(f"{hook} "))
        assert info.kind in line and info.colour in line and info.on_fault[:20] in line
    assert "permissions" in next(line for line in table.splitlines() if line.startswith("tools_guard"))


def test_H4_an_account_leaves_with_its_plugin(run):
    played = play(run, plugin("p", agent_request=lambda: None))
    assert any(impl.plugin == "p" for impl in played.harness.hooks.accounts())
    played.harness.plugins.unregister("p")
    assert not any(impl.plugin == "p" for impl in played.harness.hooks.accounts())
    assert played.harness.hooks.agent_request is None, "a hook nobody implements costs nothing"


# --- services ----------------------------------------------------------------------------------------------------


def test_H6_plugins_meet_in_services_and_requires_orders_the_start(run):
    from contextlib import asynccontextmanager

    class Clock:
        def now(self) -> int:
            return 7

    got: list[int] = []

    class Asks:
        name = "asks"
        requires = ("offers",)

        @hookimpl
        @asynccontextmanager
        async def lifespan(self, harness: Any) -> Any:
            got.append(harness.service(Clock).now())
            yield

    class Offers:
        name = "offers"

        @hookimpl
        @asynccontextmanager
        async def lifespan(self, harness: Any) -> Any:
            harness.provide(Clock, Clock(), "offers")
            yield

    play(run, Asks(), Offers())
    assert got == [7]


# --- H2: evolution ---------------------------------------------------------------------------------------------


def test_case_H18_a_plugin_of_an_older_signature_goes_on_working(run):
    """Specifications grow by arguments: an implementation takes those it knows, by name."""
    seen: list[str] = []
    old = plugin("old", request_error=lambda error: seen.append(error.code))
    from checkrein.testing import error

    play(run, old, turns=[error("SERVER")])
    assert seen == ["SERVER"]
