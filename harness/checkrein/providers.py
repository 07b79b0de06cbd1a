"""Model providers by name, and `provider:model` ids."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Protocol, runtime_checkable

from .chunks import Chunk
from .errors import ConfigError, CredentialsError
from .messages import Request
from .nearest import did_you_mean

__all__ = ["Provider", "Providers"]


@runtime_checkable
class Provider(Protocol):
    """What streams answers.

    Attributes:
        name: the part before the colon of a model id.
    """

    name: str

    def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Stream one answer as chunks (chunks.py has the grammar).

        Returns:
            An async generator; the loop always closes it.

        Raises:
            ProviderError: from the first or any later item.
        """
        ...

    def missing(self) -> str | None:
        """Say in one line what must be set before this provider can work; None if it can."""
        ...

    def default_model(self) -> str | None:
        """Return the model `model = "auto"` takes here; None keeps this provider out of auto."""
        ...

    def window_tokens(self, model: str) -> int | None:
        """Return the model's context window in tokens, None if not known."""
        ...


class Providers:
    """The registered providers of a harness."""

    def __init__(self) -> None:
        self._by_name: dict[str, Provider] = {}

    def add(self, provider: Provider) -> None:
        """Register a provider; the registry of plugins has refused duplicates before."""
        self._by_name[provider.name] = provider

    def remove(self, name: str) -> None:
        """Forget a provider."""
        self._by_name.pop(name, None)

    def __iter__(self) -> Iterator[Provider]:
        return iter(self._by_name.values())

    def names(self) -> list[str]:
        """The registered names."""
        return list(self._by_name)

    def get(self, name: str) -> Provider | None:
        """The provider of this name, None if there is none."""
        return self._by_name.get(name)

    def resolve(self, model: str) -> tuple[Provider, str]:
        """Return the provider and the model's own name for an id `provider:model`, or `auto`.

        Raises:
            ConfigError: the provider is not known.
            CredentialsError: it lacks its credentials; or `auto` and no provider has them.
        """
        if model == "auto":
            return self._auto()
        name, _, rest = model.partition(":")
        provider = self._by_name.get(name)
        if provider is None:
            raise ConfigError(
                "expected a model id as provider:model with one of the providers"
                f" {', '.join(self.names()) or '(none)'};"
                f" got {model!r}{did_you_mean(name, self._by_name)}"
            )
        if (missing := provider.missing()) is not None:
            raise CredentialsError(f"the model {model!r} cannot be used: {missing}")
        return provider, rest or (provider.default_model() or name)

    def _auto(self) -> tuple[Provider, str]:
        hints: list[str] = []
        for provider in self._by_name.values():
            if (missing := provider.missing()) is not None:
                hints.append(f"{provider.name}: {missing}")
            elif (model := provider.default_model()) is not None:
                return provider, model
        raise CredentialsError(f"no provider is usable; {'; '.join(hints) or 'no provider plugin is installed'}")
