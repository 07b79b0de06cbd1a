"""A history over its budget is cut at a pair-safe place, and each request is rebuilt from the log to its digest."""

from __future__ import annotations

import anyio
import pytest

from checkrein import Agent, tool
from checkrein.events import RequestStart
from checkrein.messages import AssistantMessage, ToolMessage
from checkrein.recovery import recover
from checkrein.requests import rebuild
from checkrein.testing import ScriptedModel, call
from checkrein_compaction import Plugin as Compaction
from checkrein_persistence import JsonlStore
from checkrein_persistence import Plugin as Persistence

TURNS = 14
WINDOW = 3_000


@tool(read_only=True)
def look(n: int) -> str:
    """Look at something long."""
    return f"{n}: " + "long " * 200


def balanced(messages) -> None:
    """Every call has its result at once, and no result stands without its call."""
    owed: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            owed.remove(message.call_id)
        else:
            assert not owed
            if isinstance(message, AssistantMessage):
                owed = [block.call_id for block in message.calls]
    assert not owed


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_L7_forty_messages_are_trimmed_and_rebuilt_from_the_stored_log(tmp_path, backend):
    script = [turn for n in range(TURNS) for turn in (call("look", {"n": n}), f"done {n}")]
    model = ScriptedModel(*script, window_tokens=WINDOW, record=True)
    store = JsonlStore(tmp_path)

    async def talk():
        async with Agent(model, tools=[look], plugins=[Compaction, Persistence], store=store) as agent:
            for n in range(TURNS):
                (await agent.run(f"question {n}")).check()
            return agent.session.id, len(agent.session.state.history.messages)

    session_id, length = anyio.run(talk, backend=backend)
    assert length == 4 * TURNS > 40
    events = recover(store.read(session_id)).events
    starts = [event for event in events if type(event) is RequestStart]
    assert len(starts) == len(model.requests) == 2 * TURNS
    cut = [start for start in starts if start.edits]
    assert cut and len(cut) < len(starts)
    for start, sent in zip(starts, model.requests, strict=True):
        request, digest = rebuild(events, start.seq)
        assert digest == start.digest
        assert list(request.messages) == list(sent.messages)
        balanced(sent.messages)
    longest = max(len(request.messages) for request in model.requests)
    assert longest < length
