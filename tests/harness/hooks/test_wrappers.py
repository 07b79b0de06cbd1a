"""H2: `wrapper=True` generators on every hook: around both sides, with the awaited value, contained by its policy."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hookkit import CALL, act, hang, play, plugin, raising, wrapper

from checkrein import Continue, Deny, Retry, hookimpl
from checkrein import events as ev
from checkrein.calls import Outcome
from checkrein.decisions import Allow
from checkrein.errors import PluginError, PluginFault
from checkrein.hookspecs import SPECS
from checkrein.memory_store import MemoryStore
from checkrein.messages import AssistantMessage, Request, TextBlock
from checkrein.testing import error

IN_A_TURN = [
    "agent_created",
    "agent_request",
    "stream_chunk",
    "step_result",
    "tools_execute",
    "tools_guard",
    "turn_continuation",
    "session_event",
    "session_flush",
    "agent_status",
    "agent_disposed",
]
START = ["register_events", "register_stores", "register_providers", "register_tools", "prompt_sections", "lifespan"]
REST = ["request_error", "plugin_fault"]


def noting(name: str, notes: list[Any]) -> Any:
    def wrap() -> Any:
        notes.append(f"{name} in")
        value = yield
        notes.append((f"{name} out", value))
        return value

    return wrap


def test_every_hook_is_covered_here():
    assert sorted([*IN_A_TURN, *START, *REST]) == sorted(SPECS)


@pytest.mark.parametrize("hook", [*IN_A_TURN, *START])
def test_H2_wrappers_work_on_every_hook_around_both_sides(run, hook):
    notes: list[Any] = []

    @asynccontextmanager
    async def span() -> Any:
        notes.append("called")
        yield

    async def around(call: Any, proceed: Any) -> Any:
        notes.append("called")
        return await proceed(call)

    inner = {"lifespan": span, "tools_execute": around}.get(hook, lambda: notes.append("called"))
    played = play(
        run,
        wrapper("outer", **{hook: noting("outer", notes)}),
        plugin("called", **{hook: inner}),
        wrapper("inner", **{hook: noting("inner", notes)}),
    )
    assert played.result.ok
    first = [note if isinstance(note, str) else note[0] for note in notes[:5]]
    assert first == ["outer in", "inner in", "called", "inner out", "outer out"]
    assert not played.faults and not played.harness.hooks.faults.recent


def test_H2_wrappers_of_request_error_and_plugin_fault(run):
    notes: list[Any] = []
    play(
        run,
        wrapper("w", request_error=noting("w", notes)),
        plugin("r", request_error=lambda: Retry()),
        turns=[error("SERVER"), "ok"],
    )
    assert notes == ["w in", ("w out", Retry())]
    notes.clear()
    played = play(run, wrapper("w", plugin_fault=noting("w", notes)), plugin("bad", agent_status=raising()))
    assert notes[:2] == ["w in", ("w out", None)] and played.result.ok


def test_case_H05_mixed_colours_and_wrappers_run_in_one_order(run):
    """Async and sync implementations and wrappers together: the order of the plugins, and the awaited value."""
    order: list[str] = []

    def change(name: str, is_async: bool) -> Any:
        def sync(request: Request) -> Request:
            order.append(name)
            return request.replace(settings={"by": [*request.settings.get("by", []), name]})

        async def colour(request: Request) -> Request:
            await anyio.sleep(0.1)
            return sync(request)

        return plugin(name, agent_request=colour if is_async else sync)

    def wrap(name: str) -> Any:
        def agent_request(request: Request) -> Any:
            order.append(f"{name} in {request.settings.get('by', [])}")
            value = yield
            order.append(f"{name} out {value.settings['by']}")
            return value.replace(settings={"by": [*value.settings["by"], name]})

        return wrapper(name, agent_request=agent_request)

    plugins = [change("a", True), wrap("w1"), change("b", False), wrap("w2"), change("c", True)]
    played = play(run, *plugins, turns=["ok"])
    assert order == ["w1 in []", "w2 in []", "a", "b", "c", "w2 out ['a', 'b', 'c']", "w1 out ['a', 'b', 'c', 'w2']"]
    assert played.model.requests[0].settings["by"] == ["a", "b", "c", "w2", "w1"]
    assert played.account("w2", "agent_request").changes == 1


def test_H2_tryfirst_and_trylast_move_implementations_and_wrappers(run):
    order: list[str] = []

    def named(name: str, **options: Any) -> Any:
        def agent_status(status: str) -> None:
            order.append(name)

        return SimpleNamespace(name=name, agent_status=hookimpl(**options)(agent_status))

    play(run, named("last", trylast=True), named("plain"), named("first", tryfirst=True))
    assert order[:3] == ["first", "plain", "last"]


def test_H2_any_subset_of_the_arguments_in_any_order(run):
    seen: list[Any] = []

    def odd(step: int, agent: Any) -> None:
        seen.append((step, agent.id))

    played = play(
        run,
        plugin("none", agent_request=lambda: seen.append("none")),
        plugin("odd", agent_request=odd),
        plugin("all", agent_request=lambda agent, turn, step, request: seen.append((turn, step))),
        turns=["ok"],
    )
    assert played.result.ok and seen == ["none", (1, "main"), (1, 1)]


def test_H2_a_wrapper_that_forgets_its_return_leaves_the_value(run):
    """None means no opinion: a guard's Deny is never lost in a wrapper."""

    def forgets() -> Any:
        yield

    played = play(
        run,
        wrapper("w", tools_guard=forgets, step_result=forgets, tools_execute=forgets),
        plugin("no", tools_guard=lambda: Deny("no")),
    )
    assert played.result.ok and played.outcomes == ["DENIED"] and not played.faults


