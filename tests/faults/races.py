"""Races: many tasks act on one agent at once, in an order drawn from a seed. One run is one command:

    python tests/faults/races.py RACE BACKEND SEED

A race is what the model says and what each party does, one act after another; how long a party waits
between its acts is drawn too. `problems` holds the laws: whatever the order, the log is balanced, each input
is in exactly one place, every waiter comes back, and nothing is left running.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import world
from anyio.lowlevel import checkpoint
from stage import conserved, judged, reason_of

from checkrein import Agent, Ask, Continue, Retry, Stop, hookimpl, tool
from checkrein.agents import Approver
from checkrein.errors import AgentDisposed, AgentError, UnknownInput
from checkrein.events import TurnEnd, UserInput
from checkrein.memory_store import MemoryStore
from checkrein.testing import ScriptedModel, call, error, forever, run_seeded, text, wait

__all__ = ["RACES", "Race", "race"]


@tool(timeout_s=1.0)
async def tie(seconds: float = 1.0) -> str:
    """Take exactly as long as it may."""
    await anyio.sleep(seconds)
    return "in time"


@tool
async def work(seconds: float = 1.0) -> str:
    """Work for a while."""
    await anyio.sleep(seconds)
    return "worked"


@tool(read_only=True)
async def look() -> str:
    """Look, at once."""
    return "seen"


class SlowFlush(world.Flush):
    """A persistence that lets others run meanwhile."""

    @hookimpl
    async def session_flush(self, session: Any, gate: str) -> None:
        await checkpoint()
        writer = session.writer
        if writer.taken != len(session.lines):
            writer.append(session.lines[writer.taken :])
        await checkpoint()


@dataclass(frozen=True)
class Race:
    """One race.

    Args:
        turns: what the model says; then it answers `done` for ever.
        parties: what each task does, in order.
        policy: answers of world.Policy, by hook.
        spec: members of AgentSpec.
        approvals: what the person answers, each after a second.
        store: whether there is a store, flushed slowly.
    """

    turns: Sequence[Any]
    parties: Sequence[Sequence[str]]
    policy: dict[str, Sequence[Any]] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    approvals: Sequence[str] | None = None
    store: bool = False


TIE, WORK, LOOK = call("tie"), call("work"), call("look")
ASK = {"tools_guard": [Ask("really?")] * 3}

RACES: dict[str, Race] = {
    "bursts": Race([WORK, LOOK, [wait(1), text("hm")]], [["send"] * 3, ["steer"] * 3, ["inject"] * 3, ["run"]]),
    "bursts_one_by_one": Race([WORK, "a"], [["send"] * 3, ["run", "run"], ["steer"] * 2], spec={"queue_mode": "one"}),
    "cancel_or_answer": Race([[wait(1), text("a")]] * 3, [["run"], ["cancel"], ["send"]]),
    "cancel_or_result": Race([[WORK, LOOK, TIE]], [["run"], ["cancel", "cancel"], ["wake"]]),
    "cancel_or_steer": Race([WORK, LOOK, WORK], [["run"], ["steer", "steer"], ["cancel"], ["steer", "wake"]]),
    "cancel_discards": Race([WORK], [["send", "send"], ["cancel all"], ["inject", "steer"], ["run"]]),
    "dispose_or_all": Race([[WORK, TIE]], [["run"], ["send", "send"], ["steer"], ["inject", "cancel"], ["dispose"]]),
    "disposed_twice": Race([WORK], [["run"], ["run"], ["dispose"], ["dispose"]]),
    "approval_or_cancel": Race([[WORK, TIE]], [["run"], ["cancel"]], policy=ASK, approvals=["allowed_once", "denied"]),
    "approval_or_dispose": Race([WORK], [["run"], ["steer"], ["dispose"]], policy=ASK, approvals=["allowed_once"]),
    "timeout_or_result": Race([[TIE, WORK, TIE], TIE], [["run"], ["steer"], ["inject"]]),
    "timeout_or_cancel": Race([[TIE, TIE]], [["run"], ["cancel"], ["send"]]),
    "waiter_or_turn": Race([WORK, "a"], [["run 1s"], ["run 1s", "run"], ["send"]]),
    "waiter_or_cancel": Race([WORK, WORK], [["run 1s"], ["cancel"], ["steer", "wake"]]),
    "withdraw_or_take": Race(
        [WORK, "a"], [["send", "withdraw"], ["steer", "replace", "withdraw"], ["inject", "replace"]]
    ),
    "retry_or_cancel": Race(
        [error("SERVER"), error("SERVER")], [["run"], ["cancel"], ["steer"]], policy={"request_error": [Retry(1.0)] * 2}
    ),
    "votes_or_steer": Race(
        ["a", WORK, "b"],
        [["run"], ["steer", "steer"], ["steer", "send"]],
        policy={"turn_continuation": [Continue("more", "go on"), None, Stop("enough")]},
    ),
    "stored": Race([[WORK, LOOK], "a"], [["run"], ["send", "steer"], ["cancel"], ["send", "inject"]], store=True),
    "stored_disposed": Race([[WORK, LOOK]], [["run 1s"], ["send", "steer"], ["dispose"]], store=True),
    "steered_without_end": Race(
        ["a"] * 3, [["run"], ["steer"] * 4, ["steer"] * 4], spec={"max_steering_extensions": 2}
    ),
    "few_steps": Race([LOOK, LOOK, LOOK], [["run"], ["steer"], ["run"], ["inject"]], spec={"max_steps": 2}),
    "full_inbox": Race([WORK], [["send"] * 3, ["steer"] * 3, ["run"]], spec={"inbox_max": 3}),
}


class Party:
    """Acts on the agent; remembers what came of it."""

    def __init__(self, agent: Any, order: random.Random) -> None:
        self.agent = agent
        self.order = order
        self.receipts: list[Any] = []
        self.results: list[Any] = []
        self.waiting = 0

    async def play(self, acts: Sequence[str]) -> None:
        """Do one act after another, after pauses that are drawn."""
        for number, what in enumerate(acts):
            pause = self.order.randrange(6)
            if pause == 5:
                await anyio.sleep(1.0)
            for _ in range(pause if pause < 5 else 0):
                await checkpoint()
            with suppress(AgentDisposed, AgentError, UnknownInput):
                await self.act(what, number)

    async def act(self, what: str, number: int) -> None:
        """Do one thing."""
        agent = self.agent
        word, _, how = what.partition(" ")
        if word in ("send", "steer", "inject"):
            self.receipts.append(getattr(agent, word)(f"{what} {number}"))
        elif word == "run":
            self.waiting += 1
            try:
                with anyio.move_on_after(1.0 if how else 1_000):
                    self.results.append(await agent.run(f"{what} {number}"))
            finally:
                self.waiting -= 1
        elif word == "cancel":
            agent.cancel(discard_pending=how == "all")
        elif word == "withdraw":
            agent.withdraw(self.receipts[-1].id)
        elif word == "replace":
            agent.replace(self.receipts[-1].id, "replaced")
        elif word == "dispose":
            await agent.dispose()
        else:
            agent.wake()


async def race(name: str, seed: int) -> tuple[list[str], Any]:
    """Run a race once, and return what is wrong, and its session."""
    what = RACES[name]
    model = ScriptedModel(*what.turns, forever("done"))
    plugins: list[Any] = [SlowFlush()] if what.store else []
    if what.policy:
        plugins.append(world.Policy(**what.policy))
    store = MemoryStore() if what.store else None
    maker = Agent(model, tools=[tie, work, look], plugins=plugins, store=store, **what.spec)
    order = random.Random(seed)
    async with maker as agent:
        if what.approvals is not None:
            maker._harness.provide(Approver, world.Person(what.approvals))
        if store is not None:  # syncing takes a thread, which comes when it comes; a seed has to replay
            maker._harness.plugins.plugin("store")._synced = frozenset()
        party = Party(agent, order)
        async with anyio.create_task_group() as group:
            for acts in what.parties:
                group.start_soon(party.play, acts)
        await settled(agent)
        found = problems(agent, party, model)
    if agent.session.state.turn_open:
        found.append("a turn is open after the harness closed")
    if (
        store is not None
        and len(agent.session) > 1
        and bytes(store.raw(agent.session.id)).splitlines() != agent.session.lines
    ):
        found.append("the store does not hold the log's bytes")
    return found, agent.session


async def settled(agent: Any) -> None:
    """Take what was parked, and wait for the end."""
    if agent.status != "disposed":
        with suppress(AgentDisposed):
            agent.wake()
            await agent.idle()


def problems(agent: Any, party: Party, model: ScriptedModel) -> list[str]:
    """What no order of tasks may leave behind."""
    session = agent.session
    found = judged(session) + conserved(session)
    ends = {event.turn: event.reason for event in session.events if type(event) is TurnEnd}
    for turn, reason in ends.items():
        if reason_of(reason) not in ALLOWED:
            found.append(f"turn {turn} ended {reason}")
    for result in party.results:
        ids = [e.id for e in session.events if type(e) is UserInput and e.turn == result.turn and not e.mark]
        if len(ids) != 1:
            found.append(f"a turn of run() took the inputs {ids} (T6)")
        if result.reason != ends[result.turn]:
            found.append(f"run() returned {result.reason}, the log says {ends[result.turn]} (T4)")
    for receipt in party.receipts:
        place = {"pending": session.state.pending, "discarded": session.state.discarded}.get(
            receipt.status.state, session.state.claimed
        )
        if receipt.id not in place:
            found.append(f"receipt {receipt.id} says {receipt.status} (I4)")
    if party.waiting:
        found.append(f"{party.waiting} waiters did not come back")
    if agent.status not in ("idle", "disposed"):
        found.append(f"the agent is {agent.status} after the end")
    if agent.status == "idle" and any(entry.kind != "context" for entry in agent.pending):
        found.append(f"input is pending on an idle agent that was woken: {agent.pending}")
    if model.opened != model.closed:
        found.append(f"{model.opened} streams were opened, {model.closed} closed (C6)")
    return found


ALLOWED = {
    *("completed", "cancelled/user", "cancelled/task", "cancelled/hook", "disposed", "step_limit"),
    "error/generate",
}


def main(name: str, backend: str, seed: str) -> int:
    """Run one race and show its log."""
    found, session = run_seeded(race, name, int(seed), seed=int(seed), backend=backend)
    for line in session.lines:
        print(line.decode())  # noqa: T201
    print("\n".join(found) or "good")  # noqa: T201
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
