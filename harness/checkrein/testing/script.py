"""The vocabulary of a scripted answer, and its compilation to chunks.

    [thinking("hm"), text("It is sunny.", pieces=3), call("weather", {"city": "Paris"}), usage(input=12, output=4)]

A turn of a script is one answer to one model request. What plays it is scripted.py; the same
vocabulary as plain data is script_data.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, get_args

import anyio
import msgspec

from checkrein.chunks import (
    CallChunk,
    Chunk,
    FinishChunk,
    MetadataChunk,
    OpaqueChunk,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from checkrein.errors import ProviderError
from checkrein.messages import Request, Usage

__all__ = [
    "Item",
    "Turn",
    "Compiled",
    "Forever",
    "text",
    "thinking",
    "call",
    "usage",
    "finish",
    "torn",
    "error",
    "wait",
    "hang",
    "check",
    "metadata",
    "opaque",
    "forever",
    "compile_turn",
]

CHUNK_TYPES: tuple[type, ...] = get_args(Chunk)
RETRYABLE_CODES = frozenset(("RATE_LIMIT", "OVERLOADED", "SERVER_ERROR", "CONNECTION", "TIMEOUT"))


@dataclass(frozen=True, slots=True)
class Say:
    """Text or thinking, in one block."""

    make: Callable[[int, str], Chunk]
    text: str
    pieces: int
    index: int | None
    metadata: str | None


@dataclass(frozen=True, slots=True)
class Ask:
    """A tool call, in one block."""

    name: str
    arguments: str
    id: str | None
    pieces: int
    index: int | None
    metadata: str | None


@dataclass(frozen=True, slots=True)
class About:
    """Opaque bytes for the block before, or for the message."""

    data: str
    message: bool


@dataclass(frozen=True, slots=True)
class Part:
    """A part nobody knows, in a block of its own."""

    data: Any
    index: int | None


@dataclass(frozen=True, slots=True)
class Torn:
    """No terminal frame."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause; `until` gives what to await."""

    until: Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Raise:
    """A failure; `make` gets whether the stream has begun."""

    make: Callable[[bool], BaseException]


@dataclass(frozen=True, slots=True)
class Check:
    """An assertion about the request."""

    holds: Callable[[Request], object]


Item: TypeAlias = Say | Ask | About | Part | Torn | Wait | Raise | Check | Chunk | str
Turn: TypeAlias = "Item | Sequence[Item] | Callable[[Request], Any] | Forever"
Step: TypeAlias = Chunk | Wait | Raise | Check


