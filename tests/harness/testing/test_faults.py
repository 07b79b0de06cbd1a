"""The fault sweep, on a toy loop: one turn of at most two steps, with a model, a tool and a guard."""

from __future__ import annotations

import anyio
import anyio.to_thread
import pytest

from checkrein.hookcheck import check_plugin
from checkrein.hookspecs import SPECS, HookSpecs
from checkrein.memory_store import MemoryStore
from checkrein.messages import Request, TextBlock, UserMessage
from checkrein.providers import Provider
from checkrein.store import Store
from checkrein.testing import (
    HANG,
    KINDS,
    RUN_HOOKS,
    FaultPlan,
    ScriptedModel,
    SeamModel,
    Seams,
    SeamStore,
    Seen,
    call,
    hold,
    run_virtual,
    seam_plugin,
    seam_tool,
    sweep,
    text,
)

ASKED = Request("m", [UserMessage([TextBlock("hi")])])
DEADLINE_S = 30


class Toy:
    """The smallest loop that keeps the rules; `flaw` breaks one of them."""

    def __init__(self, seams, flaw=None):
        self.seams = seams
        self.flaw = flaw
        self.model = SeamModel(ScriptedModel([text("a"), call("add")], "done"), seams)
        self.scope = anyio.CancelScope()
        self.events = []
        seams.actions["cancel"] = self.scope.cancel

    async def run(self):
        self.events.append("turn/start")
        reason = "completed"
        try:
            with self.scope:
                await self.steps()
            if self.scope.cancelled_caught:
                reason = "cancelled"
        except BaseException as exc:
            reason = f"error/{type(exc).__name__}"
            if isinstance(exc, KeyboardInterrupt) and self.flaw != "swallows":
                self.events.append("turn/end")
                raise
        if self.flaw != "unbalanced" or reason == "completed":
            self.events.append("turn/end")
        bad = [] if self.events == ["turn/start", "turn/end"] else [f"unbalanced: {self.events}"]
        return Seen(reason, bad)

    async def steps(self):
        for _ in range(2):
            with anyio.fail_after(DEADLINE_S):
                stream = self.model.stream(ASKED)
                try:
                    async for _ in stream:
                        self.seams.sync_point("observer")
                finally:
                    if self.flaw != "leaks":
                        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + DEADLINE_S):
                            await stream.aclose()
                await self.seams.point("tool:add")
            await anyio.lowlevel.checkpoint()


def toy(flaw=None):
    async def scenario(seams):
        return await Toy(seams, flaw).run()

    return scenario


def test_a_good_loop_survives_every_single_fault():
    report = sweep(toy()).check()

    assert report.seams == {"model:stream", "model:open", "model:item", "tool:add", "observer"}
    assert {row.backend for row in report.rows} == {"asyncio", "trio"}
    assert report.reasons("tool:add", "os_error") == {"error/OSError": 4}
    assert report.reasons("tool:add", HANG) == {"error/TimeoutError": 4}
    assert report.reasons("observer", "base_exception") == {"error/ForeignFault": 10}
    assert set(report.reasons("tool:add", "keyboard_interrupt")) == {"raised KeyboardInterrupt"}


def test_every_kind_strikes_every_async_seam():
    seams = Seams()
    run_virtual(toy(), seams)
    report = sweep(toy(), backends=["asyncio"])

    sync = sum(name in ("model:stream", "observer") for name in seams.names)
    for kind in KINDS:
        struck = sum(report.reasons(kind=kind).values())
        assert struck == len(seams.names) - (sync if kind == HANG else 0), kind


@pytest.mark.parametrize(
    ("flaw", "words"), [("leaks", "streams were opened"), ("unbalanced", "unbalanced"), ("swallows", None)]
)
def test_a_flaw_turns_the_sweep_red(flaw, words):
    report = sweep(toy(flaw), kinds=["exception", HANG, "keyboard_interrupt"], backends=["asyncio"])
    if words is None:
        assert report.reasons(kind="keyboard_interrupt")["error/KeyboardInterrupt"] > 0
        return
    with pytest.raises(AssertionError, match=words) as raised:
        report.check()
    assert "FaultPlan(k=" in str(raised.value)


def test_a_failing_run_can_be_replayed():
    report = sweep(toy("unbalanced"), kinds=["os_error"])
    for row in report.failures[:4]:
        again = sweep(toy("unbalanced"), plans=[row.plan], backends=[row.backend])
        assert again.failures == [row]


def test_C1_actions_strike_at_seams_and_at_every_pass_of_the_scheduler():
    at_seams = sweep(toy(), kinds=["cancel"]).check()
    at_passes = sweep(toy(), kinds=["cancel"], at="pass").check()

    assert set(at_seams.reasons()) <= {"cancelled", "completed"}
    assert set(at_passes.reasons()) <= {"cancelled", "completed"}
    assert at_passes.reasons()["cancelled"] > 0


def test_a_fault_cannot_be_raised_in_the_scheduler():
    with pytest.raises(ValueError, match="expected an action"):
        FaultPlan(1, "os_error", "pass")
    with pytest.raises(ValueError, match="from 1"):
        FaultPlan(0, "os_error")


def test_a_kind_nobody_knows_is_reported_as_never_struck():
    with pytest.raises(AssertionError, match="none of dispose"):
        sweep(toy(), kinds=["dispose", "os_error"]).check()


def test_an_action_that_raises_in_the_scheduler_is_a_violation():
    async def scenario(seams):
        def broken():
            raise LookupError("mine")

        seams.actions["broken"] = broken
        await anyio.sleep(1)
        return "completed"

    report = sweep(scenario, kinds=["broken"], at="pass")
    assert len(report.failures) == len(report.rows) - 2
    assert "LookupError" in str(report.failures[0])


