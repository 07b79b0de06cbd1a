"""What the environment says of connections: certificates to trust, proxies; and what is wrong with that is said."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from checkrein.chunks import Chunk
from checkrein.errors import ProviderError
from checkrein.messages import Request, TextBlock, UserMessage
from checkrein_openai import OpenAIConfig, OpenAIProvider
from checkrein_openai.client import Connection
from checkrein_openai.config import resolve

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
REQUEST = Request("m", [UserMessage([TextBlock("hi")])], provider="openai")


async def collect(base_url: str) -> list[Chunk]:
    source = OpenAIProvider(resolve("openai", OpenAIConfig(base_url=base_url)))
    try:
        return [chunk async for chunk in source.stream(REQUEST)]
    finally:
        await source.aclose()


def fails(backend: str, base_url: str) -> ProviderError:
    async def main() -> Any:
        with pytest.raises(ProviderError) as caught:
            await collect(base_url)
        return caught.value

    return anyio.run(main, backend=backend)


def test_P4_two_endpoints_of_one_name_share_no_client():
    async def main() -> bool:
        at = [resolve("openai", OpenAIConfig(base_url=f"{scheme}://localhost/v1")) for scheme in ("http", "https")]
        first, second = map(Connection, at)
        return first.client() is second.client()

    assert not anyio.run(main)


@BACKENDS
@pytest.mark.parametrize("host", ["localhost", "host.test"])
def test_certificates_of_the_environment_are_trusted_by_every_endpoint(backend, host, monkeypatch, tmp_path):
    """This machine's own servers too: only proxies are for other machines."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
    error = fails(backend, f"https://{host}:9/v1")
    assert (error.code, error.retryable) == ("TRANSPORT", False)
    assert "SSL_CERT_FILE" in str(error) and "absent.pem" in str(error)


@BACKENDS
@pytest.mark.parametrize("proxy", ["foo://user:secretpw@127.0.0.1:1", "127.0.0.1:x"])
def test_a_proxy_that_cannot_be_used_is_said(backend, proxy, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    error = fails(backend, "https://host.test/v1")
    assert (error.code, error.retryable) == ("BAD_REQUEST", False)
    assert "proxy of the environment" in str(error)
    assert "secretpw" not in str(error)