@dataclass(frozen=True, slots=True)
class Forever:
    """A turn that is played again and again; nothing behind it is reached."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Compiled:
    """A turn made ready to play.

    Attributes:
        steps: what happens, in order.
        plain: whether all of them are chunks.
        made_up: where call ids stand that were made up, and which call of the turn each is, from 1.
    """

    steps: tuple[Step, ...]
    plain: bool
    made_up: tuple[tuple[int, int], ...] = ()

    def numbered(self, number: int) -> tuple[Step, ...]:
        """The steps, with call ids as for turn `number` of the script: unique in it."""
        if not self.made_up:
            return self.steps
        steps: list[Any] = list(self.steps)
        for place, nth in self.made_up:
            chunk: CallChunk = steps[place]
            steps[place] = CallChunk(chunk.index, f"call_{number}_{nth}", chunk.name, chunk.arguments)
        return tuple(steps)


# --- the vocabulary -------------------------------------------------------------------------------


def text(text: str, *, pieces: int = 1, index: int | None = None, metadata: str | None = None) -> Say:
    """Answer text, a block of its own.

    Args:
        text: the whole text.
        pieces: how many chunks it comes in, at least 1.
        index: the block's index, to go on with an earlier block; None opens the next one.
        metadata: the provider's opaque bytes for the block.
    """
    return Say(TextChunk, text, pieces, index, metadata)


def thinking(text: str, *, pieces: int = 1, index: int | None = None, metadata: str | None = None) -> Say:
    """Thinking, a block of its own; arguments as for `text`."""
    return Say(ThinkingChunk, text, pieces, index, metadata)


def call(
    name: str,
    arguments: dict[str, Any] | None = None,
    *,
    raw: str | None = None,
    id: str | None = None,  # noqa: A002
    pieces: int = 1,
    index: int | None = None,
    metadata: str | None = None,
) -> Ask:
    """A tool call, a block of its own.

    Args:
        name: the tool.
        arguments: its arguments, `{}` if not given.
        raw: the argument text exactly as it comes, instead of `arguments`.
        id: the provider's id; None makes one that is unique in the script, "" sends none.
        pieces, index, metadata: as for `text`.

    Raises:
        ValueError: both arguments and raw are given.
    """
    if raw is not None and arguments is not None:
        raise ValueError(f"expected arguments or raw for the call of {name!r}, got both")
    written = raw if raw is not None else msgspec.json.encode(arguments or {}).decode()
    return Ask(name, written, id, pieces, index, metadata)


def usage(
    *,
    input: int | None = None,  # noqa: A002
    output: int | None = None,
    cache_read: int | None = None,
    cache_write: int | None = None,
    reasoning: int | None = None,
) -> UsageChunk:
    """The token counts of the request, disjoint (M10)."""
    return UsageChunk(Usage(input, cache_read, cache_write, output, reasoning))


def finish(reason: str = "stop", *, request_id: str | None = None, lenient: bool = False) -> FinishChunk:
    """The terminal frame; a turn without it, `torn` or `error` gets one by itself."""
    return FinishChunk(reason, request_id, lenient)


def torn() -> Torn:
    """The stream ends here without a terminal frame (M6)."""
    return Torn()


def error(
    what: BaseException | type[BaseException] | str,
    message: str | None = None,
    *,
    retryable: bool | None = None,
    status: int | None = None,
    retry_after_s: float | None = None,
) -> Raise:
    """The stream fails here.

    Args:
        what: what is raised, or the code of a ProviderError whose kind is `generate` before the first
            chunk and `stream` behind it.
        message: the ProviderError's message.
        retryable: whether it may succeed later; None goes by the code.
        status: its HTTP status.
        retry_after_s: what it asks to wait, in seconds.
    """
    if isinstance(what, BaseException):
        return Raise(lambda begun: what.with_traceback(None))
    if isinstance(what, type):
        return Raise(lambda begun: what(message) if message is not None else what())
    return Raise(
        lambda begun: ProviderError(
            message or f"the script says {what}",
            kind="stream" if begun else "generate",
            code=what,
            retryable=what in RETRYABLE_CODES if retryable is None else retryable,
            status=status,
            retry_after_s=retry_after_s,
        )
    )


def wait(until: float | Callable[[], Awaitable[Any]] | Any) -> Wait:
    """The stream pauses here.

    Args:
        until: seconds, an anyio.Event (or anything whose `wait()` is awaitable), or an async callable.

    Raises:
        TypeError: it is none of these; a threading.Event would block the loop.
    """
    if isinstance(until, (int, float)):
        return Wait(lambda: anyio.sleep(until))
    waiter: Any = getattr(until, "wait", None)
    if (waiter is None and callable(until)) or inspect.iscoroutinefunction(waiter):
        return Wait(waiter or until)  # pyright: ignore[reportArgumentType]
    raise TypeError(f"expected seconds, an anyio.Event or an async callable to wait for, got {until!r}")


def hang() -> Wait:
    """The stream never goes on; only a cancellation or a deadline ends it."""
    return Wait(anyio.sleep_forever)


def check(holds: Callable[[Request], object]) -> Check:
    """Assert something about the request: `holds` raises AssertionError or returns False if it does not hold."""
    return Check(holds)


def metadata(data: str, *, message: bool = False) -> About:
    """The provider's opaque bytes for the block before, or for the whole message (M5)."""
    return About(data, message)


