"""The stage the proof's tests play on: one agent of a script of world.py, and what may not be wrong on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import world
from props import kept_plugin, kept_tools, now

from checkrein import Agent
from checkrein.agents import Approver
from checkrein.events import InboxAccepted, PluginFaulted, ToolStarted, TurnEnd
from checkrein.memory_store import MemoryStore
from checkrein.testing import ScriptedModel
from checkrein.testing.faults import Seams
from checkrein.testing.seams import SeamModel, SeamStore
from checkrein_invariants import check_events

__all__ = ["Stage", "conserved", "play", "reason_of", "reasons", "stage", "wrong"]


@dataclass
class Stage:
    """One agent on stage.

    Attributes:
        maker: the Agent that made it; `maker._harness` is its harness.
        model: plays the script; `model.over = True` makes it answer plainly.
        seen: what a live consumer saw.
    """

    script: Any
    seams: Seams
    maker: Agent
    agent: Any
    model: Any
    seen: list[Any] = field(default_factory=list)


@asynccontextmanager
async def stage(
    script: Any, seams: Seams, *, plugins: Sequence[object] = (), store: Any = None
) -> AsyncIterator[Stage]:
    """Give one agent with everything a script needs.

    Args:
        script: a world.Script.
        seams: of this run.
        plugins: more of them.
        store: where the session is kept, instead of what the script says.
    """
    now(seams)
    model = world.Then(ScriptedModel(*script.turns))
    chosen: list[Any] = [*plugins]
    if script.policy:
        chosen.append(world.Policy(**script.policy))
    if script.hooks != "none":
        chosen.append(kept_plugin(script.hooks))
    if store is None and script.store:
        store = SeamStore(MemoryStore(), seams)
    if store is not None:
        chosen.append(world.Flush())
    maker = Agent(
        SeamModel(model, seams),
        tools=kept_tools(),
        plugins=chosen,
        store=store,
        system_prompt="be brief",
        **script.spec,
    )
    async with maker as agent:
        if script.approvals is not None:
            maker._harness.provide(Approver, world.Person(script.approvals))
        yield Stage(script, seams, maker, agent, model)


async def play(on: Stage) -> Any:
    """Play the script from outside, and return the first turn's result."""
    if on.script.act is not None:
        return await on.script.act(on.agent)
    if not on.script.live:
        return await on.agent.run("go")
    async with on.agent.stream("go") as turn:
        async for item in turn:
            on.seen.append(item)
        return await turn.result()


def reason_of(reason: Any) -> str:
    """A reason in a word: `completed`, `error/plugin`, `cancelled/user`."""
    detail = reason.error or (reason.cause.kind if reason.cause is not None else None)
    return f"{reason.kind}/{detail}" if detail else str(reason.kind)


def reasons(session: Any) -> list[str]:
    """How each turn of a session ended."""
    return [reason_of(event.reason) for event in session.events if type(event) is TurnEnd]


def conserved(session: Any) -> list[str]:
    """The law of input (I3, I6): each accepted input is in exactly one place, and first in is first out.

    Read from the events alone, so that it can disagree with the state. Steering that a turn left over is queued input
    from then on (T5).
    """
    where: dict[str, list[str]] = {}
    waits: dict[str, str] = {}
    found: list[str] = []
    for event in session.events:
        if type(event) is InboxAccepted:
            if event.id in where:
                found.append(f"input {event.id} was accepted twice")
            where[event.id], waits[event.id] = [], event.kind
        elif event.type in ("user/message", "steering/message", "context/message", "inbox/discarded"):
            if event.id is None:
                continue
            where.setdefault(event.id, []).append(event.type)
            kind = waits.pop(event.id, None)
            first = next((id_ for id_ in where if waits.get(id_) == kind), None)
            if event.type != "inbox/discarded" and first is not None and int(first[1:]) < int(event.id[1:]):
                found.append(f"{kind} input {event.id} was taken before {first} (I6)")
        elif type(event) is TurnEnd:
            waits = {id_: "queued" if kind == "steering" else kind for id_, kind in waits.items()}
    for input_id, places in where.items():
        if input_id in session.state.pending:
            places.append("pending")
        if len(places) != 1:
            found.append(f"input {input_id} is in {len(places)} places: {places} (I3)")
    found += [f"input {i} is pending, but was never accepted" for i in session.state.pending if i not in where]
    return found


def wrong(on: Stage, *, twice: bool = True) -> list[str]:
    """What is wrong on this stage now, between turns: the log, deltas, input, and tools that ran too often.

    Args:
        twice: look for effectful tools that began more often than the log says.
    """
    session = on.agent.session
    found = world.problems(on.agent, on.seams, on.seen) + conserved(session)
    if twice:
        begun = sum(type(event) is ToolStarted and event.effect == "effectful" for event in session.events)
        ran = sum(on.seams.names.count(f"tool:{name}") for name in ("slow", "fails", "alone"))
        if ran > begun:
            found.append(f"effectful tools ran {ran} times, the log says {begun} (X6)")
    return found


def faults(session: Any) -> list[PluginFaulted]:
    """The faults a session recorded."""
    return [event for event in session.events if type(event) is PluginFaulted]


def judged(session: Any, *, open_ok: bool = False) -> list[str]:
    """What the oracle says of a session's log; `open_ok` if a turn may be open."""
    return [str(violation) for violation in check_events(session.events, open_ok=open_ok)]
