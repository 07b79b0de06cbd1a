"""checkrein in the peers' benchmark (see docs/benchmarks.md).

    python run.py --extra "checkrein=/path/to/python /path/to/benchmarks/peer_adapter.py"

The benchmark's folder is found through BENCH_HOME, or beside the project. CHECKREIN_BENCH_HOOKS=1 adds
an async fold, an async around, a sync vote and an observer, the second row of the W2 goals.
"""

import os
import sys
from pathlib import Path

HOME = Path(os.environ.get("BENCH_HOME") or Path(__file__).resolve().parents[2] / "shared" / "bench")
sys.path.insert(0, str(HOME))
from common import PROBE, Peer, main  # noqa: E402

from checkrein import hookimpl, tool  # noqa: E402
from checkrein.agents import AgentSpec  # noqa: E402
from checkrein.chunks import CallChunk, FinishChunk, TextChunk  # noqa: E402
from checkrein.config.types import HarnessConfig, SessionConfig  # noqa: E402
from checkrein.harness import Harness  # noqa: E402

HOOKS = bool(os.environ.get("CHECKREIN_BENCH_HOOKS"))


class Model:
    """The fake model: no I/O, no sleep."""

    name = "bench"

    def __init__(self, script):
        self.script = script

    async def stream(self, request):
        texts, calls = self.script.reply(request.messages)
        for text in texts:
            yield TextChunk(0, text)
        for index, call_id in enumerate(calls, 1):
            yield CallChunk(index, call_id, "lookup", '{"key":"k"}')
        yield FinishChunk("tool_calls" if calls else "stop")

    def missing(self):
        return None

    def default_model(self):
        return "fake"

    def window_tokens(self, model):
        return None


@tool
async def lookup(key: str) -> str:
    """Look a key up."""
    return await PROBE.call(key)


class Four:
    """One implementation of four kinds of hook."""

    @hookimpl
    async def agent_request(self, agent, turn, step, request):
        return None

    @hookimpl
    async def tools_execute(self, agent, call, proceed):
        return await proceed(call)

    @hookimpl
    def turn_continuation(self, agent, turn, step, decision):
        return None

    @hookimpl
    def session_event(self, session, event):
        pass


class Held:
    """One agent. All agents of a process live in one harness, as a program would have them; each has its own model."""

    harness = None

    def __init__(self, script, store):
        self.script, self.store, self.agent, self.own = script, store, None, None


async def harness_for(store):
    plugins = [Four()] if HOOKS else []
    kept = None
    if store:
        from checkrein_persistence import JsonlStore

        kept = JsonlStore(store)
    config = HarnessConfig(session=SessionConfig(store="memory"))
    harness = Harness(config=config, tools=[lookup], plugins=plugins, store=kept, found=[])
    harness.specs = []
    return await harness.__aenter__()


SPEC = {"max_steps": 0, "max_parallel_tool_calls": 64}


class Checkrein(Peer):
    name, dist = "checkrein", "checkrein"
    notes = {
        "W4": "all agents in one harness",
        "W5": "checkrein_persistence: written before each request and each call, synced at the end of the turn",
        "W7": "native agent.cancel()",
    }

    def build(self, script, store=None):
        return Held(script, store)

    async def open(self, held):
        if held.store or Held.harness is None:
            harness = await harness_for(held.store)
            if not held.store:
                Held.harness = harness
            else:
                held.own = harness
        harness = held.own or Held.harness
        n = next_number()
        model = Model(held.script)
        model.name = f"bench{n}"
        harness.providers.add(model)
        held.agent = await harness.create_agent(
            AgentSpec(id=f"a{n}", model=f"bench{n}:fake", **SPEC), session_id=f"s{n}"
        )

    async def turn(self, held, prompt):
        if held.script.chunks > 10:
            from checkrein import TextDelta

            seen = 0
            async with held.agent.stream(prompt, buffer=1_000_000) as turn:
                async for event in turn:
                    if type(event) is TextDelta:
                        seen += 1
            return seen
        result = await held.agent.run(prompt)
        if result.reason.kind not in ("completed", "cancelled"):
            raise RuntimeError(str(result.reason))
        return 0

    async def cancel(self, held, task):
        if os.environ.get("CHECKREIN_BENCH_TASK"):
            task.cancel()
        else:
            held.agent.cancel()

    async def close(self, held):
        if held.own is not None:
            await held.own.aclose()
        else:
            await held.agent.dispose()  # the others' agents are garbage by now, ours would live as long as its harness

    def pairs(self, messages):
        calls = [c.call_id for m in messages if type(m).__name__ == "AssistantMessage" for c in m.calls]
        return calls, [m.call_id for m in messages if type(m).__name__ == "ToolMessage"]

    def users(self, messages):
        return sum(type(m).__name__ == "UserMessage" for m in messages)

    async def seed(self, path, n):
        held = self.build(None, path)
        await self.open(held)
        from checkrein.events import (
            AssistantAnswer,
            InboxAccepted,
            Reason,
            RequestEnd,
            RequestHeader,
            RequestStart,
            StepEnd,
            StepStart,
            TurnEnd,
            TurnStart,
            UserInput,
        )
        from checkrein.messages import USER, TextBlock

        session = held.agent.session
        append = session.append
        while len(session.state.history.messages) < n:
            i, turn = len(session.state.history.messages), session.state.turn + 1
            said = [TextBlock(f"message {i}")]
            accepted = append(InboxAccepted(id=session.next_input(), kind="queued", content=said, source=USER))
            append(TurnStart(turn=turn, trigger={"kind": "input", "ids": [accepted.id]}))
            append(UserInput(turn=turn, id=accepted.id, content=said, source=USER))
            append(StepStart(turn=turn, step=1))
            if turn == 1:
                header = append(
                    RequestHeader(
                        turn=1,
                        step=1,
                        reason="initial",
                        provider="bench",
                        model="fake",
                        settings={},
                        system=[],
                        tools=[],
                    )
                )
            append(RequestStart(turn=turn, step=1, attempt=1, header=header.seq, messages=i + 1, digest="0" * 64))
            append(RequestEnd(turn=turn, step=1, attempt=1, outcome="ok", finish_reason="stop"))
            append(AssistantAnswer(turn=turn, step=1, content=[TextBlock(f"message {i + 1}")]))
            append(StepEnd(turn=turn, step=1))
            append(TurnEnd(turn=turn, reason=Reason("completed"), steps=1))
        await held.agent.flush("turn_end")
        await self.close(held)

    async def load(self, path):
        from checkrein.recovery import reopen
        from checkrein.session import Session
        from checkrein_persistence import JsonlStore

        store = JsonlStore(path)
        info = next(store.list())
        found, writer = reopen(store, info.id, {})
        writer.close()
        session = Session.load(info.id, found.events, found.lines, {}, found.state)
        return len(session.state.history.messages)


def next_number():
    next_number.n += 1
    return next_number.n


next_number.n = 0
main(Checkrein())