def test_H2_a_wrapper_may_change_the_vote_and_is_its_author(run):
    def strict() -> Any:
        yield
        return Deny("the wrapper says no")

    played = play(run, wrapper("strict", tools_guard=strict), plugin("yes", tools_guard=lambda: Allow()))
    assert played.outcomes == ["DENIED"]
    assert [(e.plugin, e.reason) for e in played.of(ev.Decision)] == [("strict", "the wrapper says no")]


def test_H2_a_wrapper_may_turn_a_fault_into_a_value(run):
    def rescue() -> Any:
        try:
            return (yield)
        except PluginFault as fault:
            assert fault.plugin == "bad"
            return Deny("a guard is broken")

    played = play(run, wrapper("rescue", tools_guard=rescue), plugin("bad", tools_guard=raising()))
    assert played.outcomes == ["DENIED"] and played.faults == [("bad", "tools_guard", "refused")]


def test_H2_a_wrapper_that_swallows_a_fault_without_a_value_changes_nothing(run):
    def swallow() -> Any:
        try:
            yield
        except PluginFault:
            pass

    played = play(run, wrapper("w", tools_guard=swallow), plugin("bad", tools_guard=raising()))
    assert played.outcomes == ["REFUSED_BY_FAULT"]
    played = play(run, wrapper("w", agent_request=swallow), plugin("bad", agent_request=raising()))
    assert played.result.reason.error == "plugin" and played.result.reason.plugin == "bad"


def before() -> Any:
    raise ValueError("before")
    yield


def behind() -> Any:
    yield
    raise ValueError("behind")


def twice() -> Any:
    yield
    yield


def never() -> Any:
    if False:
        yield


def wrong() -> Any:
    yield
    return "banana"


BROKEN = {"before": before, "behind": behind, "twice": twice, "never": never}


@pytest.mark.parametrize("how", sorted(BROKEN))
@pytest.mark.parametrize("hook", [*IN_A_TURN, *START])
def test_H2_a_broken_wrapper_fails_by_the_policy_of_its_hook(run, hook, how):
    broken = wrapper("bad", **{hook: BROKEN[how]})
    if hook in START:
        with pytest.raises(PluginError, match="'bad'"):
            play(run, broken)
        return
    gate_closed: list[BaseException] = []

    async def act_on(agent: Any) -> Any:
        try:
            return await agent.run("go")
        except Exception as exc:
            gate_closed.append(exc)
            return SimpleNamespace(reason=SimpleNamespace(kind="refused", error=None), ok=False)

    played = play(run, broken, store=MemoryStore(), act_on=act_on)
    kind = SPECS[hook].kind
    reason = played.result.reason
    faults = played.harness.hooks.faults.recent
    assert {(f.plugin, f.hook) for f in faults} == {("bad", hook)}
    if kind == "observe":
        assert played.result.ok and all(f.action in ("contained", "switched_off") for f in faults) and len(faults) <= 3
    elif hook == "session_flush":
        assert gate_closed and type(gate_closed[0]).__name__ == "GateClosed"
    elif hook in ("tools_guard", "tools_execute"):
        ran = hook == "tools_execute" and how in ("behind", "twice")
        assert played.result.ok and played.outcomes == ["WITHHELD_BY_FAULT" if ran else "REFUSED_BY_FAULT"]
        assert {f.action for f in faults} == {"refused"}
    else:
        assert (reason.kind, reason.error, reason.plugin) == ("error", "plugin", "bad")


