"""The parts of `run` and `chat` on both backends: exit codes, following an agent, signals, finding a session."""

from __future__ import annotations

import json
import signal

import anyio
import pytest

from checkrein import Agent, tool
from checkrein import events as ev
from checkrein.chunks import TextChunk
from checkrein.cli.follow import Follower
from checkrein.cli.opening import find_session
from checkrein.cli.run import turn_code
from checkrein.cli.signals import Signals
from checkrein.cli.streams import JsonLines, Streams
from checkrein.errors import SessionNotFound
from checkrein.events import ApprovalDecided, Cause, Reason
from checkrein.live import TextDelta, ToolProgress
from checkrein.memory_store import MemoryStore
from checkrein.results import TurnResult
from checkrein.testing import ScriptedModel, call, text
from checkrein.tools import ToolContext

BACKENDS = ("asyncio", "trio")
CLOSED = ApprovalDecided(seq=1, time=0, id="a1", outcome="closed")
DENIED = ApprovalDecided(seq=1, time=0, id="a1", outcome="denied")


@pytest.mark.parametrize(
    ("reason", "events", "code"),
    [
        (Reason("completed"), (), 0),
        (Reason("completed"), (DENIED,), 0),
        (Reason("completed"), (CLOSED,), 6),
        (Reason("step_limit", max_steps=1), (), 7),
        (Reason("step_limit", max_steps=1), (CLOSED,), 6),
        (Reason("cancelled", cause=Cause("hook", plugin="permissions")), (CLOSED,), 6),
        (Reason("cancelled", cause=Cause("signal")), (CLOSED,), 130),
        (Reason("cancelled", cause=Cause("user")), (), 130),
        (Reason("cancelled", cause=Cause("budget", which="tokens")), (), 7),
        (Reason("disposed"), (), 130),
        (Reason("interrupted"), (), 1),
        (Reason("error", error="generate"), (), 5),
        (Reason("error", error="stream"), (), 5),
        (Reason("error", error="timeout"), (), 5),
        (Reason("error", error="generate", code="INVALID_CREDENTIAL"), (), 4),
        (Reason("error", error="plugin"), (), 1),
        (Reason("error", error="store"), (CLOSED,), 1),
        (Reason("error", error="max_tokens"), (), 1),
    ],
)
def test_T4_exit_code(reason, events, code):
    assert turn_code(TurnResult(1, reason, events=events)) == code


@tool(read_only=True)
async def busy(context: ToolContext) -> str:
    """Says that it is busy."""
    context.progress("busy")
    await anyio.lowlevel.checkpoint()
    return "done"


@pytest.mark.parametrize("backend", BACKENDS)
def test_L9_a_surrogate_pair_in_two_chunks_is_joined_in_the_lines_too(backend, capfdbinary):
    async def main():
        async with Agent(ScriptedModel([TextChunk(0, "a \ud83d"), TextChunk(0, "\ude00 b")])) as agent:
            follower = Follower(agent)
            assert (await agent.run("hi")).text == "a \U0001f600 b"
            screen = JsonLines(Streams(), agent.session, 0)
            for item in follower.ready():
                screen.show(item)

    anyio.run(main, backend=backend)
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [line["text"] for line in lines if line["type"] == "delta/text"] == ["a ", "\U0001f600 b"]
    assert lines[-1]["type"] == "turn/end"


@pytest.mark.parametrize("backend", BACKENDS)
def test_follower_gives_every_event_and_delta_in_order_over_several_turns(backend):
    seen = []

    async def main():
        model = ScriptedModel([text("one two", pieces=2), call("busy")], text("three", pieces=2), "four")
        async with Agent(model, tools=[busy]) as agent, anyio.create_task_group() as group:
            follower = Follower(agent)

            async def follow():
                while True:
                    seen.extend(follower.ready())
                    await follower.wait()

            group.start_soon(follow)
            await agent.run("first")
            agent.send("second")
            await agent.idle()
            group.cancel_scope.cancel()
            follower.close()
            seen.extend(follower.ready())
            return list(agent.session.events)

    events = anyio.run(main, backend=backend)
    assert [item for item in seen if hasattr(item, "seq")] == events
    assert "".join(item.text for item in seen if type(item) is TextDelta) == "one twothreefour"
    kinds = [type(item) for item in seen]
    assert kinds.index(ev.ToolStarted) < kinds.index(ToolProgress) < kinds.index(ev.ToolResulted)
    assert kinds.index(ev.RequestStart) < kinds.index(TextDelta) < kinds.index(ev.AssistantAnswer)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_C8_signal_is_told_in_the_loop_and_handlers_are_put_back(backend, signum):
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    async def main():
        told: list[int] = []
        arrived = anyio.Event()

        def tell(number):
            told.append(number)
            arrived.set()

        with Signals(tell, save=lambda: None) as signals:
            for _ in range(2):  # after `heard`, the next one is a first one again
                arrived = anyio.Event()
                signal.raise_signal(signum)
                await arrived.wait()
                signals.heard()
        return told

    assert anyio.run(main, backend=backend) == [signum, signum]
    assert {each: signal.getsignal(each) for each in before} == before


def test_signal_that_the_parent_ignores_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:

        async def main():
            with Signals(lambda signum: None, save=lambda: None):
                return signal.getsignal(signal.SIGINT)

        assert anyio.run(main) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_session_is_found_by_the_beginning_of_its_id():
    store = MemoryStore()
    for name in ("20260101-aa", "20260101-ab", "20260202-b", "20260202-bc"):
        store.create(name, [b"{}"])
    assert find_session(store, "20260101-aa") == "20260101-aa"
    assert find_session(store, "20260202-b") == "20260202-b"  # whole, though another one begins so too
    assert find_session(store, "20260202-bc") == "20260202-bc"
    for wanted in ("2026", "x", ""):
        with pytest.raises(SessionNotFound):
            find_session(store, wanted)
