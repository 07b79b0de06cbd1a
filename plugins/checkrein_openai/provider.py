"""The provider: what an endpoint is called, what it lacks, and the way to its answers (streaming.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from checkrein.chunks import Chunk
from checkrein.messages import Request

from .client import Connection
from .config import Resolved
from .quirks import Quirks, quirks_for
from .quirks import window_tokens as known_window

if TYPE_CHECKING:
    import httpx2

__all__ = ["OpenAIProvider"]


class OpenAIProvider:
    """Streams chat completions from one endpoint.

    Args:
        at: the endpoint with its environment.
        transport: makes the HTTP transport instead of the network's, for tests.

    Attributes:
        name: the part before the colon of a model id.
    """

    def __init__(self, at: Resolved, transport: Callable[[], httpx2.AsyncBaseTransport] | None = None) -> None:
        self.name = at.name
        self._at = at
        self._connection = Connection(at, transport)

    def missing(self) -> str | None:
        """Say in one line what must be set before this provider can work; None if it can."""
        return self._at.missing()

    def default_model(self) -> str | None:
        """Return the model `auto` takes here."""
        return self._at.default_model()

    def window_tokens(self, model: str) -> int | None:
        """Return the model's context window in tokens, None if not known."""
        return self._at.endpoint.window_tokens or known_window(model)

    def quirks(self, model: str) -> Quirks:
        """Return how this endpoint differs for a model."""
        endpoint = self._at.endpoint
        own = {**endpoint.quirks}
        if endpoint.lenient_finish:
            own["lenient_finish"] = True
        return quirks_for(self._at.host, model, own)

    def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Stream one answer; nothing is opened before the first item is asked for.

        Raises:
            ProviderError: from the first or any later item; docs/providers.md has the codes.
        """
        from .streaming import answer  # the decoder and all it needs: only where an endpoint is asked

        return answer(request, self.quirks(request.model), self._connection, self._at)

    async def aclose(self) -> None:
        """Close this event loop's connections."""
        await self._connection.aclose()