def opaque(data: Any, *, index: int | None = None) -> Part:
    """A part of a kind that checkrein does not know; `data` is JSON."""
    return Part(data, index)


def forever(turn: Turn) -> Forever:
    """Play this turn for every further request."""
    return Forever(turn)


# --- compilation ----------------------------------------------------------------------------------


def cut(whole: str, pieces: int) -> Iterator[str]:
    """Yield `whole` in that many nearly equal pieces, none empty unless all is."""
    pieces = max(1, min(pieces, len(whole)))
    for i in range(pieces):
        yield whole[len(whole) * i // pieces : len(whole) * (i + 1) // pieces]


def split(item: Say) -> list[Item]:
    """Cut a block behind its first piece, which needs it to be the first of its turn."""
    head, *rest = cut(item.text, item.pieces)
    first = replace(item, text=head, pieces=1, index=0, metadata=None)
    return [first, replace(item, text="".join(rest), pieces=max(1, len(rest)), index=0)]


@dataclass(slots=True)
class _Compiler:
    steps: list[Step] = field(default_factory=list)
    last: int = -1
    calls: int = 0
    made_up: list[tuple[int, int]] = field(default_factory=list)
    open_ended: bool = False

    def add(self, item: Item) -> None:
        if isinstance(item, str):
            item = text(item)
        if isinstance(item, Say):
            index = self._index(item.index)
            self.steps += [item.make(index, piece) for piece in cut(item.text, item.pieces)]
            self._about(index, item.metadata)
        elif isinstance(item, Ask):
            self._call(item)
        elif isinstance(item, Part):
            self.steps.append(OpaqueChunk(self._index(item.index), item.data))
        elif isinstance(item, About):
            if self.last < 0 and not item.message:
                raise ValueError(
                    "expected a block before metadata(...), got none; use message=True for the message's own"
                )
            self._about(None if item.message else self.last, item.data)
        elif isinstance(item, Torn):
            self.open_ended = True
        else:
            self._raw(item)

    def _call(self, item: Ask) -> None:
        index = self._index(item.index)
        self.calls += 1
        if item.id is None:
            self.made_up.append((len(self.steps), self.calls))
        first, *rest = cut(item.arguments, item.pieces)
        self.steps.append(CallChunk(index, item.id or None, item.name, first))
        self.steps += [CallChunk(index, arguments=piece) for piece in rest]
        self._about(index, item.metadata)

    def _raw(self, item: Chunk | Wait | Raise | Check) -> None:
        if isinstance(item, (FinishChunk, Raise)):
            self.open_ended = True
        elif isinstance(item, CHUNK_TYPES):
            self.last = max(self.last, getattr(item, "index", None) or 0)
            self.calls += isinstance(item, CallChunk)
        elif not isinstance(item, (Wait, Check)):
            raise TypeError(f"expected a chunk, a str or an item of checkrein.testing in a script, got {item!r}")
        self.steps.append(item)

    def _index(self, index: int | None) -> int:
        if index is None:
            index = self.last + 1
        self.last = max(self.last, index)
        return index

    def _about(self, index: int | None, data: str | None) -> None:
        if data is not None:
            self.steps.append(MetadataChunk(data, index))


def compile_turn(items: Iterable[Item] | Item) -> Compiled:
    """Make a turn ready to play.

    Args:
        items: the turn; a str or a single item stands for a turn of one.

    Raises:
        TypeError: something in it is no item.
        ValueError: metadata stands before every block.
    """
    compiler = _Compiler()
    single = isinstance(items, (str, dict, Say, Ask, About, Part, Torn, Wait, Raise, Check, *CHUNK_TYPES))
    for item in [items] if single else items:  # type: ignore[union-attr]
        compiler.add(item)  # type: ignore[arg-type]
    if not compiler.open_ended:
        compiler.steps.append(FinishChunk("tool_calls" if compiler.calls else "stop"))
    steps = tuple(compiler.steps)
    return Compiled(steps, all(isinstance(step, CHUNK_TYPES) for step in steps), tuple(compiler.made_up))