def test_a_limit_is_spread_over_backends_and_kinds():
    report = sweep(toy(), limit=96)

    assert report.runs == 98
    assert {row.backend for row in report.rows} == {"asyncio", "trio"}
    assert {row.plan.kind for row in report.rows if row.plan} == set(KINDS)


def test_a_scenario_that_is_not_deterministic_is_reported():
    calls = []

    async def scenario(seams):
        calls.append(None)
        await seams.point(f"run:{len(calls)}")

    assert "not deterministic" in str(sweep(scenario, kinds=["os_error"], backends=["trio"]).failures[0])


def test_seams_in_threads_may_come_in_another_order():
    calls = []

    async def scenario(seams):
        calls.append(None)
        with hold():
            await anyio.to_thread.run_sync(lambda: seams.sync_point(f"run:{len(calls)}"))

    report = sweep(scenario, kinds=["os_error"], backends=["trio"])
    assert [row.violations[0].startswith("the scenario raised OSError") for row in report.failures] == [True]
    assert len(report.failures[0].violations) == 1


def test_what_a_scenario_raises_by_itself_is_a_violation():
    async def scenario(seams):
        raise LookupError("mine")

    report = sweep(scenario, kinds=[])
    assert [row.reason for row in report.failures] == ["raised LookupError"] * 2


def test_T4_the_reason_internal_is_a_violation():
    from checkrein.events import Reason
    from checkrein.results import TurnResult

    async def scenario(seams):
        return TurnResult(1, Reason("error", error="internal"))

    assert "internal" in str(sweep(scenario, kinds=[]).failures[0])
    assert "expected a reason" in str(sweep(lambda seams: wrong(), kinds=[]).failures[0])


async def wrong():
    return 3


def test_the_report_reads_as_text():
    text = str(sweep(toy(), kinds=["os_error"]))
    assert "tool:add: error/OSError 4" in text


# --- the ready-made parts ------------------------------------------------------------------------------


def test_the_parts_fit_their_protocols():
    seams = Seams()
    model = SeamModel(ScriptedModel(name="inner", window_tokens=7), seams)

    assert isinstance(model, Provider)
    assert isinstance(SeamStore(MemoryStore(), seams), Store)
    assert (model.name, model.missing(), model.default_model(), model.window_tokens("m")) == (
        "inner",
        None,
        "script",
        7,
    )


def test_C6_a_stream_never_started_counts_until_it_is_closed(run):
    async def main():
        seams = Seams()
        stream = SeamModel(ScriptedModel("a"), seams).stream(ASKED)
        before = seams.opened, seams.closed
        await stream.aclose()
        await stream.aclose()
        return before, (seams.opened, seams.closed), seams.names, [chunk async for chunk in stream]

    assert run(main) == ((1, 0), (1, 1), ["model:stream", "model:close"], [])


def test_a_tool_has_a_seam_on_both_sides(run):
    async def add(a: int, b: int = 0) -> int:
        """Add numbers."""
        return a + b

    def sub(a: int) -> int:
        """Negate."""
        return -a

    seams = Seams()
    first, second = seam_tool(add, seams, read_only=True), seam_tool(sub, seams, name="minus")

    assert (first.name, first.effect, second.name) == ("add", "read_only", "minus")
    assert first.schema.description == "Add numbers."
    assert set(first.schema.parameters["properties"]) == {"a", "b"}
    assert run(first.fn, 2, 3) == 5
    assert second.fn(2) == -2
    assert seams.names == ["tool:add", "tool:add:end", "tool:minus", "tool:minus:end"]


@pytest.mark.parametrize("colour", ["async", "sync"])
def test_the_plugin_implements_every_hook_as_specified(colour):
    import pluggy

    manager = pluggy.PluginManager("checkrein")
    manager.add_hookspecs(HookSpecs)
    everything = seam_plugin(Seams(), colour=colour, hooks=SPECS)

    assert check_plugin("seam", everything, manager, SPECS) == sorted(SPECS)
    assert check_plugin("seam", seam_plugin(Seams()), manager, SPECS) == sorted(RUN_HOOKS)


def test_the_plugins_hooks_pass_their_seams(run):
    async def main():
        seams = Seams()
        plugin = seam_plugin(seams, hooks=SPECS)
        assert await plugin.agent_request() is None
        plugin.session_event()

        async def proceed(call):
            return call

        assert await plugin.tools_execute("call", proceed) == "call"
        async with plugin.lifespan():
            pass
        return seams.names

    assert run(main) == [
        "hook:agent_request",
        "hook:session_event",
        "hook:tools_execute",
        "hook:tools_execute:after",
        "hook:lifespan",
        "hook:lifespan:stop",
    ]


def test_a_store_has_seams_and_releases_its_lock_though_close_fails():
    inner = MemoryStore()
    seams = Seams()
    store = SeamStore(inner, seams)
    line = b'{"type":"x","seq":0,"time":0,"crc":"00000000"}'
    writer = store.create("s", [line])
    writer.append([line])
    writer.sync()
    writer.close()
    assert len(store.read("s").lines) == 2
    assert store.get_blob("s", store.put_blob("s", b"data")) == b"data"
    assert [info.id for info in store.list()] == ["s"]
    assert store.locate("s") == "memory:s"
    assert seams.names[:4] == ["store:create", "store:append", "store:sync", "store:close"]

    failing = SeamStore(inner, Seams(FaultPlan(2, "os_error")))
    _, writer = failing.open("s")
    with pytest.raises(OSError, match="injected"):
        writer.close()
    inner.open("s")[1].close()
