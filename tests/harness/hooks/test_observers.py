"""H2, H5 and L4: observers that fail, are switched off, and answer events with events."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hookkit import call, play, plugin, raising, wrapper

import checkrein.faults as faults_module
from checkrein import events as ev
from checkrein import hookimpl
from checkrein.cli.plugins import hook_rows
from checkrein.errors import RefusedAtAppend

# --- H5: switched off ---------------------------------------------------------------------------------------


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


# --- L4: appends of observers -------------------------------------------------------------------------------


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
            session.append(ev.StepEnd(turn=1, step=1))

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


@pytest.mark.parametrize("when", ["before", "behind"])
def test_C10_an_interrupt_of_a_wrapper_around_observers_reaches_the_waiter(run, when):
    def strikes(event: Any) -> Any:
        if event.type == "step/start" and when == "before":
            raise KeyboardInterrupt
        yield
        if event.type == "step/start" and when == "behind":
            raise KeyboardInterrupt

    async def act_on(agent: Any) -> Any:
        with pytest.raises(KeyboardInterrupt):
            await agent.run("go")
        return agent.session.turn_events(1)[-1].reason

    played = play(run, wrapper("w", session_event=strikes), act_on=act_on)
    assert (played.result.kind, played.result.cause.kind, played.faults) == ("cancelled", "signal", [])


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
