"""The connection: every wait bounded, every reply closed, on both backends (C6)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import httpx2
import pytest
import trio.testing

from checkrein.chunks import Chunk, FinishChunk, TextChunk
from checkrein.errors import ProviderError
from checkrein.messages import Request, TextBlock, UserMessage
from checkrein.providers import Provider
from checkrein_openai import OpenAIConfig, OpenAIProvider, Plugin
from checkrein_openai.config import resolve

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
HELLO = b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
REQUEST = Request("m", [UserMessage([TextBlock("hi")])], provider="openai")

Step = bytes | float | BaseException
"""What a scripted body does next: bytes come, seconds pass, or the connection breaks."""


class Body(httpx2.AsyncByteStream):
    """A body that plays steps and counts how often it was closed."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.closed = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for step in self.steps:
            if self.closed:
                raise httpx2.ReadError("closed")
            if isinstance(step, bytes):
                await anyio.sleep(0)
                yield step
            elif isinstance(step, BaseException):
                raise step
            else:
                await anyio.sleep(step)

    async def aclose(self) -> None:
        self.closed += 1


class Wire(httpx2.AsyncBaseTransport):
    """A transport that answers each request with one scripted body."""

    def __init__(self, *steps: Step, status: int = 200, headers: dict[str, str] | None = None, wait_s: float = 0.0):
        self.steps = list(steps)
        self.body = Body(self.steps)
        self.requests: list[httpx2.Request] = []
        self.status, self.headers, self.wait_s = status, headers or {}, wait_s

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        await anyio.sleep(self.wait_s)
        self.body = Body(self.steps)
        return httpx2.Response(self.status, headers=self.headers, stream=self.body)


def provider(wire: Wire | None = None, **config: Any) -> OpenAIProvider:
    config.setdefault("base_url", "http://127.0.0.1:9/v1")
    at = resolve("openai", OpenAIConfig(**config))
    return OpenAIProvider(at, None if wire is None else lambda: wire)


async def collect(source: OpenAIProvider, request: Request = REQUEST) -> list[Chunk]:
    stream = source.stream(request)
    try:
        return [chunk async for chunk in stream]
    finally:
        await stream.aclose()  # type: ignore[attr-defined]
        await source.aclose()


def run(backend: str, fn: Callable[[], Awaitable[Any]]) -> Any:
    return anyio.run(fn, backend=backend)


def run_in_virtual_time(fn: Callable[[], Awaitable[Any]]) -> Any:
    clock = trio.testing.MockClock(autojump_threshold=0)
    return anyio.run(fn, backend="trio", backend_options={"clock": clock})


def fails(source: OpenAIProvider, runner: Callable[..., Any] = run_in_virtual_time) -> ProviderError:
    async def main() -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            await collect(source)
        return caught.value

    return runner(main)


# --- the plain way


@BACKENDS
def test_a_stream_from_the_first_to_the_last_chunk(backend, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", " sk-secret\n")
    wire = Wire(HELLO, END, headers={"x-request-id": "req-1"})
    chunks = run(backend, lambda: collect(provider(wire, headers={"X-Title": "t"}, body={"cache_prompt": True})))
    assert chunks == [TextChunk(0, "hello"), FinishChunk("stop", "req-1")]
    assert wire.body.closed == 1
    [request] = wire.requests
    assert str(request.url) == "http://127.0.0.1:9/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-secret"
    assert request.headers["x-title"] == "t"
    assert json.loads(request.content)["cache_prompt"] is True


def test_it_is_a_provider():
    assert isinstance(provider(), Provider)


@BACKENDS
def test_a_json_answer_to_a_streaming_request_is_taken(backend):
    answer = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}
    chunks = run(backend, lambda: collect(provider(Wire(json.dumps(answer).encode()))))
    assert chunks == [TextChunk(0, "whole"), FinishChunk("stop")]


# --- closing


@BACKENDS
def test_C6_a_stream_never_started_opens_nothing(backend):
    wire = Wire(HELLO)

    async def main() -> None:
        await provider(wire).stream(REQUEST).aclose()

    run(backend, main)
    assert wire.requests == []


@BACKENDS
def test_C6_a_stream_left_in_the_middle_is_closed_once(backend):
    wire = Wire(HELLO, HELLO, 100.0)

    async def main() -> None:
        source = provider(wire)
        stream = source.stream(REQUEST)
        assert await anext(stream) == TextChunk(0, "hello")
        await stream.aclose()
        await source.aclose()

    run(backend, main)
    assert wire.body.closed == 1


