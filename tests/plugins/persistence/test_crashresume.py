"""crashresume, a third party's crash oracle, over an agent that keeps its session with our persistence (X6, R2).

It kills an agent right behind each side effect, starts it again on the same store, and looks for lost
state, repeated effects and diverging ends.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein import Harness, tool
from checkrein import events as ev
from checkrein.messages import CallBlock
from checkrein.recovery import recover
from checkrein.testing import ScriptedModel, call
from checkrein_persistence import FileOps, JsonlStore, Plugin

crashresume = pytest.importorskip("crashresume")


class Payer:
    """An agent that pays once for each job, as crashresume wants its subjects: `step(job)` and `state()`.

    A crash inside the tool freezes the log's file there, as kill -9 would: what the harness still does in
    memory afterwards reaches no disk.
    """

    def __init__(self, ctx: Any, folder: Path, backend: str) -> None:
        self.ctx = ctx
        self.folder = folder / ctx.run_id
        self.folder.mkdir(exist_ok=True)
        self.backend = backend

    def step(self, job: str) -> None:
        crash: list[BaseException] = []
        store = FrozenStore(self.folder / ".checkrein")

        @tool
        def pay(job: str) -> str:
            """Pay for a job."""
            try:
                self.ctx.effect("pay", job, key=f"pay:{job}")
            except crashresume.InjectedCrash as exc:
                crash.append(exc)
                store.frozen = True
                raise
            return f"paid for {job}"

        async def main() -> None:
            harness = Harness(
                tools=[pay],
                providers=[ScriptedModel(call("pay", {"job": job}), "paid")],
                plugins=[Plugin()],
                store=store,
                workspace=self.folder,
                found=(),
                overrides={"model": "scripted:x"},
            )
            async with harness:
                known = [info.id for info in store.list()]
                agent = await harness.resume(known[0]) if known else harness.agents["main"]
                if f"pay:{job}" not in begun(agent.session.events):
                    await agent.run(f"pay for {job}")

        anyio.run(main, backend=self.backend)
        if crash:
            raise crash[0]

    def state(self) -> dict[str, list[str]]:
        store = JsonlStore(self.folder / ".checkrein")
        events = [event for info in store.list() for event in recover(store.read(info.id)).events]
        return {"paid": sorted(begun(events))}


def begun(events: Any) -> set[str]:
    """The payments that have begun, from the log alone."""
    started = {event.call_id for event in events if isinstance(event, ev.ToolStarted)}
    return {
        f"pay:{json.loads(block.arguments)['job']}"
        for event in events
        if isinstance(event, ev.AssistantAnswer)
        for block in event.content
        if isinstance(block, CallBlock) and block.call_id in started
    }


class FrozenStore(JsonlStore):
    """A JSON Lines store whose disk takes nothing more once it is frozen."""

    frozen = False

    def __init__(self, folder: Path) -> None:
        outer = self

        class Ops(FileOps):
            def write(self, fd: int, data: bytes) -> int:
                return len(data) if outer.frozen else super().write(fd, data)

            def truncate(self, fd: int, size: int) -> None:
                if not outer.frozen:
                    super().truncate(fd, size)

        super().__init__(folder, ops=Ops())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_case_D11_crashresume_finds_nothing_lost_and_nothing_repeated(tmp_path: Path, backend: str) -> None:
    report = crashresume.conform(lambda ctx: Payer(ctx, tmp_path, backend), inputs=["a", "b", "c"])
    print(report)
    assert report.crash_points == 3
    assert report.passed, str(report)
