"""Against llmock: a server nobody here wrote, on a real socket (PyPI `llmock`, in the dev extra)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from checkrein.chunks import Assembler
from checkrein.errors import ProviderError
from checkrein.messages import (
    AssistantMessage,
    CallBlock,
    Message,
    Request,
    TextBlock,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from checkrein_openai import OpenAIConfig, OpenAIProvider
from checkrein_openai.config import resolve

pytest.importorskip("llmock", reason="the dev extra's llmock is not installed")

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
HI = UserMessage([TextBlock("What is the weather in Paris?")])
WEATHER = ToolSchema("weather", "Weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}})


def ask(backend: str, *messages: Message, **config: Any) -> tuple[Assembler, ProviderError | None]:
    """One request through a real socket; OPENAI_BASE_URL is the server's (its fixture sets it)."""

    async def main() -> tuple[Assembler, ProviderError | None]:
        source = OpenAIProvider(resolve("openai", OpenAIConfig(**config)))
        assembler = Assembler()
        request = Request("gpt-5-mini", list(messages or (HI,)), tools=(WEATHER,), provider="openai")
        try:
            async for chunk in source.stream(request):
                assembler.push(chunk)
        except ProviderError as exc:
            return assembler, exc
        finally:
            await source.aclose()
        return assembler, None

    return anyio.run(main, backend=backend)


@BACKENDS
def test_a_text_turn(llmock, backend):
    llmock.reply("Sunny, 21 degrees.")
    assembler, error = ask(backend)
    assert error is None
    assert [part.text()[0] for part in assembler.parts.values()] == ["Sunny, 21 degrees."]
    assert assembler.finish.reason == "stop"
    assert assembler.usage.output > 0
    assert llmock.last_request.body["stream_options"] == {"include_usage": True}


@BACKENDS
def test_a_tool_turn_and_its_answer(llmock, backend):
    llmock.call_tool("weather", {"city": "Paris"}).reply("Done.")
    assembler, error = ask(backend)
    assert error is None
    [part] = [part for part in assembler.parts.values() if part.kind == "call"]
    assert (part.name, part.text()[0], assembler.finish.reason) == ("weather", '{"city": "Paris"}', "tool_calls")
    call = CallBlock("c1.1.1", part.name, part.text()[0])
    answer = AssistantMessage([call], "openai", "gpt-5-mini")
    result = ToolMessage("c1.1.1", "weather", [TextBlock("sunny")], False, part.id)
    assembler, error = ask(backend, HI, answer, result)
    assert (error, assembler.finish.reason) == (None, "stop")
    sent = llmock.last_request.body["messages"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == part.id


@BACKENDS
@pytest.mark.parametrize("after", [1, 2])
def test_M6_a_truncated_stream_is_torn(llmock, backend, after):
    llmock.reply("one two three four five").truncate(after_chunks=after)
    assembler, error = ask(backend)
    assert (assembler.finish, error) == (None, None)


@BACKENDS
def test_a_dropped_connection(llmock, backend):
    llmock.reply("one two three four five").disconnect(after_chunks=2)
    assembler, error = ask(backend)
    assert assembler.finish is None
    assert (error.code, error.retryable) == ("TRANSPORT", True)


@BACKENDS
def test_a_corrupt_chunk(llmock, backend):
    llmock.reply("one two three four five").corrupt(after_chunks=2)
    assembler, error = ask(backend)
    assert assembler.finish is None
    assert (error.code, error.kind, error.retryable) == ("MALFORMED_RESPONSE", "stream", True)


@BACKENDS
@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [(401, "INVALID_CREDENTIAL", False), (429, "RATE_LIMIT", True), (500, "SERVER", True), (503, "SERVER", True)],
)
def test_statuses(llmock, backend, status, code, retryable):
    llmock.fail(status, retry_after=7.0 if status == 429 else None)
    _, error = ask(backend)
    assert (error.code, error.retryable, error.status) == (code, retryable, status)
    if status == 429:
        assert error.retry_after_s == 7.0


@BACKENDS
def test_a_context_overflow(llmock, backend):
    llmock.context_overflow()
    _, error = ask(backend)
    assert (error.code, error.retryable) == ("CONTEXT_WINDOW_EXCEEDED", False)


@BACKENDS
def test_a_stalled_stream_times_out(llmock, backend):
    llmock.reply("one two three four five").stall(after_chunks=1, seconds=3.0)
    _, error = ask(backend, idle_timeout_s=0.3)
    assert (error.code, error.kind) == ("TIMEOUT", "timeout")


@BACKENDS
def test_arguments_that_were_broken_on_the_way_stay_as_they_came(llmock, backend):
    llmock.call_tool("weather", {"city": "Paris"}).break_tool_call("malformed_arguments")
    assembler, error = ask(backend)
    assert error is None
    [part] = [part for part in assembler.parts.values() if part.kind == "call"]
    assert part.name == "weather"
    assert part.text()[0] != '{"city": "Paris"}'
