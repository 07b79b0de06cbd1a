"""Against aimock: a server nobody here wrote, on a real socket (npm `@copilotkit/aimock`).

It is installed once, into ~/.cache/checkrein-tests; without node and npm, or a registry, these tests
are skipped with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein.chunks import Assembler
from checkrein.errors import ProviderError
from checkrein.messages import AssistantMessage, CallBlock, Request, TextBlock, ToolMessage, ToolSchema, UserMessage
from checkrein_openai import OpenAIConfig, OpenAIProvider
from checkrein_openai.config import resolve

INSTALL_S = 120.0
START_S = 20.0
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "checkrein-tests" / "aimock"
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
WEATHER = ToolSchema("weather", "Weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}})
LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
BUSY = {"message": "Slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}
CALL = {"name": "weather", "arguments": '{"city":"Paris"}'}
BROKEN = {"message": "Oops", "type": "server_error"}


def _fixture(words: str, response: dict[str, Any], match: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"match": {"userMessage": words, **(match or {})}, "response": response, **more}


FIXTURES = [
    _fixture("hello", {"content": "Hello there."}),
    _fixture(
        "weather", {"toolCalls": [{"name": "weather", "arguments": '{"city":"Paris"}'}]}, {"hasToolResult": False}
    ),
    _fixture("weather", {"content": "Sunny in Paris."}, {"hasToolResult": True}),
    _fixture("cut", {"content": LONG}, truncateAfterChunks=2, chunkSize=4),
    _fixture("drop", {"content": LONG}, disconnectAfterMs=40, latency=30, chunkSize=4),
    _fixture("busy", {"error": BUSY, "status": 429}),
    _fixture("broken", {"error": BROKEN, "status": 500}),
    _fixture("think", {"content": "Done.", "reasoning": "Let me think."}),
]


def _program() -> Path:
    """The server's program, installed at the first use."""
    program = CACHE / "node_modules" / ".bin" / "llmock"
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("aimock needs node and npm, which are not here")
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(
                ["npm", "i", "--no-audit", "--no-fund", "@copilotkit/aimock"],
                cwd=CACHE, timeout=INSTALL_S, check=True, capture_output=True,
            )  # fmt: skip
        except (subprocess.SubprocessError, OSError) as exc:
            pytest.skip(f"aimock cannot be installed here: {exc}")
    return program


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a running aimock."""
    program = _program()
    fixtures = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": FIXTURES}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        ["node", str(program.resolve()), "-p", str(port), "-f", str(fixtures), "--log-level", "warn"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, server)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(10)


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.05)  # a foreign process has no event to wait for
    pytest.skip("aimock did not start here")


def ask(url: str, backend: str, text: str, *more: Any) -> tuple[Assembler, ProviderError | None]:
    async def main() -> tuple[Assembler, ProviderError | None]:
        source = OpenAIProvider(resolve("openai", OpenAIConfig(base_url=url)))
        assembler = Assembler()
        messages = [UserMessage([TextBlock(text)]), *more]
        try:
            async for chunk in source.stream(Request("gpt-5-mini", messages, tools=(WEATHER,), provider="openai")):
                assembler.push(chunk)
        except ProviderError as exc:
            return assembler, exc
        finally:
            await source.aclose()
        return assembler, None

    return anyio.run(main, backend=backend)


def said(assembler: Assembler, kind: str = "text") -> str:
    return "".join(part.text()[0] for part in assembler.parts.values() if part.kind == kind)


@BACKENDS
def test_a_text_turn(aimock, backend):
    assembler, error = ask(aimock, backend, "hello")
    assert (error, said(assembler), assembler.finish.reason) == (None, "Hello there.", "stop")


@BACKENDS
def test_a_tool_turn_and_its_answer(aimock, backend):
    assembler, error = ask(aimock, backend, "weather")
    assert (error, assembler.finish.reason) == (None, "tool_calls")
    [part] = [part for part in assembler.parts.values() if part.kind == "call"]
    assert (part.name, json.loads(part.text()[0])) == ("weather", {"city": "Paris"})
    answer = AssistantMessage([CallBlock("c1.1.1", part.name, part.text()[0])], "openai", "gpt-5-mini")
    result = ToolMessage("c1.1.1", "weather", [TextBlock("sunny")], False, part.id)
    assembler, error = ask(aimock, backend, "weather", answer, result)
    assert (error, said(assembler)) == (None, "Sunny in Paris.")


@BACKENDS
def test_thinking(aimock, backend):
    assembler, error = ask(aimock, backend, "think")
    assert (error, said(assembler, "thinking"), said(assembler)) == (None, "Let me think.", "Done.")


@BACKENDS
@pytest.mark.parametrize("text", ["cut", "drop"])
def test_M6_an_answer_that_is_cut_is_no_answer(aimock, backend, text):
    assembler, error = ask(aimock, backend, text)
    assert assembler.finish is None
    assert said(assembler) != LONG
    assert error is None or (error.code, error.retryable) == ("TRANSPORT", True)


@BACKENDS
@pytest.mark.parametrize(("text", "code", "status"), [("busy", "RATE_LIMIT", 429), ("broken", "SERVER", 500)])
def test_statuses(aimock, backend, text, code, status):
    _, error = ask(aimock, backend, text)
    assert (error.code, error.status, error.retryable) == (code, status, True)


@BACKENDS
@pytest.mark.parametrize(
    ("chaos", "codes"),
    [
        ({"disconnectRate": 1}, {"TRANSPORT"}),
        ({"malformedRate": 1}, {"MALFORMED_RESPONSE", None}),
        ({"dropRate": 1}, {"SERVER"}),
        ({"rateLimitRate": 1}, {"RATE_LIMIT"}),
    ],
)
def test_chaos_never_makes_an_answer(aimock, backend, chaos, codes):
    control = aimock.removesuffix("/v1") + "/__aimock/chaos"
    headers = {"content-type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(control, json.dumps(chaos).encode(), headers)).close()
    try:
        assembler, error = ask(aimock, backend, "hello")
    finally:
        urllib.request.urlopen(urllib.request.Request(control, method="DELETE")).close()
    assert assembler.finish is None
    assert (error.code if error is not None else None) in codes
