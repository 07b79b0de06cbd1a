"""The plugin in a running agent: attempts, waits, overrides (M9, H6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import trio.testing

from checkrein import Agent, Harness, hookimpl
from checkrein.chunks import Chunk, FinishChunk, TextChunk, ThinkingChunk
from checkrein.config.types import AgentConfig, HarnessConfig, PluginsConfig, SessionConfig
from checkrein.errors import ProviderError
from checkrein.events import RequestEnd
from checkrein.messages import Request
from checkrein_retry import Plugin, RetryConfig

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
BUSY = ProviderError("busy", code="RATE_LIMIT", retryable=True)


class Failing:
    """A provider that plays one list of chunks, or an error behind them, for each attempt."""

    name = "failing"

    def __init__(self, *attempts: list[Chunk | ProviderError]) -> None:
        self.attempts = list(attempts)
        self.times: list[float] = []

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        self.times.append(anyio.current_time())
        for item in self.attempts.pop(0) if len(self.attempts) > 1 else self.attempts[0]:
            await anyio.sleep(0)
            if isinstance(item, ProviderError):
                raise item
            yield item

    def missing(self) -> None:
        return None

    def default_model(self) -> str:
        return "m"

    def window_tokens(self, model: str) -> None:
        return None


GOOD: list[Chunk | ProviderError] = [TextChunk(0, "good"), FinishChunk("stop")]


async def play(provider: Failing, *plugins: object, **spec):
    async with Agent(provider, plugins=plugins, **spec) as agent:
        result = await agent.run("go")
        return result, [event for event in agent.session.events if isinstance(event, RequestEnd)]


def in_virtual_time(provider: Failing, *plugins: object, **spec):
    async def main():
        return await play(provider, *plugins, **spec)

    clock = trio.testing.MockClock(autojump_threshold=0)
    return anyio.run(main, backend="trio", backend_options={"clock": clock})


@BACKENDS
def test_M9_failed_attempts_and_then_the_answer(backend):
    provider = Failing([BUSY], [TextChunk(0, "half"), BUSY], [TextChunk(0, "torn")], GOOD)

    async def main():
        return await play(provider, Plugin(RetryConfig(first_delay_s=0.0)))

    result, ends = anyio.run(main, backend=backend)
    assert (result.reason.kind, result.text) == ("completed", "good")
    assert [(end.attempt, end.outcome) for end in ends] == [(1, "error"), (2, "error"), (3, "interrupted"), (4, "ok")]


def test_the_waits_in_a_running_agent():
    provider = Failing([BUSY])
    result, ends = in_virtual_time(provider, Plugin(RetryConfig(), chance=lambda: 0.5))
    assert (result.reason.kind, result.reason.code, len(ends)) == ("error", "RATE_LIMIT", 6)
    waits = [after - before for before, after in zip(provider.times, provider.times[1:], strict=False)]
    assert waits == pytest.approx([0.5, 1.0, 2.0, 4.0, 8.0], abs=0.01)


def test_a_wait_that_was_asked_for():
    slow = ProviderError("busy", code="RATE_LIMIT", retryable=True, retry_after_s=30.0)
    provider = Failing([slow], GOOD)
    result, _ = in_virtual_time(provider, Plugin(chance=lambda: 0.0))
    assert result.reason.kind == "completed"
    assert provider.times[1] - provider.times[0] == pytest.approx(30.0, abs=0.01)


@pytest.mark.parametrize(
    ("shown", "attempts"),
    [([TextChunk(0, "half")], 1), ([ThinkingChunk(0, "hm")], 2), ([], 2)],
    ids=["text", "thinking", "nothing"],
)
def test_after_text_false_retries_only_what_nobody_has_read(shown, attempts):
    provider = Failing([*shown, BUSY], GOOD)
    _, ends = in_virtual_time(provider, Plugin(RetryConfig(after_text=False)))
    assert len(ends) == attempts


def test_after_text_false_looks_behind_what_others_log():
    class Notes:
        @hookimpl
        def session_event(self, session: Any, event: Any) -> None:
            if event.type in ("assistant/partial", "request/end"):
                session.append_free("notes/seen", {"seq": event.seq})

    provider = Failing([TextChunk(0, "half"), BUSY], GOOD)
    _, ends = in_virtual_time(provider, Plugin(RetryConfig(after_text=False)), Notes())
    assert len(ends) == 1


def test_after_text_false_looks_at_the_attempt_that_failed():
    provider = Failing([ThinkingChunk(0, "hm"), BUSY], [TextChunk(0, "half"), BUSY], GOOD)
    _, ends = in_virtual_time(provider, Plugin(RetryConfig(after_text=False)))
    assert len(ends) == 2


@pytest.mark.parametrize(("agent", "attempts"), [("main", 3), ("hasty", 1)])
def test_H6_an_agent_overrides_single_keys(agent, attempts):
    config = HarnessConfig(
        model="failing:m",
        agents=(AgentConfig(id="main"), AgentConfig(id="hasty", plugins={"retry": {"max_retries": 0}})),
        plugins=PluginsConfig(tables={"retry": {"max_retries": 2, "first_delay_s": 0}}),
        session=SessionConfig(store="memory"),
    )

    async def main():
        async with Harness(config=config, plugins=[Plugin], providers=[Failing([BUSY])], found=()) as harness:
            await harness.agents[agent].run("go")
            events = harness.agents[agent].session.events
            return [event for event in events if isinstance(event, RequestEnd)]

    assert len(anyio.run(main)) == attempts


@BACKENDS
def test_a_cancel_during_the_wait_ends_the_turn(backend):
    patient = Plugin(RetryConfig(first_delay_s=1_000, max_delay_s=1_000))

    async def main():
        async with Agent(Failing([BUSY]), plugins=[patient]) as agent:
            receipt = agent.send("go")
            await anyio.wait_all_tasks_blocked()
            agent.cancel()
            return await receipt.result()

    result = anyio.run(main, backend=backend)
    assert (result.reason.kind, result.reason.cause.kind) == ("cancelled", "user")
