"""What a provider yields, and the one assembler that makes an answer of it (M2).

Grammar: an unseen index opens a block and a block has one type; at most one usage; nothing after
finish; a stream without finish is torn (M6). Adapters never assemble; they yield these.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import astuple, replace

from .errors import NotPlainJSON, ProviderError
from .messages import Usage
from .text import clean, clean_json

__all__ = [
    "TextChunk",
    "ThinkingChunk",
    "CallChunk",
    "MetadataChunk",
    "OpaqueChunk",
    "UsageChunk",
    "FinishChunk",
    "Chunk",
    "FINISH_REASONS",
    "Assembler",
    "Part",
]

FINISH_REASONS = frozenset(("stop", "tool_calls", "max_tokens", "content_filter", "refusal", "pause", "other"))


class TextChunk(Struct, frozen=True, gc=False):
    """A piece of answer text."""

    index: int
    text: str


class ThinkingChunk(Struct, frozen=True, gc=False):
    """A piece of thinking."""

    index: int
    text: str


class CallChunk(Struct, frozen=True, gc=False):
    """A piece of a tool call: id and name when known, raw argument text as it comes."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class MetadataChunk(Struct, frozen=True, gc=False):
    """The provider's exact bytes for a block (or, without index, for the message): goes back as it came (M5)."""

    data: str
    index: int | None = None


class OpaqueChunk(Struct, frozen=True):
    """A whole part we do not know; `data` is JSON."""

    index: int
    data: Any


class UsageChunk(Struct, frozen=True, gc=False):
    """The token counts of the request; at most one a stream."""

    usage: Usage


class FinishChunk(Struct, frozen=True, gc=False):
    """The terminal frame; `reason` is one of FINISH_REASONS. `lenient` says the wire left it out (M11)."""

    reason: str
    request_id: str | None = None
    lenient: bool = False


Chunk: TypeAlias = TextChunk | ThinkingChunk | CallChunk | MetadataChunk | OpaqueChunk | UsageChunk | FinishChunk


class Part(Struct):
    """One block of an answer while it is being assembled; `pieces` are joined once, at the end."""

    kind: str  # text, thinking, call, opaque
    pieces: list[str] = field(default_factory=list)
    id: str | None = None
    name: str = ""
    metadata: str | None = None
    data: Any = None

    def text(self) -> tuple[str, int]:
        """The joined text, cleaned (a surrogate pair split over chunks is joined here), and the count replaced.

        Raises:
            ProviderError: a piece is no text; looked at here, where it costs nothing.
        """
        try:
            return clean("".join(self.pieces))
        except TypeError:
            odd = next(type(piece).__name__ for piece in self.pieces if not isinstance(piece, str))
            raise _broken(f"a piece of {self.kind} is {odd}, expected str") from None

    def json(self) -> tuple[Any, int]:
        """The data of an opaque part, cleaned, and the count replaced.

        Raises:
            ProviderError: it is no JSON.
        """
        from .codec import plain

        data, count = clean_json(self.data)
        try:
            return plain(data), count
        except NotPlainJSON as exc:
            raise _broken(f"an opaque part is no JSON: {exc}") from None


class Assembler:
    """Collects the chunks of one stream; the caller makes events of its parts.

    Attributes:
        parts: the blocks by index, in order of first sight.
        usage: the token counts, if they came.
        finish: the terminal frame, None while the stream is open (or when it is torn).
        metadata: the message's own opaque bytes, if any.
        texts: the pieces of each text block that is open, by index: whoever has a TextChunk for one may append its
            text here instead of calling push. Empty behind finish.
    """

    __slots__ = ("parts", "texts", "usage", "finish", "metadata")

    def __init__(self) -> None:
        self.parts: dict[int, Part] = {}
        self.texts: dict[int, list[str]] = {}
        self.usage: Usage | None = None
        self.finish: FinishChunk | None = None
        self.metadata: str | None = None

    def push(self, chunk: Chunk) -> None:
        """Take the next chunk.

        Raises:
            ProviderError: the chunk breaks the grammar (kind stream, code PROTOCOL).
        """
        if self.finish is not None:
            raise _broken(f"a {type(chunk).__name__} after finish")
        if isinstance(chunk, TextChunk):
            part = self._part(chunk.index, "text")
            part.pieces.append(chunk.text)
            self.texts[chunk.index] = part.pieces
        elif isinstance(chunk, ThinkingChunk):
            self._part(chunk.index, "thinking").pieces.append(chunk.text)
        elif isinstance(chunk, CallChunk):
            part = self._part(chunk.index, "call")
            part.pieces.append(chunk.arguments)
            part.id = chunk.id or part.id
            part.name = chunk.name or part.name
        elif isinstance(chunk, FinishChunk):
            if chunk.reason not in FINISH_REASONS:
                raise _broken(f"finish reason {chunk.reason!r}, expected one of {', '.join(sorted(FINISH_REASONS))}")
            self.finish = chunk
            self.texts.clear()
        else:
            self._rare(chunk)

    def _part(self, index: int, kind: str) -> Part:
        part = self.parts.get(index)
        if part is None:
            part = self.parts[index] = Part(kind)
        elif part.kind != kind:
            raise _broken(f"block {index} is {part.kind}, then {kind}")
        return part

    def _rare(self, chunk: Chunk) -> None:
        if isinstance(chunk, MetadataChunk):
            if not isinstance(chunk.data, str) or clean(chunk.data)[1]:
                raise _broken("metadata that is no clean text; base64 what is none")
            if chunk.index is None:
                self.metadata = chunk.data
            elif (part := self.parts.get(chunk.index)) is None:
                raise _broken(f"metadata for block {chunk.index}, which is not there")
            else:
                part.metadata = chunk.data
        elif isinstance(chunk, OpaqueChunk):
            self._part(chunk.index, "opaque").data = chunk.data
        elif isinstance(chunk, UsageChunk):
            if self.usage is not None:
                raise _broken("usage twice")
            self.usage = _counted(chunk.usage)
        else:
            raise _broken(f"a {type(chunk).__name__} instead of a chunk")


_Count = Annotated[int, Meta(ge=0, lt=2**53)] | None
_COUNTS: Any = tuple[_Count, _Count, _Count, _Count, _Count]


def _counted(usage: Usage) -> Usage:
    """The counts of a usage; what is no count is absent, so that no total falls and the log can be read (M10)."""
    try:
        counts = astuple(usage)
    except TypeError:
        raise _broken(f"a usage that is {type(usage).__name__}") from None
    try:
        convert(counts, _COUNTS)
    except ValidationError:
        counts = tuple(count if type(count) is int and 0 <= count < 2**53 else None for count in counts)
        usage = Usage(*counts)
    if usage.reasoning and usage.output is not None and usage.reasoning > usage.output:
        usage = replace(usage, reasoning=usage.output)
    return usage


def _broken(what: str) -> ProviderError:
    return ProviderError(
        f"the provider's stream breaks the chunk grammar: {what}", kind="stream", code="PROTOCOL", retryable=False
    )
