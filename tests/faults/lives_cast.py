"""Who plays in lives.py: tools of each kind, a model that says anything, a plugin that meddles, ours, and a person."""

from __future__ import annotations

import random
from typing import Any

import anyio

from checkrein import AgentSpec, Allow, Ask, Continue, Deny, Outcome, Retry, Stop, ToolContext, hookimpl, tool
from checkrein.errors import ProviderError
from checkrein.eventtypes import Balance, EventType
from checkrein.testing import call, error, finish, opaque, text, thinking, torn, usage, wait
from checkrein_budget import Plugin as Budget
from checkrein_compaction import Plugin as Compaction
from checkrein_permissions import Plugin as Permissions
from checkrein_retry import Plugin as Retries

__all__ = ["PAUSES", "TOOLS", "Person", "answer", "plugins"]

PAUSES = (0.0, 0.3, 0.7, 2.0)
NOTE = {"message": {"role": "user", "content": "noted"}}
NOTHING = ("",) * 6


# --- tools ----------------------------------------------------------------------------------------------


@tool
async def write(seconds: float = 0.0) -> str:
    """Write, after a while."""
    await anyio.sleep(seconds)
    return "written " * 30


@tool(read_only=True)
async def read(seconds: float = 0.0) -> str:
    """Read, after a while."""
    await anyio.sleep(seconds)
    return "text " * 40


@tool(idempotent=True, timeout_s=1.0)
async def fail(seconds: float = 0.0) -> str:
    """Fail, after a while, or time out."""
    await anyio.sleep(seconds)
    raise ValueError("no \ud800")


@tool(exclusive=True)
async def alone(seconds: float = 0.0) -> str:
    """Run alone."""
    await anyio.sleep(seconds)
    return "alone"


@tool(read_only=True)
async def nest(context: ToolContext, name: str = "read") -> str:
    """Call another tool."""
    outcome = await context.call(name, {"seconds": 0.3})
    return f"nested: {outcome.is_error}"


@tool
async def ask_another(context: ToolContext) -> str:
    """Have an agent of its own do it."""
    name = f"{context.session.id}-{len(context.session.events)}"
    spec = AgentSpec(id=f"sub-{name}", model="other:z", max_steps=2)
    agent = await context.agent.harness.create_agent(spec, session_id=f"sub-{name}")
    try:
        return (await agent.run("do it")).text
    finally:
        with anyio.CancelScope(shield=True):
            await agent.dispose()


TOOLS = [write, read, fail, alone, nest, ask_another]


# --- the model ------------------------------------------------------------------------------------------


def part(draw: random.Random) -> Any:
    """A piece of an answer."""
    kind = draw.choice(("text", "text", "thinking", "opaque", "wait", "bad call", "nested", *["call"] * 4))
    if kind == "text":
        return text(draw.choice(("a", "b \ud83c", "long " * 50, "")))
    if kind == "wait":
        return wait(draw.choice((0.5, 2.0)))
    if kind == "bad call":
        return call("write", raw=draw.choice(("", "[1]", '{"seconds"', '{"seconds":"x"}', "{}")))
    if kind == "nested":
        return call("nest", {"name": draw.choice(("read", "write", "fail", "nope", "nest"))})
    if kind == "call":
        name = draw.choice(("write", "read", "fail", "alone", "nope", "ask_another"))
        return call(name, {} if name == "ask_another" else {"seconds": draw.choice(PAUSES)})
    return thinking("hm") if kind == "thinking" else opaque({"a": 1})


def answer(draw: random.Random) -> Any:
    """An answer, or how it fails."""
    if draw.random() < 0.08:
        return draw.choice(('{"a":1}', '```json\n{"a": 2}\n```', '{"a":"x"}'))
    parts = [part(draw) for _ in range(draw.randint(1, 4))]
    if draw.random() < 0.4:
        parts.append(usage(input=draw.randint(0, 900), output=3))
    if draw.random() < 0.22:
        lost = ProviderError("lost", kind=draw.choice(("stream", "generate")), retryable=draw.random() < 0.6)
        parts.append(draw.choice((torn(), finish("max_tokens"), finish("content_filter"), error(lost))))
    return parts


