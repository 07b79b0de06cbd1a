"""Kept connections, on a real socket: used again where they can be, given up where they are dead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
import pytest

from checkrein.chunks import Chunk, FinishChunk, TextChunk
from checkrein.errors import ProviderError
from checkrein.messages import Request, TextBlock, UserMessage
from checkrein_openai import OpenAIConfig, OpenAIProvider
from checkrein_openai.config import resolve

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
HELLO = b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
REQUEST = Request("m", [UserMessage([TextBlock("hi")])], provider="openai")


def provider(base_url: str) -> OpenAIProvider:
    return OpenAIProvider(resolve("openai", OpenAIConfig(base_url=base_url)))


def run(backend: str, fn: Callable[[], Awaitable[Any]]) -> Any:
    return anyio.run(fn, backend=backend)


@BACKENDS
@pytest.mark.parametrize("tail", [b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", b""])
def test_the_connection_is_used_again_if_the_body_ended(backend, tail):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    body = HELLO + b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    connections = 0

    async def serve(client: anyio.abc.SocketStream) -> None:
        nonlocal connections
        connections += 1
        async with client:
            while True:
                received = b""
                while not received.endswith(b"}"):
                    try:
                        received += await client.receive()
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        return
                await client.send(head + b"%x\r\n%b\r\n" % (len(body), body) + tail)
                if not tail:
                    return  # cut: no end of the body, as a proxy that gives up does

    async def main() -> list[list[Chunk]]:
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):
            group.start_soon(listener.serve, serve)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            source = provider(base_url=f"http://127.0.0.1:{port}/v1")
            got = [[chunk async for chunk in source.stream(REQUEST)] for _ in range(2)]
            await source.aclose()
            group.cancel_scope.cancel()
            return got

    assert run(backend, main) == [[TextChunk(0, "hello"), FinishChunk("stop")]] * 2
    assert connections == (1 if tail else 2)


@BACKENDS
def test_a_kept_connection_that_the_server_closed_costs_nothing(backend):
    """What llama.cpp does: `keep-alive` in the headers, and the connection is closed all the same."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    body = HELLO + END
    answered = dropped = 0

    async def request(client: anyio.abc.SocketStream) -> None:
        received = b""
        while not received.endswith(b"}"):
            received += await client.receive()

    async def serve(client: anyio.abc.SocketStream) -> None:
        nonlocal answered, dropped
        async with client:
            await request(client)
            answered += 1
            await client.send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            try:
                await request(client)  # the next one, on the same connection, is never answered
                dropped += 1
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass

    async def main() -> list[list[Chunk]]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, serve)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            source = provider(base_url=f"http://127.0.0.1:{port}/v1")
            got = [[chunk async for chunk in source.stream(REQUEST)] for _ in range(4)]
            await source.aclose()
            group.cancel_scope.cancel()
            return got

    assert run(backend, main) == [[TextChunk(0, "hello"), FinishChunk("stop")]] * 4
    assert (answered, dropped) == (4, 3)


@BACKENDS
def test_a_new_connection_that_breaks_is_not_tried_again(backend):
    connections = 0

    async def serve(client: anyio.abc.SocketStream) -> None:
        nonlocal connections
        connections += 1
        async with client:
            await client.receive()

    async def main() -> ProviderError:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, serve)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            source = provider(base_url=f"http://127.0.0.1:{port}/v1")
            with pytest.raises(ProviderError) as caught:
                await anext(source.stream(REQUEST))
            await source.aclose()
            group.cancel_scope.cancel()
            return caught.value

    assert run(backend, main).code == "TRANSPORT"
    assert connections == 1
