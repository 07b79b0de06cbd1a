"""A whole agent over the wire: turns against llmock, with and without retries (M6, M9, T4)."""

from __future__ import annotations

import anyio
import pytest

from checkrein import Agent, StepReset, TextDelta, tool
from checkrein.events import AssistantAnswer, RequestEnd, ToolStarted
from checkrein_retry import Plugin as Retries
from checkrein_retry import RetryConfig

pytest.importorskip("llmock", reason="the dev extra's llmock is not installed")

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
AT_ONCE = RetryConfig(first_delay_s=0.0, jitter=0.0)


@tool(read_only=True)
def weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


def run(backend, *prompts, plugins=(), **spec):
    """The results of prompts, one after the other, with the agent's events."""

    async def main():
        async with Agent("openai:gpt-5-mini", tools=[weather], plugins=list(plugins), **spec) as agent:
            results = [await agent.run(prompt) for prompt in prompts]
            return results, list(agent.session.events)

    return anyio.run(main, backend=backend)


@BACKENDS
def test_a_turn_with_a_tool(llmock, backend):
    llmock.call_tool("weather", {"city": "Paris"}).reply("It is sunny.")
    [result], _ = run(backend, "Weather in Paris?", system_prompt="Be brief.")
    assert (result.reason.kind, result.text, result.steps) == ("completed", "It is sunny.", 2)
    assert result.usage.output > 0
    sent = llmock.last_request.body["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert sent[3]["content"] == "sunny in Paris"
    assert sent[2]["tool_calls"][0]["id"] == sent[3]["tool_call_id"]


@BACKENDS
def test_case_S05_T4_a_truncated_stream_interrupts_the_turn_and_the_agent_lives(llmock, backend):
    llmock.reply("one two three four five").truncate(after_chunks=2).reply("Hello again.")
    (first, second), events = run(backend, "a", "b")
    assert first.reason.kind == "interrupted"
    assert (second.reason.kind, second.text) == ("completed", "Hello again.")
    assert [event.turn for event in events if isinstance(event, AssistantAnswer)] == [2]
    assert "one two" not in str(llmock.last_request.body["messages"])


@BACKENDS
@pytest.mark.parametrize("fault", ["truncate", "disconnect", "corrupt"])
def test_case_S38_M9_a_retry_shows_a_reset_and_the_answer_once(llmock, backend, fault):
    getattr(llmock.reply("one two three four five", times=2), fault)(after_chunks=2)
    seen = []

    async def main():
        async with Agent("openai:gpt-5-mini", plugins=[Retries(AT_ONCE)]) as agent:
            async with agent.stream("a") as turn:
                async for event in turn:
                    if isinstance(event, StepReset):
                        seen.clear()
                        seen.append("reset")
                    elif isinstance(event, TextDelta):
                        seen.append(event.text)
            return list(agent.session.events)

    events = anyio.run(main, backend=backend)
    assert seen[0] == "reset"
    assert "".join(seen[1:]) == "one two three four five"
    [answer] = [event for event in events if isinstance(event, AssistantAnswer)]
    assert answer.content[0].text == "one two three four five"
    outcomes = [event.outcome for event in events if isinstance(event, RequestEnd)]
    assert outcomes == ["interrupted" if fault == "truncate" else "error", "ok"]


@BACKENDS
def test_case_S39_a_call_of_a_failed_attempt_never_runs(llmock, backend):
    llmock.call_tool("weather", {"city": "Paris"}).truncate(after_chunks=2).reply("Done.")
    [result], events = run(backend, "a", plugins=[Retries(AT_ONCE)])
    assert (result.reason.kind, result.text) == ("completed", "Done.")
    assert not [event for event in events if isinstance(event, ToolStarted)]


@BACKENDS
def test_rate_limits_are_waited_for(llmock, backend):
    llmock.rate_limit(times=2, retry_after=0.05).reply("At last.")
    [result], _ = run(backend, "a", plugins=[Retries(AT_ONCE)])
    assert (result.reason.kind, result.text) == ("completed", "At last.")
    llmock.assert_resilient()


@BACKENDS
def test_an_outage_ends_the_turn_after_the_last_retry(llmock, backend):
    llmock.fail(503, times=None, retry_after=0.0)
    [result], _ = run(backend, "a", plugins=[Retries(RetryConfig(first_delay_s=0.0, max_retries=2))])
    assert (result.reason.kind, result.reason.error, result.reason.code) == ("error", "generate", "SERVER")
    assert len(llmock.requests) == 3


@BACKENDS
@pytest.mark.parametrize(("status", "code"), [(401, "INVALID_CREDENTIAL"), (400, "BAD_REQUEST")])
def test_what_will_not_pass_is_sent_once(llmock, backend, status, code):
    llmock.fail(status, times=None)
    [result], _ = run(backend, "a", plugins=[Retries(AT_ONCE)])
    assert (result.reason.kind, result.reason.code) == ("error", code)
    assert len(llmock.requests) == 1


@BACKENDS
def test_no_retry_after_text_if_the_config_says_so(llmock, backend):
    llmock.reply("one two three four five").disconnect(after_chunks=2).rate_limit(retry_after=0.0).reply("Fine.")
    careful = RetryConfig(first_delay_s=0.0, after_text=False)
    (first, second), _ = run(backend, "a", "b", plugins=[Retries(careful)])
    assert (first.reason.kind, first.reason.code) == ("error", "TRANSPORT")
    assert (second.reason.kind, second.text) == ("completed", "Fine.")
