"""The small suite the mutants are tried on: a selection of the proof, a few seconds long.

`suite` is green on the code as it is, and must be red on each mutant of mutants.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import anyio
import races
import test_cancel_points
import test_line_faults
import world
from stage import play, reasons, stage, wrong

from checkrein import Agent, hookimpl, tool
from checkrein.errors import GateClosed
from checkrein.events import ToolResulted
from checkrein.memory_store import MemoryStore
from checkrein.testing import ScriptedModel, call, forever, hang, run_seeded, run_virtual, text
from checkrein.testing.faults import FaultPlan, Seams, Seen, sweep
from checkrein.testing.seams import SeamStore

__all__ = ["suite"]


def suite() -> list[str]:
    """Run the selection on the code as it is now, and return what is wrong; the first finding ends it."""
    for part in (scripts, order, ends, faults, cancels, struck, guards, raced):
        with contextlib.suppress(KeyboardInterrupt):
            if found := part():
                return found
    return []


def scripts() -> list[str]:
    """Scripts without any fault end as they should, and nothing is wrong behind them."""
    expected = {
        "three_parallel": "completed",
        "torn_retried": "completed",
        "torn": "interrupted",
        "half_call_torn": "interrupted",
        "cancelled_in_tool": "cancelled/user",
        "two_waiters": "completed",
        "three_turns": "completed",
        "continued": "completed",
    }
    found: list[str] = []
    for name, end in expected.items():

        async def main(name: str = name, end: str = end) -> list[str]:
            async with stage(world.SCRIPTS[name], Seams()) as on:
                result = await play(on)
                await on.agent.idle()
                wrong_now = wrong(on)
                if reasons(on.agent.session)[0] != end:
                    wrong_now.append(f"{name} ended {result.reason}")
                if name == "torn_retried" and result.text != "whole":
                    wrong_now.append(f"the answer is {result.text!r}")
                return wrong_now

        found += attempt(main)
    return found


def attempt(main: Callable[[], Any]) -> list[str]:
    """Run it; whatever it raises is wrong."""
    try:
        return run_virtual(main, seed=0, stuck_s=0.2, passes_max=20_000)  # type: ignore[no-any-return]
    except Exception as exc:
        return [repr(exc)]


def order() -> list[str]:
    """A result that a call gave is kept when a later one is cancelled; a begun call is not said to be unstarted."""

    async def main() -> list[str]:
        async with stage(world.SCRIPTS["cancelled_in_tool"], Seams()) as on:
            await play(on)
            results = [event for event in on.agent.session.events if type(event) is ToolResulted]
            codes = [event.error.code if event.error else "" for event in results]
            return [] if codes == ["", "OUTCOME_UNKNOWN", ""] else [f"the results say {codes}"]

    return attempt(main)


def ends() -> list[str]:
    """A cancelled stream is closed, and its text is in the log."""

    async def main() -> list[str]:
        closed: list[str] = []

        class Slow:
            """A provider whose stream awaits while it is closed."""

            name = "slow"

            async def stream(self, request: Any) -> Any:
                try:
                    async for chunk in ScriptedModel([text("half"), hang()]).stream(request):
                        yield chunk
                finally:
                    await anyio.sleep(0.1)
                    closed.append("closed")

            def missing(self) -> None:
                return None

            def default_model(self) -> str:
                return "m"

            def window_tokens(self, model: str) -> None:
                return None

        class Chunk:
            name = "interrupts"

            @hookimpl
            def stream_chunk(self, agent: Any) -> None:
                agent.cancel()
                raise KeyboardInterrupt  # the stream is suspended at its yield then, and has to be closed by us

        async with Agent(Slow(), plugins=[Chunk()]) as agent:
            with contextlib.suppress(KeyboardInterrupt):
                await agent.run("go")
            kept = [event.text for event in agent.session.events if event.type == "assistant/partial"]
            return [] if closed and kept == ["half"] else [f"closed {closed}, kept {kept}"]

    return attempt(main)


def faults() -> list[str]:
    """A few single faults: of guards, observers, streams, tools and the store."""
    found: list[str] = []
    kinds = ["exception", "cancelled", "base_exception", "keyboard_interrupt"]
    for name in ("one_call_stored", "three_parallel"):

        async def scenario(seams: Seams, name: str = name) -> Seen:
            async with stage(world.SCRIPTS[name], seams) as on:
                with contextlib.suppress(KeyboardInterrupt, GateClosed):
                    await play(on)
                seams.actions.clear()
                await on.agent.idle()
                wrong_now = wrong(on)
                guard = seams.hit == "hook:tools_guard" and seams.plan is not None
                if guard and seams.plan.kind != "keyboard_interrupt":
                    refused = [e for e in on.agent.session.events if type(e) is ToolResulted and e.is_error]
                    if not any(e.error.code == "REFUSED_BY_FAULT" for e in refused):
                        wrong_now.append("a failing guard let the call run")
                return Seen("", wrong_now)

        report = sweep(scenario, kinds=kinds, backends=["asyncio"], stuck_s=0.2, limit=80)
        found += [str(row) for row in report.failures]
        if found:
            break
    return found


def cancels() -> list[str]:
    """A few cancel points in the four ways."""
    for way, name in (
        ("cancel", "answer_live"),
        ("cancel", "two_steps"),
        ("scope", "three_parallel"),
        ("dispose", "one_call"),
    ):
        test_cancel_points.own_ends(name)

        async def scenario(seams: Seams, name: str = name, way: str = way) -> Seen:
            return await test_cancel_points.scenario(name, way, seams)

        report = sweep(scenario, kinds=[way], backends=["asyncio"], at="pass", limit=14, stuck_s=0.2)
        if report.failures:
            return [str(row) for row in report.failures]

    async def never_suspends() -> list[str]:
        @tool(read_only=True)
        async def loop_on() -> str:
            """Cancel from inside, and never suspend."""
            agent.cancel()
            return "on"

        async with Agent(ScriptedModel(forever(call("loop_on"))), tools=[loop_on], max_steps=20) as agent:
            result = await agent.run("go")
            return [] if result.steps == 1 else [f"{result.steps} steps were done behind a cancel"]

    return attempt(never_suspends)


def struck() -> list[str]:
    """A few lines of append, fold and closing."""
    plain = test_line_faults.Lines()
    if found := test_line_faults.run("three_parallel_no_hooks", "asyncio", plain):
        return found
    for at in range(3, plain.seen, max(1, plain.seen // 60)):
        lines = test_line_faults.Lines(at, lambda: MemoryError("at a line"))
        if found := test_line_faults.run("three_parallel_no_hooks", "asyncio", lines):
            return [f"{lines.struck}: {each}" for each in found]
    return []


def guards() -> list[str]:
    """An effectful tool does not begin behind a closed gate."""

    async def main() -> list[str]:
        seams = Seams()
        async with stage(world.SCRIPTS["effectful_stored"], seams, store=SeamStore(MemoryStore(), seams)) as on:
            on.agent.session.observe(
                lambda event: (
                    event.type == "tool/start" and setattr(seams, "plan", FaultPlan(len(seams.names) + 1, "os_error"))
                )
            )
            with contextlib.suppress(Exception):
                await play(on)
            return ["the tool ran behind a closed gate"] if "tool:slow" in seams.names else []

    return attempt(main)


def raced() -> list[str]:
    """A few seeds of a few races."""
    for name in ("bursts", "bursts_one_by_one", "cancel_or_steer", "waiter_or_turn", "cancel_or_result"):
        for seed in range(4):
            try:
                found, _ = run_seeded(races.race, name, seed, seed=seed)
            except Exception as exc:
                return [repr(exc)]
            if found:
                return found
    return []