@BACKENDS
@pytest.mark.parametrize("when", ["before the headers", "in mid chunk"])
def test_case_X02_C6_a_stream_cancelled_while_it_waits_is_closed(backend, when):
    wire = Wire(HELLO, 100.0, wait_s=100.0 if when == "before the headers" else 0.0)
    seen: list[Chunk] = []

    async def main() -> None:
        source = provider(wire)
        stream = source.stream(REQUEST)

        async def consume() -> None:
            async for chunk in stream:
                seen.append(chunk)  # noqa: PERF401

        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        await stream.aclose()
        await source.aclose()

    run(backend, main)
    assert wire.body.closed == (0 if when == "before the headers" else 1)
    assert seen == ([] if when == "before the headers" else [TextChunk(0, "hello")])


@BACKENDS
def test_C6_a_reply_is_closed_when_the_body_cannot_be_read(backend):
    wire = Wire(b"<html>", 100.0)
    assert fails(provider(wire), lambda fn: run(backend, fn)).code == "MALFORMED_RESPONSE"
    assert wire.body.closed == 1


@BACKENDS
def test_one_client_an_event_loop(backend):
    made: list[Wire] = []

    def transport() -> Wire:
        made.append(Wire(HELLO, END))
        return made[-1]

    source = OpenAIProvider(resolve("openai", OpenAIConfig(base_url="http://localhost:1/v1")), transport)

    async def main() -> None:
        for _ in range(2):
            async for _chunk in source.stream(REQUEST):
                pass
        await source.aclose()

    run(backend, main)
    run(backend, main)
    assert [len(wire.requests) for wire in made] == [2, 2]


# --- time, virtual


def test_case_S36_keepalives_keep_a_slow_stream_alive():
    wire = Wire(HELLO, *[15.0, b": keepalive\n\n"] * 20, END)
    assert run_in_virtual_time(lambda: collect(provider(wire, idle_timeout_s=60.0)))[-1] == FinishChunk("stop")


def test_case_S36_silence_is_a_timeout():
    error = fails(provider(Wire(HELLO, 61.0, END), idle_timeout_s=60.0))
    assert (error.kind, error.code, error.retryable) == ("timeout", "TIMEOUT", True)
    assert "sent nothing for 60 s" in str(error)


@pytest.mark.parametrize("beat", [b": ping\n\n", b"event: ping\ndata:\n\n", b'data: {"choices":[]}\n\n'])
def test_case_S37_heartbeats_do_not_hide_a_stuck_answer(beat):
    error = fails(provider(Wire(HELLO, *[10.0, beat] * 400), progress_timeout_s=600.0))
    assert (error.code, "without anything of the answer" in str(error)) == ("TIMEOUT", True)


def test_a_server_that_sends_no_headers_is_a_timeout():
    error = fails(provider(Wire(HELLO, wait_s=31.0), response_timeout_s=30.0))
    assert (error.kind, error.code) == ("timeout", "TIMEOUT")


def test_an_error_body_that_never_ends_does_not_hide_the_status():
    error = fails(provider(Wire(b'{"error":"bu', 1_000.0, status=503)))
    assert (error.code, error.status, error.retryable) == ("SERVER", 503, True)


def test_a_long_error_body_is_cut():
    wire = Wire(*[b"x" * 50_000] * 1_000, status=500)
    error = fails(provider(wire))
    assert error.code == "SERVER"
    assert len(str(error)) < 2_000


def test_an_error_body_that_breaks_does_not_hide_the_status():
    error = fails(provider(Wire(b"bu", httpx2.ReadError("reset"), status=429, headers={"retry-after": "2"})))
    assert (error.code, error.retry_after_s) == ("RATE_LIMIT", 2.0)


def test_what_a_transport_did_not_wrap_is_a_broken_connection():
    assert fails(provider(Wire(HELLO, ConnectionResetError("reset")))).code == "TRANSPORT"


@BACKENDS
def test_a_json_answer_that_is_empty_is_an_error_behind_its_thinking(backend):
    answer = {"choices": [{"message": {"reasoning": "hm"}, "finish_reason": "stop"}]}
    error = fails(provider(Wire(json.dumps(answer).encode())), lambda fn: run(backend, fn))
    assert (error.code, error.kind) == ("EMPTY_RESPONSE", "stream")


def test_what_comes_behind_done_is_not_waited_for():
    async def main() -> float:
        started = anyio.current_time()
        await collect(provider(Wire(HELLO, END, 1_000.0)))
        return anyio.current_time() - started

    assert run_in_virtual_time(main) < 1.0