# --- plugins and people ---------------------------------------------------------------------------------


class Meddles:
    """Does something with each hook, now and then."""

    name = "meddles"

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def _maybe(self, *what: Any) -> Any:
        if self._draw.random() < 0.75:
            return None
        drawn = self._draw.choice(what)
        if isinstance(drawn, Exception):
            raise drawn
        return drawn

    @hookimpl
    def register_events(self) -> list[EventType]:
        pair = Balance("meddles/open", "meddles/close", "key", lambda event: {"why": "closed"})
        return [EventType("meddles/open", balance=pair), EventType("meddles/close"), EventType("meddles/note")]

    @hookimpl
    async def agent_request(self, agent: Any, request: Any) -> Any:
        what = self._draw.choice(
            ["", "", "", "", "", "", "pair", "note", "settings", "system", "cut", "model", "raise"]
        )
        if what == "pair":
            agent.session.append_free("meddles/open", {"key": str(self._draw.randint(0, 5))}, plugin=self.name)
        elif what == "note":
            agent.session.append_free("meddles/note", NOTE, plugin=self.name)
        elif what == "raise":
            raise RuntimeError("request")
        changes = {
            "settings": {"settings": {"temperature": 0.5}},
            "system": {"system": (*request.system, "more")},
            "cut": {"messages": list(request.messages)[-1:]},
            "model": {"provider": "other", "model": "y"},
        }
        return request.replace(**changes[what]) if what in changes else None

    @hookimpl
    def step_result(self) -> None:
        if self._draw.random() < 0.05:
            raise RuntimeError("result")

    @hookimpl
    async def tools_guard(self) -> Any:
        return self._maybe(Deny("no"), Ask("may it?", rule="r"), Allow(), RuntimeError("guard"))

    @hookimpl
    async def tools_execute(self, call: Any, proceed: Any) -> Any:
        return self._maybe(Outcome.text("instead"), ValueError("around")) or await proceed(call)

    @hookimpl
    async def turn_continuation(self) -> Any:
        return self._maybe(Continue("more", "go on"), Stop("enough"), RuntimeError("vote"))

    @hookimpl
    async def request_error(self) -> Any:
        return self._maybe(Retry(), Retry(1.0))

    @hookimpl
    def session_event(self, session: Any, event: Any) -> None:
        drawn = self._draw.random()
        if drawn < 0.01:
            raise RuntimeError("observer")
        if drawn < 0.03 and not event.type.startswith("meddles/"):
            session.append_free("meddles/seen", {"seq": event.seq}, plugin=self.name)


class Person:
    """Answers questions, sooner or later, with some word."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    async def decide(self, agent: Any, approval: Any) -> str:
        await anyio.sleep(self._draw.choice((0.0, 0.2, 3.0)))
        return self._draw.choice(("allowed_once", "allowed_rule", "denied", "closed", "nonsense"))


def plugins(draw: random.Random) -> list[Any]:
    """Ours, each with limits that are met, and the one that meddles."""
    found: list[Any] = [Meddles(draw), Permissions(Permissions.Config(mode=draw.choice(("allow", "ask", "deny"))))]
    if draw.random() < 0.7:
        limits = {"max_calls": (0, 3), "max_tokens": (0, 2_000), "max_steps": (0, 4)}
        found.append(Budget(Budget.Config(**{name: draw.choice(values) for name, values in limits.items()})))
    if draw.random() < 0.7:
        window = draw.choice((150, 400, 1_000))
        found.append(Compaction(Compaction.Config(window_tokens=window, keep_recent=draw.choice((1, 3)))))
    if draw.random() < 0.5:
        found.append(Retries())
    return found
