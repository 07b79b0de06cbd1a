"""What the hook tests share: plugins of a few functions, one world to run them in, short questions to its log."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import anyio

from checkrein import Harness, hookimpl, tool
from checkrein import events as ev
from checkrein.agents import AgentSpec
from checkrein.memory_store import MemoryStore
from checkrein.testing import ScriptedModel, call


def plugin(name: str, **hooks: Any) -> Any:
    """A plugin made of functions, by hook name."""
    return SimpleNamespace(name=name, **{hook: hookimpl(fn) for hook, fn in hooks.items()})


def wrapper(name: str, **hooks: Any) -> Any:
    """A plugin made of wrapper generators, by hook name."""
    return SimpleNamespace(name=name, **{hook: hookimpl(wrapper=True)(fn) for hook, fn in hooks.items()})


def raising(exc: BaseException | None = None) -> Any:
    """A function that takes nothing and raises."""

    def fail() -> None:
        raise exc or ValueError("broken")

    return fail


async def hang() -> None:
    """Never answer."""
    await anyio.sleep_forever()


@tool
async def act(n: int = 1) -> str:
    """Act."""
    return f"acted {n}"


@tool(read_only=True)
async def look(n: int = 1) -> str:
    """Look."""
    return f"saw {n}"


@tool(idempotent=True)
async def put(n: int = 1) -> str:
    """Put."""
    return f"put {n}"


CALL = call("act", {"n": 1})


@dataclass
class Played:
    """What a run came to."""

    result: Any
    events: list[Any]
    harness: Any
    took_s: float
    model: ScriptedModel

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if type(event) is kind]

    @property
    def faults(self) -> list[tuple[str, str, str]]:
        return [(e.plugin, e.hook, e.action) for e in self.of(ev.PluginFaulted)]

    @property
    def outcomes(self) -> list[str]:
        """Each result's error code, or its text."""
        return [e.error.code if e.error else e.content[0].text for e in self.of(ev.ToolResulted)]

    def account(self, name: str, hook: str) -> Any:
        return next(impl for impl in self.harness.hooks.accounts() if (impl.plugin, impl.hook) == (name, hook))


def play(
    run: Any,
    *plugins: Any,
    turns: Any = (CALL, "done"),
    tools: Any = (act, look, put),
    act_on: Any = None,
    store: Any = None,
    config: Any = None,
    spec: AgentSpec | None = None,
) -> Played:
    """Run one turn (or `act_on(agent)`) with these plugins."""

    async def main() -> Played:
        model = ScriptedModel(*turns)
        harness = Harness(tools=tools, plugins=plugins, providers=[model], found=(), store=store, config=config)
        harness.specs = [spec or AgentSpec(model="scripted:x")]
        async with harness:
            agent = harness.agents[harness.specs[0].id]
            begin = anyio.current_time()
            result = await (act_on(agent) if act_on is not None else agent.run("go"))
            took = anyio.current_time() - begin
            await agent.idle()
            events = agent.session.events
        return Played(result, list(events), harness, took, model)

    return run(main)


__all__ = [
    "CALL",
    "MemoryStore",
    "Played",
    "act",
    "call",
    "hang",
    "look",
    "play",
    "plugin",
    "put",
    "raising",
    "wrapper",
]
