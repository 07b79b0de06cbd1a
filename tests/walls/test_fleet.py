"""What a fleet of idle agents takes: in proportion to each other, never in absolute figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checkrein.agents import AgentSpec
from checkrein.config.types import HarnessConfig, SessionConfig
from checkrein.harness import Harness

AGENTS = 200
PROGRAM = """
import asyncio, gc, json, tracemalloc
from checkrein.agents import AgentSpec
from checkrein.config.types import HarnessConfig, SessionConfig
from checkrein.harness import Harness

async def bytes_each(**options):
    config = HarnessConfig(model="demo:rules", session=SessionConfig(store="memory"))
    async with Harness(config=config, **options) as harness:
        async def make(first, last):
            for n in range(first, last):
                await harness.create_agent(AgentSpec(id=f"a{n}", model="demo:rules"), session_id=f"s{n}")
        await make(0, 10)  # what all of them share is made by now
        gc.collect()
        tracemalloc.start()
        await make(10, 10 + AGENTS)
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size / AGENTS

async def main():
    from checkrein.discovery import PLUGINS, discover
    demo = [one for one in discover(PLUGINS) if one.name == "demo"]
    print(json.dumps([await bytes_each(found=demo), await bytes_each()]))
asyncio.run(main())
"""


def test_the_default_plugins_add_no_more_than_one_and_a_half_idle_agents(tmp_path: Path) -> None:
    """The oracle and the guards follow each agent; what they know of all agents alike they know once."""
    program = PROGRAM.replace("AGENTS", str(AGENTS))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path
    )
    bare, full = json.loads(done.stdout.splitlines()[-1])
    assert full < 2.5 * bare, f"{full:.0f} bytes an agent with the default plugins, {bare:.0f} without"


@pytest.mark.anyio
async def test_what_sessions_say_of_plugins_is_made_once_and_follows_changes() -> None:
    class Guest:
        pass

    async def said(harness: Harness, name: str) -> Any:
        agent = await harness.create_agent(AgentSpec(id=name, model="demo:rules"))
        return agent.session.state.created.plugins  # type: ignore[union-attr]

    config = HarnessConfig(model="demo:rules", session=SessionConfig(store="memory"))
    async with Harness(config=config) as harness:
        first, second = await said(harness, "a"), await said(harness, "b")
        assert first is second
        harness.plugins.register(Guest(), name="guest")
        third = await said(harness, "c")
        harness.plugins.unregister("guest")
        assert await said(harness, "d") == first
    names = {each["name"] for each in first}
    assert {each["name"] for each in third} == names | {"guest"}
