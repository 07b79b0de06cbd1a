"""The plugin in a running agent: requests stay within the window, the cut is kept, logged, rebuilt and resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import anyio
import pytest

from checkrein import Agent, AgentLike, AgentSpec, Request, hookimpl, tool
from checkrein.events import RequestStart
from checkrein.memory_store import MemoryStore
from checkrein.messages import AssistantMessage, Message, ToolMessage, UserMessage, content_text
from checkrein.requests import rebuild
from checkrein.testing import ScriptedModel, call, error, usage
from checkrein_compaction import DEFAULT_WINDOW_TOKENS, MARKER_PREFIX, Plugin, estimate_message_tokens
from checkrein_invariants import to_anthropic, to_openai_chat, validate_anthropic, validate_openai_chat
from checkrein_invariants.checking import check_bytes
from checkrein_persistence import Plugin as Persistence


@tool(read_only=True)
def fetch(size: int = 400) -> str:
    """Returns so many characters."""
    return "x" * size


def steps(count: int, size: int = 400) -> list[Any]:
    return [*([call("fetch", {"size": size})] * count), "done"]


def config(**values: Any) -> Plugin:
    return Plugin(Plugin.Config(**values))


def starts(agent: AgentLike) -> list[RequestStart]:
    return [event for event in agent.session.events if isinstance(event, RequestStart)]


def edits(agent: AgentLike) -> list[dict[str, Any] | None]:
    return [start.edits for start in starts(agent)]


def size(messages: Sequence[Message]) -> int:
    return sum(map(estimate_message_tokens, messages))


def check_balanced(messages: Sequence[Message]) -> None:
    owed: list[str] = []
    assert isinstance(messages[0], UserMessage)
    for message in messages:
        if isinstance(message, ToolMessage):
            owed.remove(message.call_id)
        else:
            assert not owed
            owed = [block.call_id for block in message.calls] if isinstance(message, AssistantMessage) else []


def test_O21_every_request_stays_within_budget_and_balanced(run: Callable[..., Any]) -> None:
    model = ScriptedModel(*steps(80), record=True, window_tokens=2_500)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config()]) as agent:
            assert (await agent.run("the task")).ok
            assert len(model.requests) == 81
            for request in model.requests:
                assert size(request.messages) <= 2_000
                check_balanced(request.messages)
                assert content_text(request.messages[0].content) == "the task"
            report = agent.harness.plugins.plugin("compaction").report(agent)
            assert report.kind == "fits" and report.tokens_after < report.tokens_before

    run(main)


def test_O26_a_cut_is_kept_until_the_budget_is_passed_again(run: Callable[..., Any]) -> None:
    model = ScriptedModel(*steps(80), record=True, window_tokens=2_500)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config()]) as agent:
            await agent.run("the task")
            seen = edits(agent)
            changes = [new for old, new in pairwise(seen) if new != old]
            assert seen[0] is None and 4 <= len(changes) <= 10
            for before, after in pairwise(model.requests):
                old, new = list(before.messages), list(after.messages)
                cut = content_text(old[1].content if len(old) > 1 else []) != content_text(new[1].content)
                assert cut or new[: len(old)] == old

    run(main)


def test_L7_trimmed_requests_are_rebuilt_from_the_log(run: Callable[..., Any]) -> None:
    model = ScriptedModel(*steps(40), record=True, window_tokens=2_500)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config()]) as agent:
            await agent.run("the task")
            for start, sent in zip(starts(agent), model.requests, strict=True):
                request, digest = rebuild(agent.session.events, start.seq)
                assert digest == start.digest and list(request.messages) == list(sent.messages)
                assert not validate_openai_chat(to_openai_chat(sent.messages))
                assert not validate_anthropic(to_anthropic(sent.messages))
            checked = check_bytes("log", b"\n".join([*agent.session.lines, b""]), deep=True)
            assert checked is not None and checked.ok(strict=True), checked

    run(main)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_L1_a_resumed_session_goes_on_with_its_cut(backend: str) -> None:
    store = MemoryStore()

    async def main() -> None:
        model = ScriptedModel(*steps(30), window_tokens=2_500)
        async with Agent(model, tools=[fetch], plugins=[config(), Persistence], store=store) as agent:
            await agent.run("the task")
            session, last = agent.session.id, edits(agent)[-1]
        assert last is not None
        model = ScriptedModel("again", window_tokens=2_500)
        async with Agent(model, tools=[fetch], plugins=[config(), Persistence], store=store) as first:
            agent = await first.harness.resume(session, spec=first.spec)
            await agent.run("go on")
            assert edits(agent)[-1] == last

    anyio.run(main, backend=backend)  # in real time: syncing waits for a thread


def test_what_the_provider_counted_corrects_the_estimate(run: Callable[..., Any]) -> None:
    async def cut_at(tokens_per_estimate: float) -> int:
        def answer(request: Request) -> Any:
            counted = int(size(request.messages) * tokens_per_estimate)
            return [call("fetch", {"size": 1_600}), usage(input=counted // 2, cache_read=counted - counted // 2)]

        model = ScriptedModel(*[answer] * 60, "done", window_tokens=20_000)
        async with Agent(model, tools=[fetch], plugins=[config()], max_steps=0) as agent:
            await agent.run("the task")
            return next((index for index, edit in enumerate(edits(agent)) if edit is not None), 60)

    async def main() -> None:
        truthful, double, half = await cut_at(1), await cut_at(2), await cut_at(0.5)
        assert 33 <= truthful <= 40
        assert double < truthful * 0.7 and half > truthful

    run(main)


def test_a_huge_result_is_sent_as_it_is_and_reported(run: Callable[..., Any]) -> None:
    model = ScriptedModel(*steps(1, 40_000), record=True, window_tokens=2_500)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config()]) as agent:
            assert (await agent.run("the task")).ok
            report = agent.harness.plugins.plugin("compaction").report(agent)
            assert report.kind == "over_budget" and report.culprit == "messages" and report.cut is None
            assert edits(agent) == [None, None] and len(model.requests[1].messages) == 3

    run(main)


def test_case_C01_nothing_is_cut_again_and_again(run: Callable[..., Any]) -> None:
    script = [*steps(20)[:-1], call("fetch", {"size": 12_000}), *steps(3)]
    model = ScriptedModel(*script, window_tokens=2_500)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config()]) as agent:
            assert (await agent.run("the task")).ok
            changes = sum(new != old for old, new in pairwise(edits(agent)))
            assert changes <= 6

    run(main)


def test_case_C02_overhead_over_the_window_is_reported_and_the_provider_decides(run: Callable[..., Any]) -> None:
    refused = error("CONTEXT_WINDOW_EXCEEDED", "too long", retryable=False)
    model = ScriptedModel(refused, window_tokens=1_000)

    async def main() -> None:
        async with Agent(model, plugins=[config()], system_prompt="s" * 20_000) as agent:
            result = await agent.run("the task")
            assert result.reason.kind == "error" and result.reason.code == "CONTEXT_WINDOW_EXCEEDED"
            report = agent.harness.plugins.plugin("compaction").report(agent)
            assert report.kind == "over_budget" and report.culprit == "system"

    run(main)


def test_case_C14_after_a_refusal_for_length_the_next_request_is_smaller(run: Callable[..., Any]) -> None:
    refused = error("CONTEXT_WINDOW_EXCEEDED", "too long", retryable=False)
    model = ScriptedModel(*steps(30)[:-1], refused, "fine now", record=True, window_tokens=1_000_000)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config()]) as agent:
            assert (await agent.run("the task")).reason.kind == "error"
            assert edits(agent)[-1] is None
            assert (await agent.run("once more")).text == "fine now"
            assert size(model.requests[-1].messages) < size(model.requests[-2].messages) * 0.6
            assert content_text(model.requests[-1].messages[-1].content) == "once more"

    run(main)


def test_case_C12_an_unknown_window_is_not_no_window(run: Callable[..., Any]) -> None:
    model = ScriptedModel(*steps(40, 16_000), record=True)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config()]) as agent:
            assert (await agent.run("the task")).ok
            assert max(size(request.messages) for request in model.requests) <= 0.8 * DEFAULT_WINDOW_TOKENS
            assert edits(agent)[-1] is not None

    run(main)


def test_case_C19_the_answers_share_is_left_free(run: Callable[..., Any]) -> None:
    model = ScriptedModel(*steps(40), record=True, window_tokens=4_000)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config()], settings={"max_tokens": 2_000}) as agent:
            assert (await agent.run("the task")).ok
            assert max(size(request.messages) for request in model.requests) <= 2_000

    run(main)


def test_switched_off_nothing_is_cut(run: Callable[..., Any]) -> None:
    model = ScriptedModel(*steps(40), window_tokens=2_500)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[config(enabled=False)]) as agent:
            await agent.run("the task")
            assert set(map(str, edits(agent))) == {"None"}

    run(main)


def test_H6_an_agent_overrides_its_window(run: Callable[..., Any]) -> None:
    model = ScriptedModel(*steps(40), window_tokens=100_000)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[Plugin]) as first:
            table = {"compaction": {"window_tokens": 2_500}}
            spec = AgentSpec(id="second", model=first.spec.model, plugins=table)
            agent = await first.harness.create_agent(spec)
            await agent.run("the task")
            assert edits(agent)[-1] is not None

    run(main)


def test_a_history_another_plugin_rewrote_is_left_alone(run: Callable[..., Any]) -> None:
    class Rewriter:
        @hookimpl
        def agent_request(self, request: Request) -> Request:
            return request.replace(messages=list(request.messages))

    model = ScriptedModel(*steps(40), window_tokens=2_500)

    async def main() -> None:
        async with Agent(model, tools=[fetch], plugins=[Rewriter, config()]) as agent:
            assert (await agent.run("the task")).ok
            assert MARKER_PREFIX not in str(edits(agent))

    run(main)


@pytest.mark.parametrize(
    "values", [{"threshold": 0}, {"threshold": 1.1}, {"keep_recent": 0}, {"window_tokens": 0}, {"window_tokens": -1}]
)
def test_impossible_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Plugin.Config(**values)
