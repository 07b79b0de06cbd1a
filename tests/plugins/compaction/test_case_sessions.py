"""Public bug reports about compaction, acted out over whole sessions; docs/cases.md lists them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Agent, AgentLike, Request, tool
from checkrein.config.types import LimitsConfig
from checkrein.events import CompactionEnd, CompactionStart, CompactionSummary, RequestStart
from checkrein.messages import ToolMessage, UserMessage, content_text
from checkrein.testing import ScriptedModel, call, error
from checkrein_compaction import MARKER_PREFIX, Plugin, estimate_message_tokens
from checkrein_invariants import to_anthropic, to_openai_chat, validate_anthropic, validate_openai_chat

REFUSED = error("CONTEXT_WINDOW_EXCEEDED", "too long", retryable=False)


@tool(read_only=True)
def fetch(size: int) -> str:
    """Returns so many characters."""
    return "x" * size


def config(**values: Any) -> Plugin:
    return Plugin(Plugin.Config(**values))


def size(request: Request) -> int:
    return sum(map(estimate_message_tokens, request.messages))


def results(request: Request) -> list[str]:
    return [content_text(message.content) for message in request.messages if isinstance(message, ToolMessage)]


def test_case_C09_a_huge_newest_result_costs_no_other_message(run: Callable[..., Any]) -> None:
    """Only the oldest result was looked at: messages were dropped although the newest one was 2 MB."""
    script = [call("fetch", {"size": 200}), call("fetch", {"size": 2_000_000}), "done"]
    model = ScriptedModel(*script, record=True, window_tokens=128_000)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config()]) as agent:
            assert (await agent.run("the task")).ok
            starts = [event for event in agent.session.events if isinstance(event, RequestStart)]
            assert [start.edits for start in starts] == [None, None, None]

    run(main)
    last = model.requests[-1]
    small, huge = results(last)
    assert len(last.messages) == 5 and small == "x" * 200
    assert len(huge) <= LimitsConfig().output_max_bytes
    assert huge.startswith("x" * 1_000) and huge.count("x") > 10_000


def test_case_C09_a_result_larger_than_the_window_does_not_hold_the_session(run: Callable[..., Any]) -> None:
    """The same, where even the capped result is more than the model can take."""
    window = 4_000

    def answer(request: Request) -> Any:
        if size(request) > window:
            return REFUSED
        return call("fetch", {"size": 2_000_000}) if len(request.messages) == 1 else "fine"

    model = ScriptedModel(*[answer] * 5, window_tokens=window)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config()]) as agent:
            assert (await agent.run("the task")).reason.code == "CONTEXT_WINDOW_EXCEEDED"
            assert [(await agent.run("go on")).text for _ in range(3)] == ["fine"] * 3

    run(main)


def summarise(agent: AgentLike, number: int) -> None:
    """What a plugin that asks a model for a summary logs: all before the last input is replaced."""
    session = agent.session
    history = session.state.history
    last_input = max(i for i, message in enumerate(history.messages) if isinstance(message, UserMessage))
    name, span = f"k{number}", (history.seqs[0], history.seqs[last_input - 1])
    message = {"role": "user", "content": [{"type": "text", "text": f"summary {number}"}]}
    session.append(CompactionStart(id=name, range=span))
    session.append(CompactionSummary(id=name, range=span, message=message, tokens_before=2_000, tokens_after=10))
    session.append(CompactionEnd(id=name, range=span, outcome="ok"))


@pytest.mark.parametrize("keep_recent", [1, 2, 3, 4, 7])
def test_case_C13_compacted_right_after_a_compaction_each_request_is_paired(
    run: Callable[..., Any], keep_recent: int
) -> None:
    """The second trigger sent a call without its result; no repair by hand got the session going again."""
    turns = 8
    script = [call("fetch", {"size": 1_200}), [call("fetch", {"size": 900}), call("fetch", {"size": 900})], "said"]
    model = ScriptedModel(*script * turns, record=True, window_tokens=1_000)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config(keep_recent=keep_recent)]) as agent:
            for number in range(turns):
                assert (await agent.run(f"question {number}")).text == "said"
                if number % 2:
                    summarise(agent, number)

    run(main)
    sent = [content_text(message.content) for request in model.requests for message in request.messages]
    assert any(text.startswith(MARKER_PREFIX) for text in sent) and "summary 7" not in sent and "summary 5" in sent
    for request in model.requests:
        assert not validate_openai_chat(to_openai_chat(request.messages))
        assert not validate_anthropic(to_anthropic(request.messages))
