"""The provider: a request's way out, and the answer's way back as chunks."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import anyio

from checkrein.chunks import Chunk
from checkrein.errors import ProviderError
from checkrein.messages import Request

from .client import Connection, Reply
from .config import Resolved
from .decode import Decoder
from .errors import redact, timed_out
from .quirks import Quirks, quirks_for
from .quirks import window_tokens as known_window
from .request import build

if TYPE_CHECKING:
    import httpx2

__all__ = ["OpenAIProvider"]

# Behind a whole answer only its counts and the end of the body can come; with the end, the connection is used again.
TAIL_S = 5.0
DRAIN_S = 0.25


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

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Stream one answer; nothing is opened before the first item is asked for.

        Raises:
            ProviderError: from the first or any later item; docs/providers.md has the codes.
        """
        reply = Reply(self._connection, self._at)
        try:
            quirks = self.quirks(request.model)
            wire = build(request, quirks, self._at.endpoint.body)
            await reply.open(wire.body)
            decoder = Decoder(quirks, wire.names, reply.request_id)
            progress, ends_by = anyio.current_time(), math.inf
            while (data := await self._read(reply, decoder, ends_by)) is not None:
                chunks = decoder.feed(data)
                if not chunks:
                    self._check_progress(anyio.current_time() - progress, decoder)
                for chunk in chunks:
                    yield chunk
                if chunks:
                    progress = anyio.current_time()  # behind the yields: a slow consumer is not the server's fault
                if decoder.error is not None:
                    raise decoder.error
                if decoder.done or decoder.finished:
                    ends_by = min(ends_by, anyio.current_time() + (DRAIN_S if decoder.done else TAIL_S))
            for chunk in decoder.end():
                yield chunk
            if decoder.error is not None:
                raise decoder.error
        except ProviderError as exc:
            redact(exc, self._at.key())
            raise
        finally:
            await reply.aclose()

    async def aclose(self) -> None:
        """Close this event loop's connections."""
        await self._connection.aclose()

    async def _read(self, reply: Reply, decoder: Decoder, ends_by: float) -> bytes | None:
        """The next bytes; None at the end, or when the answer is whole and what follows it does not come."""
        if ends_by == math.inf:
            return await reply.read(begun=decoder.begun)
        with anyio.CancelScope(deadline=ends_by):
            try:
                return await reply.read(begun=True)
            except ProviderError:
                pass  # the connection broke behind a whole answer
        return None

    def _check_progress(self, stalled_s: float, decoder: Decoder) -> None:
        limit_s = self._at.endpoint.progress_timeout_s
        if limit_s > 0 and stalled_s > limit_s and not decoder.finished:
            raise timed_out(
                f"{self._at.host} kept the connection alive without anything of the answer for {limit_s:g} s",
                request_id=decoder.request_id,
            )
