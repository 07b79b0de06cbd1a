"""The demo model as a provider: what its rules decide, streamed in small pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import anyio
import msgspec

from checkrein.chunks import CallChunk, Chunk, FinishChunk, TextChunk, ThinkingChunk, UsageChunk
from checkrein.messages import Request, Usage

if TYPE_CHECKING:
    from .rules import Move

__all__ = ["DemoProvider"]

PIECE_CHARS = 12
CHARS_PER_TOKEN = 4


class DemoProvider:
    """Streams the moves of rules.py; the same request always gets the same answer.

    Args:
        delay_s: seconds between two pieces.
    """

    name = "demo"

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s

    def missing(self) -> str | None:
        """Nothing is missing: it needs no key."""
        return None

    def default_model(self) -> str | None:
        """It stays out of `model = "auto"`: nobody should get it unasked."""
        return None

    def window_tokens(self, model: str) -> int | None:
        """Rules have no window."""
        return None

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Stream the answer to a request; see Provider.stream."""
        from .rules import decide  # the rules and their patterns: only where the demo model is asked

        move = decide(request)
        for chunk in _chunks(move, len(request.messages)):
            await anyio.sleep(self._delay_s)
            yield chunk
        yield UsageChunk(_usage(request, move))
        yield FinishChunk("tool_calls" if move.calls else "stop")


def _chunks(move: Move, round_number: int) -> Iterator[Chunk]:
    index = 0
    for kind, text in ((ThinkingChunk, move.thinking), (TextChunk, move.text)):
        if text:
            yield from (kind(index, piece) for piece in _pieces(text))
            index += 1
    for n, (name, arguments) in enumerate(move.calls):
        encoded = msgspec.json.encode(arguments).decode()
        yield CallChunk(index + n, id=f"demo_{round_number}_{n}", name=name)
        yield from (CallChunk(index + n, arguments=piece) for piece in _pieces(encoded))


def _pieces(text: str) -> Iterator[str]:
    for at in range(0, len(text), PIECE_CHARS):
        yield text[at : at + PIECE_CHARS]


def _usage(request: Request, move: Move) -> Usage:
    """Counts by the rule of thumb of four characters a token; nobody pays for them."""
    calls = sum(len(name) + len(msgspec.json.encode(arguments)) for name, arguments in move.calls)
    reasoning = len(move.thinking) // CHARS_PER_TOKEN
    given = sum(len(part) for part in request.system) + len(msgspec.json.encode(list(request.messages)))
    return Usage(
        input=given // CHARS_PER_TOKEN,
        output=(len(move.text) + calls) // CHARS_PER_TOKEN + reasoning,
        reasoning=reasoning,
    )
