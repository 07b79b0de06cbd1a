"""The config and the environment: URLs, keys, models, further endpoints."""

from __future__ import annotations

import ssl
from typing import Any

import anyio
import pytest

from checkrein.errors import ConfigError
from checkrein_openai import Endpoint, OpenAIConfig, OpenAIProvider, Plugin
from checkrein_openai.client import Connection
from checkrein_openai.config import leaving, resolve


def provider(**config: Any) -> OpenAIProvider:
    return OpenAIProvider(resolve("openai", OpenAIConfig(base_url="http://127.0.0.1:9/v1", **config)))


def test_missing_says_what_to_set(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    assert resolve("openai", OpenAIConfig()).missing() == "set OPENAI_API_KEY to the key of api.openai.com"
    assert resolve("openai", OpenAIConfig(base_url="http://localhost:8080/v1")).missing() is None
    assert resolve("openai", OpenAIConfig(base_url="http://[::1]:8080/v1")).missing() is None
    assert resolve("openai", OpenAIConfig(base_url="http://192.168.1.5/v1")).missing() is not None
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1234/v1")
    assert resolve("openai", OpenAIConfig()).missing() is None
    monkeypatch.setenv("OPENAI_API_KEY", "ключ")
    assert "visible ASCII" in (resolve("openai", OpenAIConfig()).missing() or "")


def test_the_model_of_auto(monkeypatch):
    monkeypatch.delenv("OPENAI_MODEL", raising=False)
    assert provider(default_model="mine").default_model() == "mine"
    assert provider(default_model="").default_model() is None
    monkeypatch.setenv("OPENAI_MODEL", "theirs")
    assert provider(default_model="mine").default_model() == "theirs"
    assert provider().window_tokens("gpt-4o") == 128_000
    assert provider(window_tokens=4_096).window_tokens("gpt-4o") == 4_096


def test_further_endpoints_are_providers_with_keys_of_their_own(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "official")
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    deepseek = Endpoint(base_url="https://api.deepseek.com", lenient_finish=True, quirks={"dsml": False})
    plugin = Plugin(OpenAIConfig(endpoints={"deepseek": deepseek}))
    first, second = plugin.register_providers(None)
    assert (first.name, second.name) == ("openai", "deepseek")
    assert second.missing() == "set DEEPSEEK_API_KEY to the key of api.deepseek.com"
    assert second.default_model() is None
    quirks = second.quirks("deepseek-chat")
    assert (quirks.reasoning, quirks.lenient_finish, quirks.dsml) == ("always", True, False)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("openai", OpenAIConfig(base_url="localhost:8080")),
        ("openai", OpenAIConfig(base_url="https://user:pass@host/v1")),
        ("openai", OpenAIConfig(base_url="https://host:port/v1")),
        ("openai", OpenAIConfig(base_url="https://host/v1?key=sk-secret")),
        ("openai", OpenAIConfig(base_url="http://exa mple/v1")),
        ("openai", OpenAIConfig(idle_timeout_s=0)),
        ("openai", OpenAIConfig(progress_timeout_s=float("nan"))),
        ("openai", OpenAIConfig(progress_timeout_s=-1)),
        ("openai", OpenAIConfig(window_tokens=0)),
        ("openai", OpenAIConfig(window_tokens=-5)),
        ("openai", OpenAIConfig(headers={"x-key": "sk-secret\n"})),
        ("openai", OpenAIConfig(headers={"x-key": "sk-secret "})),
        ("openai", OpenAIConfig(headers={"x-key": " sk-secret"})),
        ("openai", OpenAIConfig(headers={"x key": "sk-secret"})),
        ("openai", OpenAIConfig(headers={"x-key:": "sk-secret"})),
        ("openai", OpenAIConfig(headers={"": "sk-secret"})),
        ("openai", OpenAIConfig(headers={"Content-Length": "5"})),
        ("openai", OpenAIConfig(headers={"transfer-encoding": "chunked"})),
        ("openai", OpenAIConfig(headers={"connection": "close"})),
        ("other", Endpoint()),
    ],
)
def test_a_config_that_cannot_work_is_refused_with_its_place(name, config):
    with pytest.raises(ConfigError, match=r"at plugins\.openai\.") as caught:
        resolve(name, config)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["HTTPS://host.test/v1", "Https://host.test/v1"])
def test_certificates_are_checked_however_https_is_spelt(url):
    at = resolve("openai", OpenAIConfig(base_url=url))
    assert at.url == "https://host.test/v1/chat/completions"

    async def mode() -> ssl.VerifyMode:
        return Connection(at).client()._transport._pool._ssl_context.verify_mode  # type: ignore[attr-defined]

    assert anyio.run(mode) is ssl.CERT_REQUIRED


@pytest.mark.parametrize("host", ["127.0.0.1%25.evil.test", "127.0.0.1%.evil.test", "127.0.0.1.evil.test"])
def test_a_host_that_begins_like_this_machine_is_another(host):
    url = f"http://{host}/v1"
    assert not resolve("openai", OpenAIConfig(base_url=url)).local
    assert leaving({"base_url": url}) == ["base_url"]


def test_loopback_with_a_zone_is_this_machine():
    assert resolve("openai", OpenAIConfig(base_url="http://[::1%25lo]:8080/v1")).local


def test_an_endpoint_cannot_take_the_plugins_own_name():
    with pytest.raises(ConfigError):
        Plugin(OpenAIConfig(endpoints={"openai": Endpoint(base_url="https://x.test")}))


def test_the_config_is_plain_data_with_a_schema():
    import msgspec

    table = {"quirks": {"call_ids": "alnum9"}, "endpoints": {"x": {"base_url": "https://x.test/v1"}}}
    config = msgspec.convert(table, OpenAIConfig)
    assert config.endpoints["x"].base_url == "https://x.test/v1"
    assert msgspec.json.schema(OpenAIConfig)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"quirks": {"call_ids": "eight"}}, OpenAIConfig)