@pytest.mark.parametrize("hook", ["agent_request", "step_result", "turn_continuation", "tools_guard", "tools_execute"])
def test_H2_a_wrapper_that_returns_nonsense_fails_by_the_policy_of_its_hook(run, hook):
    played = play(run, wrapper("bad", **{hook: wrong}))
    if hook.startswith("tools"):
        code = "WITHHELD_BY_FAULT" if hook == "tools_execute" else "REFUSED_BY_FAULT"
        assert played.outcomes == [code]
    else:
        assert played.result.reason.plugin == "bad"
    assert played.faults[0][:2] == ("bad", hook)


def test_H2_a_wrappers_continue_must_bring_content_too(run):
    def empty() -> Any:
        yield
        return Continue("empty", "")

    played = play(run, wrapper("bad", turn_continuation=empty), turns=["ok"])
    assert played.result.reason.plugin == "bad"


def test_case_H03_every_outer_wrapper_cleans_up_at_once_when_an_inner_one_raises(run):
    cleaned: list[str] = []

    def outer() -> Any:
        try:
            return (yield)
        finally:
            cleaned.append("outer")

    played = play(
        run,
        wrapper("outer", agent_request=outer),
        wrapper("inner", agent_request=behind),
        plugin("impl", agent_request=lambda: cleaned.append("impl")),
    )
    assert played.result.reason.plugin == "inner" and cleaned == ["impl", "outer"]


def test_C1_wrappers_see_a_cancellation_and_cannot_swallow_it(run):
    seen: list[str] = []

    def swallow() -> Any:
        try:
            yield
        except BaseException as exc:
            seen.append(type(exc).__name__)
        return Outcome.text("swallowed")

    async def act_on(agent: Any) -> Any:
        receipt = agent.send("go")
        await anyio.sleep(1)
        agent.cancel()
        return await receipt.result()

    async def waits(call: Any, proceed: Any) -> Any:
        await hang()

    played = play(run, wrapper("w", tools_execute=swallow), plugin("waits", tools_execute=waits), act_on=act_on)
    assert played.result.reason.kind == "cancelled" and played.outcomes == ["NOT_STARTED"]
    assert seen in (["CancelledError"], ["Cancelled"])


def test_C10_a_keyboard_interrupt_is_not_swallowed_by_a_wrapper(run):
    def swallow() -> Any:
        try:
            yield
        except BaseException:
            pass
        return AssistantMessage([TextBlock("swallowed")])

    seen: list[Any] = []

    async def act_on(agent: Any) -> Any:
        with pytest.raises(KeyboardInterrupt):
            await agent.run("go")
        seen.append(agent.session.turn_events(1)[-1].reason)

    play(run, wrapper("w", step_result=swallow), plugin("k", step_result=raising(KeyboardInterrupt())), act_on=act_on)
    assert (seen[0].kind, seen[0].cause.kind) == ("cancelled", "signal")


def test_H2_a_start_wrapper_may_change_what_was_brought(run):
    """What it leaves out is not registered; what it adds is its own."""

    def rename(harness: Any) -> Any:
        items = yield
        return [*items, act]

    def none() -> Any:
        items = yield
        assert [item.name for item in items] == ["act"]
        return []

    played = play(run, wrapper("adds", register_tools=rename), plugin("p", register_tools=lambda: None), tools=())
    assert played.outcomes == ["acted 1"] and played.harness.tools.owner("act") == "adds"
    played = play(run, wrapper("none", register_tools=none), plugin("p", register_tools=lambda: [act]), tools=())
    assert played.outcomes == ["UNKNOWN_TOOL"]


def test_H5_a_start_wrapper_that_returns_nonsense_is_the_plugins_fault(run):
    def odd() -> Any:
        yield
        return 5

    with pytest.raises(PluginError, match=r"'odd'.*register_tools failed: TypeError"):
        play(run, wrapper("odd", register_tools=odd))


def test_H2_wrappers_are_snapshots_too(run):
    """A wrapper that unregisters itself while it is open is still left."""
    notes: list[str] = []

    async def act_on(agent: Any) -> Any:
        plugins = agent.harness.plugins

        def leaves() -> Any:
            plugins.unregister("w")
            yield
            notes.append("left")

        plugins.register(wrapper("w", agent_request=leaves), "w")
        return await agent.run("go")

    played = play(run, act_on=act_on, turns=[CALL, "done"])
    assert played.result.ok and notes == ["left"]
