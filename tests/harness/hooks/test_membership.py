"""H2, H4, H6, H7: plugins come and leave inside a call, with their own config, accounts and services."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import anyio
from click.testing import CliRunner
from hookkit import CALL, act, call, play, plugin, raising

from checkrein import Deny, Harness, hookimpl, tool
from checkrein import events as ev
from checkrein.agents import AgentSpec
from checkrein.cli.plugins import hook_rows, plugins
from checkrein.decisions import Allow
from checkrein.testing import ScriptedModel

# --- H4: coming and leaving inside a call -------------------------------------------------------------------


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


# --- H6: config per agent -----------------------------------------------------------------------------------


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


# --- H7: accounts -------------------------------------------------------------------------------------------


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


def test_H7_an_observers_time_is_a_part_of_the_time_that_passed(run):
    began = perf_counter()
    played = play(run, plugin("sees", session_event=lambda event: None))
    account = played.account("sees", "session_event")
    assert account.calls > 10 and 0 < account.time_s < perf_counter() - began


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


# --- services -----------------------------------------------------------------------------------------------


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


# --- H2: evolution ------------------------------------------------------------------------------------------


def test_case_H18_a_plugin_of_an_older_signature_goes_on_working(run):
    """Specifications grow by arguments: an implementation takes those it knows, by name."""
    seen: list[str] = []
    old = plugin("old", request_error=lambda error: seen.append(error.code))
    from checkrein.testing import error

    play(run, old, turns=[error("SERVER")])
    assert seen == ["SERVER"]


def test_H7_two_implementations_of_one_plugin_in_one_hook_are_two(run):
    class Twice:
        name = "twice"
        called: list[str] = []

        @hookimpl
        def agent_request(self) -> None:
            self.called.append("one")

        @hookimpl(specname="agent_request")
        def and_again(self) -> None:
            self.called.append("two")

    played = play(run, Twice(), turns=["ok"])
    assert sorted(Twice.called) == ["one", "two"]
    accounts = {impl.function: impl.calls for impl in played.harness.hooks.accounts()}
    assert accounts == {"agent_request": 1, "and_again": 1}
    Twice.called.clear()
