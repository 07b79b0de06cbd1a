"""checkrein_openai: OpenAI chat completions, and whatever speaks them, over one HTTP client.

    [plugins.openai]
    base_url = "http://127.0.0.1:8080/v1"

The wire is in small pure modules (request, sse, decode, calls, errors, usage); quirks.py is the one
table of how endpoints differ. docs/providers.md has the tables for a reader.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from checkrein.errors import ConfigError
from checkrein.hookspecs import hookimpl

from .config import Endpoint, OpenAIConfig, leaving, resolve
from .provider import OpenAIProvider
from .quirks import Quirks

__all__ = ["Plugin", "OpenAIConfig", "Endpoint", "Quirks", "OpenAIProvider"]


class Plugin:
    """The plugin `openai`: the provider `openai`, and one for each further endpoint of the config.

    Args:
        config: `[plugins.openai]`.

    Raises:
        ConfigError: an endpoint cannot work as it is configured.
    """

    Config = OpenAIConfig
    needs_trust = staticmethod(leaving)

    def __init__(self, config: OpenAIConfig | None = None) -> None:
        config = config or OpenAIConfig()
        if "openai" in config.endpoints:
            raise ConfigError(
                "expected other names for further endpoints, got 'openai', which is the table itself",
                path="plugins.openai.endpoints.openai",
            )
        named: dict[str, Endpoint] = {"openai": config, **config.endpoints}
        self.providers = [OpenAIProvider(resolve(name, endpoint)) for name, endpoint in named.items()]

    @hookimpl
    def register_providers(self, harness: Any) -> list[OpenAIProvider]:
        """Offer the endpoints."""
        return self.providers

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, harness: Any, tasks: Any) -> AsyncGenerator[None, None]:
        """Close the connections when the harness closes."""
        try:
            yield
        finally:
            for provider in self.providers:
                await provider.aclose()
