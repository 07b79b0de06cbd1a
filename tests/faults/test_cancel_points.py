"""C1, C5, C8: every script is cancelled at every seam and at every pass of the scheduler, in four ways.

`cancel` calls agent.cancel(); `scope` cancels the waiter's scope; `task` the waiter's asyncio task; `dispose`
disposes of the agent. Whatever comes of it, the log is balanced, no input is lost, nothing effectful runs
twice, no stream stays open, and the next turn works.

    pytest tests/faults/test_cancel_points.py --faults=full        # every point
"""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import anyio
import pytest
import world
from figures import count
from stage import Stage, play, reason_of, reasons, stage, wrong

from checkrein import Agent, AgentSpec
from checkrein.errors import AgentDisposed, AgentError
from checkrein.events import TurnEnd
from checkrein.testing import ScriptedModel, call, forever, run_virtual
from checkrein.testing.faults import FaultPlan, Seams, Seen, sweep

OURS = {"cancel": "cancelled/user", "scope": "cancelled/task", "task": "cancelled/task", "dispose": "disposed"}


def act(on: Stage, way: str, fn: Callable[[], object]) -> None:
    """Make `fn` what the plan does; from a tool's thread it is handed to the loop's."""
    home = threading.get_ident()
    harness = on.maker._harness
    on.seams.actions[way] = lambda: fn() if threading.get_ident() == home else harness.call_in_loop(fn)


async def cancelled(on: Stage) -> None:
    """Play; the agent is cancelled from outside."""
    act(on, "cancel", on.agent.cancel)
    try:
        await play(on)
    except AgentError:
        pass  # an input was discarded: by the script


async def scope_cancelled(on: Stage) -> None:
    """Play in a scope of the caller's, which is cancelled; a waiter leaves only behind the end of its turn (C8)."""
    with anyio.CancelScope() as scope:
        act(on, "scope", scope.cancel)
        await play(on)
    if scope.cancelled_caught and on.script.act is None:
        assert not on.agent.session.state.turn_open, "the waiter left its turn open"