@pytest.mark.parametrize("tail", [[1_000.0], [1.0, b": ping\n\n"] * 1_000], ids=["silence", "pings"])
def test_what_comes_behind_the_finish_reason_is_waited_for_a_moment(tail):
    finish = END.replace(b"data: [DONE]\n\n", b"")
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n'

    async def main() -> tuple[list[Chunk], float]:
        started = anyio.current_time()
        chunks = await collect(provider(Wire(HELLO, finish, 2.0, usage, *tail)))
        return chunks, anyio.current_time() - started

    chunks, took_s = run_in_virtual_time(main)
    assert [type(chunk).__name__ for chunk in chunks] == ["TextChunk", "UsageChunk", "FinishChunk"]
    assert took_s < 8.0


def test_M3_text_that_goes_on_behind_a_finish_reason_is_waited_for():
    """Servers that give the reason with each piece: the answer ends where nothing more of it comes."""
    piece = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'

    async def main() -> tuple[str, float]:
        started = anyio.current_time()
        chunks = await collect(provider(Wire(piece, *[2.0, piece] * 9, 1_000.0)))
        text = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))
        return text, anyio.current_time() - started

    text, took_s = run_in_virtual_time(main)
    assert text == "a" * 10
    assert took_s < 9 * 2.0 + 8.0


def test_a_connection_that_breaks_behind_done_breaks_nothing():
    wire = Wire(HELLO, END, httpx2.ReadError("reset"))
    assert run_in_virtual_time(lambda: collect(provider(wire)))[-1] == FinishChunk("stop")


# --- errors


@BACKENDS
@pytest.mark.parametrize("steps", [[HELLO], []])
def test_a_connection_that_breaks_is_an_error_that_may_pass(backend, steps):
    error = fails(provider(Wire(*steps, httpx2.ReadError("reset"))), lambda fn: run(backend, fn))
    assert (error.code, error.retryable, error.kind) == ("TRANSPORT", True, "stream" if steps else "generate")


@BACKENDS
def test_case_S05_a_connection_that_breaks_behind_the_finish_reason_breaks_nothing(backend):
    wire = Wire(HELLO, END.replace(b"data: [DONE]\n\n", b""), httpx2.RemoteProtocolError("incomplete chunked read"))
    assert run(backend, lambda: collect(provider(wire)))[-1] == FinishChunk("stop")


@BACKENDS
def test_nobody_listening(backend):
    error = fails(provider(), lambda fn: run(backend, fn))
    assert (error.code, error.kind, error.retryable) == ("TRANSPORT", "generate", True)


def test_errors_never_show_the_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123")
    wire = Wire(b'{"error":{"message":"Incorrect API key provided: sk-secret-123."}}', status=401)
    error = fails(provider(wire))
    assert error.code == "INVALID_CREDENTIAL"
    assert "secret" not in str(error)
    assert "OPENAI_API_KEY" in str(error)


@pytest.mark.parametrize("name", ["api-key", "Authorization", "X-Auth-Token", "cookie"])
def test_errors_never_show_the_secret_of_a_further_header(name):
    wire = Wire(b'{"error":{"message":"Incorrect key: hush-0123456789, checkrein 2023-06-01"}}', status=401)
    headers = {name: "Bearer hush-0123456789", "x-title": "checkrein", "anthropic-version": "2023-06-01"}
    error = fails(provider(wire, headers=headers))
    assert "hush" not in str(error)
    assert "checkrein 2023-06-01" in str(error)  # what is no secret is still said


def test_a_redirect_is_not_followed(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    wire = Wire(status=307, headers={"location": "https://elsewhere.test/v1"})
    error = fails(provider(wire))
    assert (error.code, len(wire.requests)) == ("BAD_REQUEST", 1)
    assert "elsewhere.test" in str(error)


def test_text_before_an_error_frame_is_yielded_first():
    async def main() -> tuple[list[Chunk], str | None]:
        seen: list[Chunk] = []
        source = provider(Wire(HELLO + b'data: {"error":{"message":"overloaded"}}\n\n'))
        try:
            async for chunk in source.stream(REQUEST):
                seen.append(chunk)  # noqa: PERF401
        except ProviderError as exc:
            return seen, exc.kind
        finally:
            await source.aclose()
        return seen, None

    assert run("asyncio", main) == ([TextChunk(0, "hello")], "stream")


def test_importing_the_plugin_imports_no_http_client():
    code = "import checkrein_openai, sys; checkrein_openai.Plugin(); print('httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@BACKENDS
def test_the_lifespan_closes_the_connections(backend):
    plugin = Plugin(OpenAIConfig(base_url="http://localhost:1/v1"))
    [source] = plugin.providers

    async def main() -> None:
        async with plugin.lifespan(None, None):
            client = source._connection.client()
        assert client.is_closed

    run(backend, main)
