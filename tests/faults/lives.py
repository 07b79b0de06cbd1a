"""Sessions of several lives: all our plugins at once, one that meddles with every hook, and a kill that cuts the log.

    python tests/faults/lives.py SEED

A life opens a harness with limits of its own and does what is drawn; between two lives the log may be cut at any
byte, its snapshot lost, the session forked or rewound. `play` holds the laws: whatever was drawn, the log is
balanced at each event, each input is in one place, a fold of the log gives the state, the deltas of a stream are
the text in the log, and a replay makes every event anew.
"""

from __future__ import annotations

import random
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from lives_cast import PAUSES, TOOLS, Person, answer, plugins
from stage import conserved

import checkrein.snapshot as snapshots
from checkrein import AgentSpec, Approver, Harness
from checkrein.errors import AgentDisposed, AgentError, StoreError, UnknownInput
from checkrein.live import StepReset, TextDelta
from checkrein.messages import content_text
from checkrein.recovery import recover
from checkrein.replay import replay
from checkrein.session import Session
from checkrein.sessions import fork, rewind
from checkrein.sse import to_sse
from checkrein.testing import ScriptedModel, forever, run_virtual
from checkrein.usage import UsageTracker
from checkrein_invariants import check_events
from checkrein_invariants.deep import EVERY, Deep
from checkrein_invariants.rules import Report
from checkrein_persistence import JsonlStore

__all__ = ["play"]

