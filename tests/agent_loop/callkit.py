"""What the tests of tool calls share: a meter of who runs at once, one turn to play, short questions to its events."""

from __future__ import annotations

from typing import Any

import anyio

from checkrein import Agent, tool
from checkrein import events as ev
from checkrein.messages import content_text
from checkrein.testing import ScriptedModel, call


def of(events: Any, kind: type) -> list[Any]:
    return [event for event in events if type(event) is kind]


def codes(events: Any) -> list[tuple[str, str]]:
    """Call id and error code (or `ok`) of every result, in order."""
    return [(e.call_id, e.error.code if e.error is not None else "ok") for e in of(events, ev.ToolResulted)]


def text_of(event: Any) -> str:
    return content_text(event.content)


class Meter:
    """Counts who runs at once."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.most = 0
        self.spans: dict[str, tuple[float, float]] = {}
        self.together: list[set[str]] = []

    async def run(self, name: str, seconds: float) -> None:
        self.now.append(name)
        self.most = max(self.most, len(self.now))
        self.together.append(set(self.now))
        begin = anyio.current_time()
        await anyio.sleep(seconds)
        self.spans[name] = (begin, anyio.current_time())
        self.now.remove(name)

    def tools(self) -> list[Any]:
        @tool(read_only=True)
        async def nap(name: str, seconds: float = 1.0) -> str:
            """Sleep."""
            await self.run(name, seconds)
            return name

        @tool(exclusive=True)
        async def alone(name: str, seconds: float = 1.0) -> str:
            """Sleep alone."""
            await self.run(name, seconds)
            return name

        return [nap, alone]


def nap(name: str, seconds: float = 1.0) -> Any:
    return call("nap", {"name": name, "seconds": seconds})


def alone(name: str) -> Any:
    return call("alone", {"name": name})


def play(run: Any, *turns: Any, tools: Any, plugins: Any = (), act: Any = None, **options: Any) -> Any:
    """Run one turn; returns its result, the events, and how long it took in virtual seconds."""

    async def main() -> Any:
        async with Agent(ScriptedModel(*turns), tools=tools, plugins=plugins, **options) as agent:
            begin = anyio.current_time()
            result = await (act(agent) if act is not None else agent.run("go"))
            took = anyio.current_time() - begin
            await agent.idle()
            return result, list(agent.session.events), took

    return run(main)
