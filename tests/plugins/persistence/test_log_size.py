"""What a session takes on disk is linear in what was said: nothing is written again with each step (L2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein import Harness, tool
from checkrein.testing import ScriptedModel, call, text, thinking
from checkrein_persistence import JsonlStore, Plugin

STEPS = 20
LONG = 1_000


@tool(read_only=True)
async def look(length: int = 5, note: str = "") -> str:
    """Look at so many characters."""
    return "r" * length


def size_of(folder: Path, *script: Any, said: str = "go") -> int:
    """Bytes on disk behind a turn that plays a script."""

    async def play() -> None:
        harness = Harness(
            tools=[look],
            providers=[ScriptedModel(*script, "done")],
            plugins=[Plugin()],
            store=JsonlStore(folder),
            workspace=folder.parent,
            found=(),
            overrides={"model": "scripted:x"},
        )
        async with harness:
            (await harness.agents["main"].run(said, max_steps=0)).check()

    anyio.run(play)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_L2_a_step_takes_as_many_bytes_late_in_a_turn_as_early(tmp_path: Path) -> None:
    none, some, many = (size_of(tmp_path / str(n), *[call("look", {})] * n) for n in (0, 200, 400))
    early, late = (some - none) / 200, (many - some) / 200
    print(f"{early:.0f} bytes a step early in a turn, {late:.0f} late in it")
    assert late == pytest.approx(early, rel=0.03)  # what changes is the length of numbers


@pytest.mark.parametrize("part", ["input", "answer", "thinking", "arguments", "result"])
def test_L2_what_is_said_is_stored_once(tmp_path: Path, part: str) -> None:
    def size(length: int) -> int:
        words = "w" * length
        said = words if part == "input" else "go"
        step = {
            "answer": [text(words), call("look", {})],
            "thinking": [thinking(words), call("look", {})],
            "arguments": [call("look", {"note": words})],
            "result": [call("look", {"length": length})],
        }.get(part, [call("look", {})])
        return size_of(tmp_path / str(length), *[step] * STEPS, said=said)

    times = {"input": 2}.get(part, STEPS)  # an input is logged when it is accepted and when a turn takes it
    assert size(10 * LONG) - size(LONG) == pytest.approx(9 * LONG * times, rel=0.02)