ACTS = (
    *("send", "send", "steer", "steer", "inject", "cancel", "cancel all", "withdraw", "replace", "wake"),
    *("run", "stream", "stream"),
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


# --- a life ---------------------------------------------------------------------------------------------


async def act(agent: Any, what: str, receipts: list[Any], draw: random.Random, found: list[str]) -> None:
    """Do something to the agent from outside."""
    with suppress(UnknownInput, AgentDisposed, AgentError):
        if what in ("send", "steer", "inject"):
            receipts.append(getattr(agent, what)(f"{what} " + "word " * draw.randint(0, 60), **options(what, draw)))
        elif what.startswith("cancel"):
            agent.cancel(discard_pending=what.endswith("all"))
        elif what == "wake":
            agent.wake()
        elif what == "run":
            with anyio.move_on_after(draw.choice((0.3, 1.5, 100.0))):
                await agent.run("run")
        elif what == "stream":
            await watch(agent, draw, found)
        elif receipts and what == "withdraw":
            agent.withdraw(draw.choice(receipts).id)
        elif receipts:
            agent.replace(draw.choice(receipts).id, "replaced")


def options(what: str, draw: random.Random) -> dict[str, Any]:
    """A client's key, and what a queued input may say of its turn."""
    found: dict[str, Any] = {"key": f"k{draw.randint(0, 3)}"} if draw.random() < 0.3 else {}
    if what == "send" and draw.random() < 0.4:
        said = ({"max_steps": 2}, {"model": "other:q"}, {"settings": {"temperature": 1}}, {"output_schema": SCHEMA})
        found |= draw.choice(said)
    return found


async def watch(agent: Any, draw: random.Random, found: list[str]) -> None:
    """Stream a turn, leave it early or not; the text that was shown is the text in the log."""
    most = draw.choice((3, 10, 10_000))
    seen: list[Any] = []
    async with agent.stream("stream", buffer=draw.choice((1, 4, 4_096))) as turn:
        async for item in turn:
            seen.append(item)
            to_sse(item)
            if len(seen) > most:
                return
    shown: dict[int, str] = {}
    for item in seen:
        if type(item) is TextDelta:
            shown[item.index] = shown.get(item.index, "") + item.text
        elif type(item) is StepReset:
            shown.clear()
        elif getattr(item, "type", None) in ("assistant/message", "assistant/partial"):
            said = item.text if item.type.endswith("partial") else content_text(item.content)
            if "".join(shown[index] for index in sorted(shown)) != said:
                found.append(f"shown was {shown}, the log says {said!r}")
            shown.clear()


async def life(draw: random.Random, store: Any, session_id: str) -> list[str]:
    """One life of a session: opened or resumed, worked, left in any state; what is wrong then."""
    model = ScriptedModel(*[answer(draw) for _ in range(draw.randint(1, 8))], forever("the end"))
    other = ScriptedModel(forever("from the other"))
    other.name = "other"
    spec = AgentSpec(
        id="a",
        model="scripted:x",
        max_steps=draw.choice((2, 9)),
        max_parallel_tool_calls=draw.choice((1, 4)),
        queue_mode=draw.choice(("all", "one")),
        max_steering_extensions=draw.choice((0, 2, 8)),
    )
    harness = Harness(tools=TOOLS, plugins=plugins(draw), store=store, providers=[model, other], found=())
    harness.specs = []
    harness.provide(Approver, Person(draw))
    receipts: list[Any] = []
    found: list[str] = []
    async with harness:
        harness.plugins.plugin("store")._synced = frozenset()  # syncing takes a thread, which comes when it comes
        if session_id in known(store):
            agent = await harness.resume(session_id, spec=spec)
            found += same_state(agent.session)
        else:
            agent = await harness.create_agent(spec, session_id=session_id)
        async with anyio.create_task_group() as group:
            if draw.random() < 0.8:
                agent.send("begin")
            for _ in range(draw.randint(0, 7)):
                await anyio.sleep(draw.choice(PAUSES))
                group.start_soon(act, agent, draw.choice(ACTS), receipts, draw, found)
            await anyio.sleep(draw.choice((0.0, 0.5, 1.0, 5.0)))
            if draw.random() < 0.6:
                agent.wake()
                with anyio.move_on_after(200):
                    await agent.idle()
            if draw.random() < 0.2:
                await agent.dispose()
            if draw.random() < 0.3:
                group.cancel_scope.cancel()
    return found + balanced(agent.session.events) + conserved(agent.session) + same_state(agent.session)


# --- the laws -------------------------------------------------------------------------------------------


def known(store: Any) -> list[str]:
    """The sessions a store has."""
    return [info.id for info in store.list()]


def balanced(events: Any) -> list[str]:
    """What the oracle finds, the history derived and validated behind every event."""
    report = Report()
    derived = Deep(report, when=EVERY)
    for event in events:
        report.seq = event.seq
        derived.feed(event)
    return [str(violation) for violation in (*check_events(list(events)), *report.violations)]


def same_state(session: Any) -> list[str]:
    """Where a fold of the log gives other projections than the session has, and the usage another sum."""
    folded = Session.load(session.id, list(session.events), list(session.lines), session.types).state.members()
    now = session.state.members()
    tracker = UsageTracker()
    for event in session.events:
        tracker.event(event)
    found = [f"the fold differs in {name}" for name in now if name != "history" and now[name] != folded[name]]
    if list(session.state.history.view()) != list(folded["history"].view()):
        found.append("the fold differs in the history")
    return found if tracker.total() == session.state.usage else [*found, f"usage is {session.state.usage}"]


def between(draw: random.Random, store: Any, session_id: str, n: int) -> tuple[str, list[str]]:
    """What happens to a session between two lives: the one that goes on, and what is wrong with it."""
    log = Path(store.locate(session_id))
    if draw.random() < 0.2:
        (log.parent / "snapshot").unlink(missing_ok=True)
    if draw.random() < 0.6:
        data = log.read_bytes()
        log.write_bytes(data[: draw.randint(data.index(b"\n") + 1, len(data))])
    if draw.random() < 0.7:
        return session_id, []
    try:
        if draw.random() < 0.5:
            new = rewind(store, session_id, new_id=f"r{n}")
        else:
            ends = [event.turn for event in recover(store.read(session_id)).events if event.type == "turn/end"]
            new = fork(store, session_id, draw.choice((0, *ends)), new_id=f"f{n}")
    except StoreError:  # there is no turn to go back to
        return session_id, []
    return new, balanced(recover(store.read(new)).events)


def play(seed: int) -> list[str]:
    """Play the lives of a session; return what is wrong, nothing if nothing is."""
    draw = random.Random(seed)
    backend, session_id = draw.choice(("asyncio", "trio")), "s"
    with tempfile.TemporaryDirectory() as folder:
        store = JsonlStore(folder, long_bytes=draw.choice((2_000, 10**9)), page_bytes=draw.choice((500, 1 << 20)))
        for n in range(draw.randint(1, 4)):
            found = run_virtual(life, draw, store, session_id, backend=backend, seed=draw.randint(0, 999))
            if not found and session_id in known(store):
                session_id, found = between(draw, store, session_id, n)
            if found:
                return [f"life {n}: {each}" for each in found]
        if session_id not in known(store):
            return []
        report = run_virtual(replay, recover(store.read(session_id)).events, backend=backend)
        return [] if report.equal else [f"replay: {report.stopped}", *map(str, report.differences)]


def main(seed: str) -> int:
    """Play one seed."""
    found = play(int(seed))
    print("\n".join(found) or "good")  # noqa: T201
    return bool(found)


if __name__ == "__main__":
    snapshots.WORTH, snapshots.PART = 3, 1_000
    sys.exit(main(*sys.argv[1:]))
