"""What the loop's tests share: plugins of a few functions, tools that wait, and short questions to a log."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio

from checkrein import Source, hookimpl, tool
from checkrein.config.types import AgentConfig, HarnessConfig
from checkrein.harness import Harness
from checkrein.memory_store import MemoryStore
from checkrein.messages import AssistantMessage, ToolMessage, content_text

PLUGIN = Source("plugin", name="clock")


def plugin(name: str = "probe", **hooks: Any) -> Any:
    """A plugin made of functions, by hook name."""
    return SimpleNamespace(name=name, **{hook: hookimpl(function) for hook, function in hooks.items()})


def types(agent: Any, *, free: bool = False) -> list[str]:
    """The types of an agent's events from the first turn on; inbox, prompt and tool/start events only if `free`."""
    quiet = ("session/", "inbox/", "prompt/", "request/header", "tool/start", "tool/end")
    return [event.type for event in agent.session.events if free or not event.type.startswith(quiet)]


def of(agent: Any, kind: str) -> list[Any]:
    """An agent's events of one type."""
    return [event for event in agent.session.events if event.type == kind]


def reasons(agent: Any) -> list[str]:
    """How its turns ended."""
    return [event.reason.kind for event in of(agent, "turn/end")]


def said(agent: Any, kind: str = "user/message") -> list[str]:
    """The texts of its events of one type, in order."""
    return [content_text(event.content) for event in of(agent, kind)]


def results(agent: Any) -> list[tuple[str, str]]:
    """Call id and error code (or `ok`) of every result, in order."""
    return [(e.call_id, e.error.code if e.error is not None else "ok") for e in of(agent, "tool/result")]


def sent(request: Any) -> list[str]:
    """A request's messages as `role: text`."""
    role = {"UserMessage": "user", "AssistantMessage": "assistant", "ToolMessage": "tool"}
    return [f"{role[type(message).__name__]}: {content_text(message.content)}" for message in request.messages]


class Latch:
    """Opens once; waiting is possible before and after."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    def open(self) -> None:
        """Let everybody through."""
        self.event.set()

    async def wait(self) -> None:
        """Wait until it is open."""
        await self.event.wait()


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def nap(seconds: float = 3600.0) -> str:
    """Sleep."""
    await anyio.sleep(seconds)
    return "slept"


class Flush:
    """A small persistence: every gate hands the new lines to the session's writer."""

    name = "flush"

    def __init__(self) -> None:
        self.fail: Any = None

    @hookimpl
    def session_flush(self, session: Any, gate: str) -> None:
        """Write what is new."""
        if self.fail is not None:
            self.fail(session, gate)
        writer = session.writer
        if writer is not None and writer.taken != len(session.lines):
            writer.append(session.lines[writer.taken :])


def house(*models: Any, agents: tuple[str, ...] = ("main",), **options: Any) -> Harness:
    """A harness with agents that use the first model, and nothing that merely happens to be installed."""
    config = HarnessConfig(agents=tuple(AgentConfig(id=name, model=f"{models[0].name}:x") for name in agents))
    return Harness(config=config, providers=models, found=[], **options)


def killed(store: MemoryStore, session_id: str) -> MemoryStore:
    """What kill -9 leaves: the bytes of a session, without its lock."""
    left = MemoryStore()
    left.create(session_id, store.read(session_id).lines).close()
    return left


def unpaired(request: Any) -> list[str]:
    """What a strict provider refuses in a request's history: calls and results that do not stand together."""
    problems: list[str] = []
    owed: list[str] = []
    for place, message in enumerate(request.messages):
        if isinstance(message, ToolMessage):
            if not owed or message.call_id != owed[0]:
                problems.append(f"{place}: a result of {message.call_id}, owed {owed}")
            owed = owed[1:]
            continue
        if owed:
            problems.append(f"{place}: no result of {owed}")
        owed = [block.call_id for block in message.calls] if isinstance(message, AssistantMessage) else []
    return problems + ([f"end: no result of {owed}"] if owed else [])


def balanced(agent: Any) -> None:
    """What holds behind every cancel."""
    for word in ("turn", "step"):
        assert len(of(agent, f"{word}/start")) == len(of(agent, f"{word}/end"))
    assert len(of(agent, "request/start")) == len(of(agent, "request/end"))
    assert [e.call_id for e in of(agent, "tool/call")] == [e.call_id for e in of(agent, "tool/result")]


async def spin(holds: Callable[[], object]) -> None:
    """Pass the scheduler, without time going by, until something holds."""
    for _ in range(10_000):
        if holds():
            return
        await anyio.sleep(0)
    raise AssertionError("it never came")


class Place:
    """A place of a turn that waits at a latch, and opens `reached` when it is there."""

    def __init__(self) -> None:
        self.reached = Latch()

    async def stay(self, *_: Any) -> None:
        self.reached.open()
        await anyio.sleep_forever()


async def started(agent: Any) -> None:
    """Wait until a turn is open."""
    while not agent.session.state.turn_open:
        await anyio.sleep(0)


async def requested(agent: Any) -> None:
    """Wait until a request of its turn is open."""
    while not agent.session.state.request_open:
        await anyio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    """Let time go by until something holds."""
    while not holds():
        await anyio.sleep(0.01)