async def task_cancelled(on: Stage) -> None:
    """Play in a task of its own, which is cancelled natively."""
    task = asyncio.get_running_loop().create_task(play(on))
    act(on, "task", task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        assert on.seams.hit is not None


async def disposed(on: Stage) -> None:
    """Play; another task disposes of the agent meanwhile."""
    now = anyio.Event()

    async def dispose() -> None:
        await now.wait()
        await on.agent.dispose()

    act(on, "dispose", now.set)
    async with anyio.create_task_group() as group:
        group.start_soon(dispose)
        try:
            await play(on)
        except AgentDisposed:
            assert on.seams.hit is not None
        if on.seams.hit is None:
            group.cancel_scope.cancel()


WAYS = {"cancel": cancelled, "scope": scope_cancelled, "task": task_cancelled, "dispose": disposed}


async def after(on: Stage, way: str) -> list[str]:
    """Run the next turn: of this agent, or of another one where this one was disposed of."""
    agent, found = on.agent, []
    if way == "dispose" and on.seams.hit is not None:
        await agent.dispose()
        for act in (agent.send, agent.steer, agent.inject):
            try:
                act("too late")
                found.append(f"{act.__name__} was accepted after disposal (I1)")
            except AgentDisposed:
                pass
        agent = await on.maker._harness.create_agent(AgentSpec(id="next", model=agent.spec.model))
    else:
        agent.wake()  # what the cancel parked
        await agent.idle()
    on.model.over = True
    again = await agent.run("and now?")
    return [] if again.ok else [f"the next turn ended {again.reason}"]


async def scenario(name: str, way: str, seams: Seams) -> Seen:
    """One run: play the script in one of the ways, then look."""
    async with stage(world.SCRIPTS[name], seams) as on:
        await WAYS[way](on)
        if on.agent.status != "disposed":
            await on.agent.idle()
        seams.actions.clear()
        found = wrong(on)
        ends = [event.reason for event in on.agent.session.events if type(event) is TurnEnd]
        plan, seams.plan = seams.plan, None
        found += await after(on, way)
        seams.plan = plan
        found += wrong(on)
    if seams.hit is not None:
        # What was parked or waits may need more answers than the script has.
        words = {reason_of(reason) for reason in ends if reason.code != "SCRIPT_EXHAUSTED"}
        found += [f"a turn ended {word}" for word in words - own_ends(name) - {OURS[way]}]
    if on.agent.session.state.turn_open:
        found.append("a turn is open after the harness closed")
    return Seen(" ".join(map(reason_of, ends)), found)


@cache
def own_ends(name: str) -> frozenset[str]:
    """How the turns of a script end when nobody interferes."""

    async def main() -> frozenset[str]:
        async with stage(world.SCRIPTS[name], Seams()) as on:
            await play(on)
            await on.agent.idle()
            return frozenset(reasons(on.agent.session))

    ends = run_virtual(main, seed=0)
    # Where the one who would have cancelled was stopped before, the turn runs to its end.
    return ends | {"completed"} if world.SCRIPTS[name].act is world.cancel_soon else ends


def struck(name: str, way: str, backend: str, at: Any, faults: int | None) -> None:
    """Sweep one script and assert that nothing is wrong."""
    own_ends(name)  # here, where no loop runs
    limit = None if faults is None else max(3, faults // 15)
    report = sweep(partial(scenario, name, way), kinds=[way], backends=[backend], at=at, limit=limit)
    count(f"cancel points: {way} at every {at}", report.runs)
    bad = report.failures
    assert not bad, f"{len(bad)} of {report.runs}:\n" + "\n".join(str(row) for row in bad[:8])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", sorted(world.SCRIPTS))
@pytest.mark.parametrize("way", ["cancel", "scope", "dispose"])
def test_C1_C5_C8_at_every_pass(name: str, way: str, backend: str, faults: int | None) -> None:
    """Struck between any two steps of any task, from outside."""
    struck(name, way, backend, "pass", faults)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", sorted(world.SCRIPTS))
@pytest.mark.parametrize("way", ["cancel", "dispose"])
def test_C1_C5_at_every_seam(name: str, way: str, backend: str, faults: int | None) -> None:
    """Struck from inside: in a hook, a tool, a stream's item, a call of the store."""
    struck(name, way, backend, "seam", faults)


@pytest.mark.parametrize("name", sorted(world.SCRIPTS))
def test_C8_native_task_cancel_at_every_pass(name: str, faults: int | None) -> None:
    """The waiter's asyncio task is cancelled with task.cancel()."""
    struck(name, "task", "asyncio", "pass", faults)


QUICK = ("answer", "answer_live", "one_call_stored", "failing_tool", "steered", "thread_tool")


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed")
@pytest.mark.parametrize("way", ["cancel", "scope", "task", "dispose"])
def test_C1_C5_C8_on_uvloop(way: str, faults: int | None) -> None:
    """The scripts that need no virtual time, in real time, struck at seams."""
    tried, found = 0, []
    for name in QUICK:
        plain = Seams()
        own_ends(name)
        anyio.run(scenario, name, way, plain, backend_options={"use_uvloop": True})
        points = len(plain.names)
        for k in range(1, points + 1, 1 if faults is None else max(1, 12 * points // faults)):
            seams = Seams(FaultPlan(k, way))
            seen = anyio.run(scenario, name, way, seams, backend_options={"use_uvloop": True})
            tried += 1
            found += [f"{name}, {seams.plan} at {seams.hit}: {seen.reason}; {each}" for each in seen.violations]
            if seams.opened != seams.closed:
                found.append(f"{name}, {seams.plan}: {seams.opened} streams were opened, {seams.closed} closed")
    count(f"cancel points: {way} on uvloop", tried)
    assert not found, "\n".join(found[:8])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("way", ["cancel", "send"])
def test_C12_a_tools_thread_reaches_its_agent(backend: str, way: str) -> None:
    """What a tool's thread asks of the loop runs there as if it had been asked from there."""

    async def main() -> Any:
        def tell() -> str:
            """Tell the agent."""
            harness.from_thread(*((agent.cancel,) if way == "cancel" else (agent.send, "more")))
            return "told"

        maker = Agent(ScriptedModel(call("tell"), forever("told")), tools=[tell])
        async with maker as agent:
            harness = maker._harness
            result = await agent.run("go")
            await agent.idle()
            return result.reason.kind, agent.session.state.turn, agent.pending

    expected = ("cancelled", 1, []) if way == "cancel" else ("completed", 2, [])
    assert run_virtual(main, backend=backend) == expected
