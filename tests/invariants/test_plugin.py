"""The plugin `invariants` in a running harness: silent when all is well, and it never breaks the loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from checkrein import Agent, Continue, Deny, Retry, Stop, hookimpl, tool
from checkrein import events as ev
from checkrein.errors import ProviderError
from checkrein.messages import USER, TextBlock
from checkrein.testing import ScriptedModel, call, error, finish, opaque, text, thinking, torn, usage
from checkrein_invariants import Plugin, check_events
from checkrein_invariants.deep import EVERY, Deep
from checkrein_invariants.plugin import VIOLATION
from checkrein_invariants.rules import Report

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def run(main: Callable[[], Awaitable[Any]], backend: str) -> Any:
    return anyio.run(main, backend=backend)


@tool
async def write(x: int) -> str:
    """Write."""
    await anyio.sleep(0)
    return f"wrote {x}"


@tool(read_only=True)
async def fail() -> str:
    """Fail."""
    raise ValueError("no")


class Retries:
    @hookimpl
    def request_error(self, attempt: int) -> Retry | None:
        return Retry() if attempt < 3 else None


class Goes:
    """Continues once, then stops."""

    def __init__(self) -> None:
        self.votes = 0

    @hookimpl
    def turn_continuation(self) -> Continue | Stop | None:
        self.votes += 1
        return Continue("more", "go on") if self.votes == 1 else Stop("enough") if self.votes == 4 else None


class Guard:
    @hookimpl
    def tools_guard(self, call: Any) -> Deny | None:
        return Deny("not that one") if call.arguments.get("x") == 13 else None


class Fails:
    @hookimpl
    def step_result(self, step: int) -> None:
        raise RuntimeError("a plugin's bug")


def assert_right(plugin: Plugin, events: list[ev.AnyEvent]) -> None:
    """The live plugin, the whole log, and the history of every prefix: all say that it is right."""
    assert plugin.violations == {}
    assert [str(v) for v in check_events(events) if v.severity == "error"] == []
    report = Report()
    deep = Deep(report, when=EVERY)
    for event in events:
        report.seq = event.seq
        deep.feed(event)
    assert [str(v) for v in report.violations] == []


THOUGHT = [thinking("hm"), text("a"), thinking("so"), call("write", {"x": 1}), opaque({"a": 1})]
LOST = ProviderError("connection lost", kind="stream")
TURNS: dict[str, tuple[list[Any], list[Any]]] = {
    "plain": ([], ["hello", "again"]),
    "calls": ([], [[text("a"), call("write", {"x": 1}), call("fail", {}), call("write", {"x": 2})], "done", "x"]),
    "nonsense calls": ([], [[call("nope", {}), call("write", {"x": "y"}), call("write", raw='{"x"')], "sorry", "x"]),
    "thinking": (
        [],
        [THOUGHT, "b", "c"],
    ),
    "retries": (
        [Retries()],
        [[text("ha"), torn()], [thinking("hm"), error(ProviderError("lost", kind="stream"))], "now", "x"],
    ),
    "gives up": ([Retries()], [[torn()], [torn()], [torn()], "next turn"]),
    "max tokens": ([], [[text("a"), call("write", {"x": 1}), finish("max_tokens")], "x"]),
    "refused": ([], [[text("no"), finish("content_filter")], "x"]),
    "usage": ([], [[text("a"), usage(input=5, output=3, reasoning=1)], [text("b"), usage(input=9, output=1)]]),
    "continue": ([Goes()], ["a", "b", [call("write", {"x": 1})], [call("write", {"x": 2})], "c"]),
    "denied": ([Guard()], [[call("write", {"x": 13}), call("write", {"x": 1})], "ok", "x"]),
    "plugin fails": ([Fails()], ["a", "b"]),
}


@BACKENDS
@pytest.mark.parametrize("name", TURNS)
def test_the_oracle_is_silent_on_a_running_agent(name: str, backend: str) -> None:
    plugins, script = TURNS[name]
    plugin = Plugin(Plugin.Config(deep=True))
    if name == "continue":
        plugins = [Goes()]

    async def main() -> None:
        async with Agent(ScriptedModel(*script), tools=[write, fail], plugins=[*plugins, plugin]) as agent:
            await agent.run("first")
            await agent.run("second")
            events = list(agent.session.events)
        assert_right(plugin, events)

    run(main, backend)


@BACKENDS
def test_the_oracle_is_silent_on_a_cancelled_agent(backend: str) -> None:
    plugin = Plugin(Plugin.Config(deep=True))

    @tool
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    async def main() -> None:
        script = [[text("a"), call("write", {"x": 1}), call("hang", {}), call("write", {"x": 2})], "later", "more"]
        async with Agent(ScriptedModel(*script), tools=[write, hang], plugins=[plugin]) as agent:
            receipt = agent.send("first")
            while not any(event.type == "tool/end" for event in agent.session.events):
                await anyio.sleep(0)
            agent.steer("and this")
            agent.inject("by the way")
            agent.cancel()
            assert (await receipt.result()).reason.kind == "cancelled"
            assert (await agent.run("second")).ok
            events = agent.session.events
        assert_right(plugin, events)

    run(main, backend)


@BACKENDS
def test_the_oracle_is_silent_on_an_agent_disposed_in_a_turn(backend: str) -> None:
    plugin = Plugin()

    @tool
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    async def main() -> None:
        async with Agent(ScriptedModel([call("hang", {})]), tools=[hang], plugins=[plugin]) as agent:
            agent.send("first")
            while not any(event.type == "tool/start" for event in agent.session.events):
                await anyio.sleep(0)
            events = agent.session.events
        assert_right(plugin, events)
        assert events[-1].reason.kind == "disposed"

    run(main, backend)


class Notes:
    """Tells the model something while a call runs."""

    @hookimpl
    def session_event(self, session: Any, event: ev.AnyEvent) -> None:
        if event.type == "tool/start":
            note = {"role": "user", "content": [{"type": "text", "text": "it began to rain"}]}
            session.append_free("notes/note", {"message": note}, plugin="notes")


@BACKENDS
def test_case_P19_what_a_plugin_says_during_a_call_does_not_take_its_result(backend: str) -> None:
    plugin = Plugin(Plugin.Config(deep=True))

    async def main() -> None:
        script = [[call("write", {"x": 1}), call("write", {"x": 2})], "done"]
        async with Agent(ScriptedModel(*script), tools=[write], plugins=[Notes(), plugin]) as agent:
            await agent.run("first")
            events = list(agent.session.events)
        assert_right(plugin, events)

    run(main, backend)


async def _disturbed(report: str, capsys: pytest.CaptureFixture[str]) -> tuple[Plugin, list[ev.AnyEvent], str]:
    plugin = Plugin(Plugin.Config(report=report))  # type: ignore[arg-type]
    async with Agent(ScriptedModel("a", "b"), plugins=[plugin]) as agent:
        await agent.run("first")
        # A header that names a part nobody wrote: append lets it pass, the oracle does not.
        fault = {"plugin": None, "hook": "x", "error": ev.Fault("E", "m"), "action": "contained"}
        agent.session.append(ev.PluginFaulted(**fault))
        assert (await agent.run("second")).ok
        events = agent.session.events
    return plugin, events, capsys.readouterr().err


@pytest.mark.checkrein_oracle_off(reason="breaks O25 to see the plugin report it")
@BACKENDS
def test_a_violation_is_shown_once_and_the_loop_goes_on(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    plugin, events, shown = run(lambda: _disturbed("stderr", capsys), backend)
    (found,) = plugin.violations.values()
    assert [violation.rule for violation in found] == ["O25"]
    assert shown.count("O25 at seq") == 1 and "each fault is recorded once" in shown
    assert not any(event.type == VIOLATION for event in events)


@pytest.mark.checkrein_oracle_off(reason="breaks O25 to see the plugin log it")
@BACKENDS
def test_a_violation_can_be_an_event_of_the_log(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    plugin, events, shown = run(lambda: _disturbed("log", capsys), backend)
    (event,) = (event for event in events if event.type == VIOLATION)
    assert isinstance(event, ev.FreeEvent)
    assert event.fields["rule"] == "O25" and event.plugin == "invariants"
    assert shown == ""
    assert len(plugin.violations) == 1


@pytest.mark.checkrein_oracle_off(reason="records a fault that never happened")
def test_O25_a_fault_recorded_more_often_than_it_happened() -> None:
    plugin = Plugin()

    class Bad:
        @hookimpl
        def session_event(self, event: ev.AnyEvent) -> None:
            if event.type == "step/end":
                raise ValueError("boom")

    async def main() -> None:
        async with Agent(ScriptedModel("a"), plugins=[Bad, plugin]) as agent:
            await agent.run("first")
            (fault,) = (event for event in agent.session.events if isinstance(event, ev.PluginFaulted))
            members = {"hook": fault.hook, "error": fault.error, "action": fault.action}
            agent.session.append(ev.PluginFaulted(plugin="Bad", turn=fault.turn, step=fault.step, **members))

    run(main, "asyncio")
    (found,) = plugin.violations.values()
    assert [str(violation) for violation in found] == [
        "O25 at seq 12: a fault of 'Bad' in session_event happened 1 times and is logged 2 times"
    ]


def test_what_the_session_refuses_is_no_violation_of_the_log() -> None:
    """L3: an illegal event never exists, so the oracle has nothing to say."""

    async def main() -> None:
        plugin = Plugin()
        async with Agent(ScriptedModel("a"), plugins=[plugin]) as agent:
            await agent.run("first")
            with pytest.raises(Exception, match="O2"):
                agent.session.append(ev.UserInput(turn=1, id="i9", content=[TextBlock("x")], source=USER))
        assert plugin.violations == {}

    run(main, "asyncio")
