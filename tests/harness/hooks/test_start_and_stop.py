"""H1, H4: the hooks of start and stop: lifespan, and what the collecting hooks register."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from hookkit import play, plugin, raising

from checkrein import Harness, hookimpl, tool
from checkrein.config.types import HarnessConfig, PluginsConfig
from checkrein.discovery import Found
from checkrein.errors import PluginError
from checkrein.eventtypes import EventType
from checkrein.memory_store import MemoryStore
from checkrein.prompt import Section
from checkrein.testing import ScriptedModel

# --- lifespan -----------------------------------------------------------------------------------------------


def test_hook_lifespan(run):
    order: list[str] = []

    def living(name: str) -> Any:
        @asynccontextmanager
        async def lifespan(harness: Any, tasks: Any) -> Any:
            order.append(f"{name} in")
            yield
            order.append(f"{name} out")

        return plugin(name, lifespan=lifespan)

    play(run, living("a"), plugin("none", lifespan=lambda: None), living("b"))
    assert order == ["a in", "b in", "b out", "a out"]


@pytest.mark.parametrize("how", ["raises", "late"])
def test_hook_lifespan_fault_at_the_start_stops_a_required_plugin(run, how):
    left: list[str] = []

    @asynccontextmanager
    async def good() -> Any:
        try:
            yield
        finally:
            left.append("good")

    @asynccontextmanager
    async def bad() -> Any:
        if how == "late":
            await anyio.sleep_forever()
        raise ValueError("broken")
        yield

    with pytest.raises(PluginError, match=r"'bad'.*lifespan"):
        play(run, plugin("good", lifespan=good), plugin("bad", lifespan=bad))
    assert left == ["good"]


@pytest.mark.parametrize("how", ["raises", "late"])
def test_hook_lifespan_fault_at_the_end_is_contained(run, how):
    left: list[str] = []

    @asynccontextmanager
    async def good() -> Any:
        yield
        left.append("good")

    @asynccontextmanager
    async def bad() -> Any:
        yield
        if how == "late":
            await anyio.sleep_forever()
        raise ValueError("broken")

    played = play(run, plugin("good", lifespan=good), plugin("bad", lifespan=bad))
    assert played.result.ok and left == ["good"]
    assert [(f.plugin, f.hook, f.action) for f in played.harness.hooks.faults.recent] == [
        ("bad", "lifespan", "contained")
    ]


def test_H1_a_lifespan_that_fails_while_it_is_open_is_a_fault_at_once(run):
    told: list[str] = []

    async def loses_its_connection() -> None:
        await anyio.sleep(1)
        raise OSError("connection lost")

    @asynccontextmanager
    async def lifespan() -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(loses_its_connection)
            yield

    async def act_on(agent: Any) -> Any:
        await anyio.sleep(2)
        told.append("before the turn")
        return await agent.run("go")

    watch = plugin("watch", plugin_fault=lambda fault: told.append(fault.plugin))
    played = play(run, plugin("wire", lifespan=lifespan), watch, act_on=act_on)
    assert played.result.ok and told == ["wire", "before the turn"]


def test_hook_lifespan_tasks_are_supervised(run):
    ticks: list[int] = []

    async def fails() -> None:
        await anyio.sleep(1)
        raise ValueError("broken task")

    async def for_ever() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ticks.append(1)

    @asynccontextmanager
    async def lifespan(tasks: Any) -> Any:
        tasks.start(fails)
        tasks.start(for_ever)
        yield

    async def act_on(agent: Any) -> Any:
        await anyio.sleep(2)
        return await agent.run("go")

    played = play(run, plugin("tasks", lifespan=lifespan), act_on=act_on)
    assert played.result.ok and ticks == [1]
    assert [(f.plugin, f.error.message) for f in played.harness.hooks.faults.recent] == [("tasks", "broken task")]


# --- collecting hooks ---------------------------------------------------------------------------------------


@tool(read_only=True)
async def brought() -> str:
    """Came with a plugin."""
    return "brought"


COLLECTING = {
    "register_tools": lambda: [brought],
    "register_providers": lambda: [ScriptedModel(name="other")],
    "register_stores": lambda: [MemoryStore()],
    "register_events": lambda: [EventType("acme/note")],
    "prompt_sections": lambda: [Section("acme", lambda agent: "Be brief.", 10)],
}


def gone(harness: Any) -> list[bool]:
    return [
        "brought" not in harness.tools,
        "acme/note" not in harness.event_types,
        "memory" not in harness.stores,
        not harness.sections,
    ]


@pytest.mark.parametrize("hook", sorted(COLLECTING))
def test_hook_collecting(run, hook):
    played = play(run, plugin("brings", **{hook: COLLECTING[hook]}))
    assert played.result.ok
    assert gone(played.harness).count(False) == (0 if hook == "register_providers" else 1)
    played.harness.plugins.unregister("brings")
    assert all(gone(played.harness)), "what a plugin registered leaves with it (H4)"


@pytest.mark.parametrize("hook", sorted(COLLECTING))
@pytest.mark.parametrize("broken", [raising(), lambda: [object()], lambda: 7], ids=["raises", "stranger", "no list"])
def test_hook_collecting_fault_stops_the_start(run, hook, broken):
    with pytest.raises(PluginError, match="'bad'"):
        play(run, plugin("bad", **{hook: broken}))


@pytest.mark.parametrize("hook", sorted(COLLECTING))
def test_H4_a_duplicate_name_fails_the_start_naming_both(run, hook):
    with pytest.raises(PluginError, match=r"second.*first|first.*second"):
        play(run, plugin("first", **{hook: COLLECTING[hook]}), plugin("second", **{hook: COLLECTING[hook]}))


def test_H4_the_programs_provider_stays_when_the_plugin_leaves_whose_it_replaced(run):
    async def act_on(agent: Any) -> Any:
        agent.harness.plugins.unregister("brings")
        return await agent.run("go")

    brings = plugin("brings", register_providers=lambda: [ScriptedModel("the plugin's")])
    played = play(run, brings, turns=("the program's",), act_on=act_on)
    assert played.result.check().text == "the program's"


def test_H4_a_prompt_section_that_is_taken_over_is_said_once(run):
    def style(words: str) -> Any:
        return plugin(words, prompt_sections=lambda: [Section("style", words)])

    config = HarnessConfig(plugins=PluginsConfig(override=("style",)))
    played = play(run, style("brief"), style("rich"), config=config)
    assert played.model.requests[0].system == ("rich",)


@pytest.mark.parametrize("text", [raising(), raising(SystemExit(3)), lambda: 5], ids=["raises", "exits", "number"])
def test_H1_a_prompt_section_that_fails_ends_the_turn_in_its_plugins_name(run, text):
    bad = plugin("bad", prompt_sections=lambda: [Section("style", lambda agent: text())])
    played = play(run, bad)
    assert (played.result.reason.error, played.result.reason.plugin) == ("plugin", "bad")
    assert played.faults == [("bad", "prompt_sections", "turn_ended")] and not played.model.requests


def test_H5_a_prompt_section_without_text_is_refused_at_the_start(run):
    with pytest.raises(PluginError, match=r"'bad'.*'style' holds int; expected a text, or a function"):
        play(run, plugin("bad", prompt_sections=lambda: [Section("style", 5)]))


@pytest.mark.parametrize("order", ["first", None])
def test_H5_a_prompt_section_whose_order_is_no_number_is_refused_at_the_start(run, order):
    sections = [Section("style", "brief", order=order), Section("place", "here")]
    with pytest.raises(PluginError, match=r"'bad'.*'style' has the order .*; expected a whole number"):
        play(run, plugin("bad", prompt_sections=lambda: sections))


# --- found plugins that leave at the start --------------------------------------------------------------------


def found(**plugins: Any) -> list[Found]:
    """Plugins as an installation offers them: nobody asked for them by name."""
    points = {name: cast(Any, SimpleNamespace(load=lambda plugin=each: plugin)) for name, each in plugins.items()}
    return [Found(name, f"acme:{name}", "acme", "1", point) for name, point in points.items()]


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("hook", ["register_tools", "lifespan"])
def test_H5_who_requires_a_plugin_that_fails_at_the_start_leaves_with_it_unasked(run, hook, wraps):
    asked: list[str] = []

    def fail() -> Any:
        raise OSError("no such device")

    def wrap() -> Any:
        asked.append("wrapper")
        yield
        asked.append("wrapper's end")
        raise OSError("its other half is not there")

    def needs() -> Any:
        asked.append("needing")
        raise OSError("its other half is not there")

    marked = hookimpl(specname=hook)
    wrapping = hookimpl(specname=hook, wrapper=True)
    device = SimpleNamespace(fails=marked(fail))
    needing = SimpleNamespace(requires=("device",), needs=wrapping(wrap) if wraps else marked(needs))

    async def main() -> Any:
        async with Harness(providers=[ScriptedModel("hi")], found=found(device=device, needing=needing)) as harness:
            return {report.name: report.problem or "" for report in harness.plugins.reports}

    problems = run(main)
    assert "no such device" in problems["device"]
    assert f"requires the plugin 'device', whose {hook} failed" in problems["needing"]
    assert asked == (["wrapper"] if wraps else [])
