"""A program, or a tool, that changes its working directory leaves sessions and the workspace where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein import Harness, tool
from checkrein import events as ev
from checkrein.testing import ScriptedModel, call
from checkrein_persistence import JsonlStore, Plugin


@pytest.mark.parametrize("relative", ["store", "workspace"])
def test_R4_a_tool_that_changes_the_working_directory_takes_no_session_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: str
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path if relative == "workspace" else here)

    @tool
    def move() -> str:
        """Go elsewhere."""
        monkeypatch.chdir(elsewhere)
        return "x" * 200_000

    async def main() -> None:
        model = ScriptedModel(call("move"), "done", "more")
        options: dict[str, Any] = {"store": JsonlStore(".checkrein")} if relative == "store" else {"workspace": "here"}
        options |= {"overrides": {"model": "scripted:x"}, "plugins": [Plugin()], "found": ()}
        async with Harness(tools=[move], providers=[model], **options) as harness:
            agent = harness.agents["main"]
            for _ in range(2):
                (await agent.run("go")).check()
            assert harness.workspace == here
            assert not [event for event in agent.session.events if isinstance(event, ev.PluginFaulted)]
            assert JsonlStore(here / ".checkrein").read(agent.session.id).lines == agent.session.lines

    anyio.run(main)
    assert len(list(here.rglob("blobs/*"))) == 1 and not list(elsewhere.iterdir())
