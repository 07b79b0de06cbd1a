"""One answer on the wire: the request out, its bytes through the decoder, and when to stop reading.

Apart from provider.py because the plugin is loaded wherever checkrein runs, and this, with the wire's modules
behind it, is needed only where an endpoint is asked.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

import anyio

from checkrein.chunks import Chunk
from checkrein.errors import ProviderError
from checkrein.messages import Request

from .client import Connection, Reply
from .config import Resolved
from .decode import Decoder
from .errors import redact, timed_out
from .quirks import Quirks
from .request import build

__all__ = ["answer"]

# Behind a whole answer only its counts and the end of the body can come; with the end, the connection is used again.
TAIL_S = 5.0
DRAIN_S = 0.25


async def answer(request: Request, quirks: Quirks, connection: Connection, at: Resolved) -> AsyncIterator[Chunk]:
    """Stream one answer; nothing is opened before the first item is asked for.

    Args:
        request: what to ask.
        quirks: how the endpoint differs for the request's model.
        connection: where to.
        at: the endpoint.

    Raises:
        ProviderError: from the first or any later item; docs/providers.md has the codes.
    """
    reply = Reply(connection, at)
    try:
        wire = build(request, quirks, at.endpoint.body)
        await reply.open(wire.body)
        decoder = Decoder(quirks, wire.names, reply.request_id)
        progress, ends_by = anyio.current_time(), math.inf
        while (data := await _read(reply, decoder, ends_by)) is not None:
            chunks = decoder.feed(data)
            if not chunks:
                _check_progress(anyio.current_time() - progress, decoder, at)
            for chunk in chunks:
                yield chunk
            if chunks:
                progress = anyio.current_time()  # behind the yields: a slow consumer is not the server's fault
            if decoder.error is not None:
                raise decoder.error
            if decoder.done:
                ends_by = min(ends_by, anyio.current_time() + DRAIN_S)
            elif decoder.finished and (chunks or ends_by == math.inf):  # more of the answer: it was not whole yet
                ends_by = anyio.current_time() + TAIL_S
        for chunk in decoder.end():
            yield chunk
        if decoder.error is not None:
            raise decoder.error
    except ProviderError as exc:
        redact(exc, at.secrets())
        raise
    finally:
        await reply.aclose()


async def _read(reply: Reply, decoder: Decoder, ends_by: float) -> bytes | None:
    """The next bytes; None at the end, or when the answer is whole and what follows it does not come."""
    if ends_by == math.inf:
        return await reply.read(begun=decoder.begun)
    with anyio.CancelScope(deadline=ends_by):
        try:
            return await reply.read(begun=True)
        except ProviderError:
            pass  # the connection broke behind a whole answer
    return None


def _check_progress(stalled_s: float, decoder: Decoder, at: Resolved) -> None:
    limit_s = at.endpoint.progress_timeout_s
    if limit_s > 0 and stalled_s > limit_s and not decoder.finished:
        raise timed_out(
            f"{at.host} kept the connection alive without anything of the answer for {limit_s:g} s",
            request_id=decoder.request_id,
        )
