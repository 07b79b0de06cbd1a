"""What is live: the deltas of a running turn, and the stream a consumer iterates over.

Deltas are never logged. A stream buffers deltas only; logged events are read back from the log, each
delta remembers how many events had been committed before it. The buffer is bounded: when it is full, deltas of
one block are joined and old lines of progress left out; the text is always whole, and the loop never waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from msgspec import Struct

from .chunks import Chunk, TextChunk, ThinkingChunk
from .errors import AgentDisposed
from .events import AnyEvent, AssistantAnswer, InboxDiscarded, StepStart, ToolCalled, ToolEnded, ToolResulted, UserInput
from .events import TurnEnd as TurnEnded
from .log import place_of
from .messages import CallBlock, Content
from .text import REPLACEMENT, clean

if TYPE_CHECKING:
    from .agents import AgentLike, Receipt
    from .results import TurnResult

__all__ = [
    "TextDelta",
    "ThinkingDelta",
    "ToolCall",
    "ToolProgress",
    "ToolResult",
    "StepReset",
    "TurnEnd",
    "Live",
    "Buffer",
    "TurnStream",
    "live_item",
]

BUFFER_DELTAS = 4_096


class TextDelta(Struct, frozen=True, gc=False):
    """A piece of the answer's text."""

    turn: int
    step: int
    index: int
    text: str


class ThinkingDelta(Struct, frozen=True, gc=False):
    """A piece of thinking."""

    turn: int
    step: int
    index: int
    text: str


class ToolCall(Struct, frozen=True):
    """A call was asked for; `arguments` is the model's raw text."""

    event: ToolCalled
    arguments: str = ""

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.event.name

    @property
    def call_id(self) -> str:
        """The call's id."""
        return self.event.call_id


class ToolProgress(Struct, frozen=True, gc=False):
    """A line a running tool wants shown."""

    call_id: str
    text: str


class ToolResult(Struct, frozen=True):
    """A call has its result; where its `tool/end` holds what it came to (an earlier sibling was open), that is here."""

    event: ToolResulted
    ended: ToolEnded | None = None

    @property
    def content(self) -> Content:
        """What the tool returned, as the model sees it."""
        return (self.event if self.ended is None else self.ended).content or []

    @property
    def value(self) -> Any:
        """The same as JSON, if it is structured."""
        return (self.event if self.ended is None else self.ended).value

    @property
    def call_id(self) -> str:
        """The call's id."""
        return self.event.call_id

    @property
    def is_error(self) -> bool:
        """Whether it failed."""
        return self.event.is_error


class StepReset(Struct, frozen=True, gc=False):
    """The request is sent again: forget the deltas of this step (M9)."""

    turn: int
    step: int
    attempt: int


class TurnEnd(Struct, frozen=True):
    """The turn ended."""

    event: TurnEnded

    @property
    def reason(self) -> Any:
        """How it ended."""
        return self.event.reason


Delta: TypeAlias = TextDelta | ThinkingDelta | ToolProgress | StepReset
Live: TypeAlias = Delta | ToolCall | ToolResult | TurnEnd | AnyEvent

_JOINED = (TextDelta, ThinkingDelta)


class Buffer:
    """The deltas one consumer has not read yet, each with the number of events committed before it.

    Their text is as the log will have it (L9): half of a surrogate pair is held back until its other half has come.
    """

    __slots__ = ("items", "limit", "_halves", "_wake", "_waiting")

    def __init__(self, limit: int = BUFFER_DELTAS) -> None:
        self.items: deque[tuple[int, Delta]] = deque()
        self.limit = limit
        self._halves: dict[tuple[type[TextDelta | ThinkingDelta], int], str] = {}
        self._wake: anyio.Event | None = None
        self._waiting = False

    def push(self, events: int, delta: Delta) -> None:
        """Add a delta; never waits."""
        if len(self.items) >= self.limit:
            self._join()
        self.items.append((events, delta))
        if self._wake is not None:
            self.wake()

    def chunk(self, events: int, turn: int, step: int, chunk: Chunk) -> None:
        """Add a provider's chunk, if a consumer has a use for it."""
        if type(chunk) is TextChunk:
            self.text(events, turn, step, chunk.index, chunk.text)
        elif type(chunk) is ThinkingChunk:
            self._whole(events, ThinkingDelta, turn, step, chunk.index, chunk.text)

    def text(self, events: int, turn: int, step: int, index: int, text: str) -> None:
        """Add a piece of the answer's text: what most chunks are, so `push` is written out."""
        if not text.isascii() or self._halves:
            self._whole(events, TextDelta, turn, step, index, text)
            return
        if len(self.items) >= self.limit:
            self._join()
        self.items.append((events, TextDelta(turn, step, index, text)))
        if self._wake is not None:
            self.wake()

    def _whole(
        self, events: int, kind: type[TextDelta | ThinkingDelta], turn: int, step: int, index: int, text: str
    ) -> None:
        """Add a piece as the log will have it: behind the half that was held back, without one at its end."""
        text = self._halves.pop((kind, index), "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._halves[kind, index] = text[-1]
            text = text[:-1]
        if text:
            self.push(events, kind(turn, step, index, clean(text)[0]))

    def end_request(self, events: int, turn: int, step: int) -> None:
        """Behind a request's last chunk: a half whose other half never came is U+FFFD, as in the log."""
        halves, self._halves = self._halves, {}
        for kind, index in halves:
            self.push(events, kind(turn, step, index, REPLACEMENT))

    def _join(self) -> None:
        """Join the deltas of one block; a delta may then stand before events that came in between."""
        joined: deque[tuple[int, Delta]] = deque()
        parts: list[str] = []
        for events, delta in self.items:
            last = joined[-1][1] if joined else None
            if (
                isinstance(delta, _JOINED)
                and isinstance(last, _JOINED)
                and type(last) is type(delta)
                and (last.turn, last.step, last.index) == (delta.turn, delta.step, delta.index)
            ):
                parts.append(delta.text)
                continue
            self._flush(joined, parts)
            joined.append((events, delta))
        self._flush(joined, parts)
        if (excess := len(joined) - self.limit // 2) > 0:
            joined = _forget_progress(joined, excess)
        self.items = joined
        self.limit = max(self.limit, 2 * len(joined))  # many short blocks cannot be joined: it grows with the turn

    @staticmethod
    def _flush(joined: deque[tuple[int, Delta]], parts: list[str]) -> None:
        if parts:
            events, last = joined.pop()
            assert isinstance(last, _JOINED)
            text = last.text + "".join(parts)
            joined.append((events, type(last)(last.turn, last.step, last.index, text)))
            parts.clear()

    def wake(self) -> None:
        """Wake the consumer, if it waits."""
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.set()

    async def wait(self) -> None:
        """Wait for something to read.

        Raises:
            RuntimeError: somebody waits already.
        """
        if self._waiting:
            raise RuntimeError("a stream has one consumer: expected nobody else to iterate over it")
        self._wake, self._waiting = anyio.Event(), True
        try:
            await self._wake.wait()
        finally:
            self._wake, self._waiting = None, False


def _forget_progress(items: deque[tuple[int, Delta]], many: int) -> deque[tuple[int, Delta]]:
    """Leave out so many of the oldest lines of progress: no log holds them, and a tool may write without end."""
    kept: deque[tuple[int, Delta]] = deque()
    for item in items:
        if many > 0 and type(item[1]) is ToolProgress:
            many -= 1
        else:
            kept.append(item)
    return kept


def live_item(events: Sequence[AnyEvent], place: int) -> Live:
    """What a consumer gets for the event at a place of a log."""
    event = events[place]
    if type(event) is ToolCalled:
        return ToolCall(event, _arguments(events, place, event.call_id))
    if type(event) is ToolResulted:
        return ToolResult(event, _ended(events, event))
    return TurnEnd(event) if type(event) is TurnEnded else event


def _ended(events: Sequence[AnyEvent], result: ToolResulted) -> ToolEnded | None:
    """The `tool/end` that a result names."""
    if result.end is None or (place := place_of(events, result.end)) >= len(events):
        return None
    event = events[place]
    return event if type(event) is ToolEnded else None


def _arguments(events: Sequence[AnyEvent], place: int, call_id: str) -> str:
    """The raw arguments of a call: they stand in the answer before it."""
    while place:
        place -= 1
        event = events[place]
        if type(event) is AssistantAnswer:
            found = (block for block in event.content if type(block) is CallBlock and block.call_id == call_id)
            return next((block.arguments for block in found), "")
        if type(event) is StepStart:
            break
    return ""


class TurnStream:
    """One run of an agent, live: an async context manager and a single-consumer iterator of Live.

    Leaving the block early cancels the turn, unless `detach()` was called. No scope or group stays open
    across a yield.
    """

    def __init__(
        self,
        agent: AgentLike,
        accept: Callable[[], Receipt],
        attach: Callable[[Buffer], Callable[[], None]],
        buffer: int,
    ) -> None:
        self._agent = agent
        self._accept = accept
        self._attach = attach
        self._buffer = Buffer(buffer)
        self._stop: Callable[[], None] | None = None
        self._next = 0
        self._started = 0
        self._ended: TurnEnded | None = None
        self._detached = self._left = False
        self.receipt: Receipt | None = None

    async def __aenter__(self) -> TurnStream:
        if self._stop is not None:
            raise RuntimeError("a stream is one turn and is entered once: call agent.stream(...) again")
        self._next = len(self._agent.session.events)
        self._stop = self._attach(self._buffer)
        try:
            self.receipt = self._accept()
        except BaseException:
            self._stop()
            raise
        return self

    def __aiter__(self) -> AsyncIterator[Live]:
        return self

    async def __anext__(self) -> Live:
        buffer = self._buffer
        while True:
            if items := buffer.items:
                mark, delta = items[0]
                if self._next >= mark:
                    items.popleft()
                    if self._started:
                        return delta
                    continue
            if self._ended is not None:
                raise StopAsyncIteration
            events = self._agent.session.events  # another object once the session has grown long
            if self._next < len(events):
                self._next += 1
                if self._is_mine(event := events[self._next - 1]):
                    if type(event) is TurnEnded:
                        self._ended = event
                    return live_item(events, self._next - 1)
                continue
            if self._left or self._agent.status == "disposed":
                raise StopAsyncIteration  # nobody would wake it
            await buffer.wait()

    def _is_mine(self, event: AnyEvent) -> bool:
        """Whether an event belongs to the turn of this stream, which begins with its input.

        Raises:
            StopAsyncIteration: the input was discarded, there will be no turn.
        """
        assert self.receipt is not None, "enter the stream first: async with agent.stream(...) as turn"
        if self._started:
            return True
        if type(event) is UserInput and event.id == self.receipt.id:
            self._started = event.turn
            return True
        if type(event) is InboxDiscarded and event.id == self.receipt.id:
            self._left = True  # who iterates again finds nothing, too
            raise StopAsyncIteration
        return False

    def detach(self) -> None:
        """Let the turn go on when the block is left."""
        self._detached = True

    async def result(self) -> TurnResult:
        """Wait for the turn's end and return its result."""
        assert self.receipt is not None, "enter the stream first: async with agent.stream(...) as turn"
        return await self.receipt.result()

    async def __aexit__(self, *exc: object) -> None:
        self._left = True
        self._buffer.wake()  # another task may iterate
        if self._stop is not None:
            self._stop()
        if self._detached or self.receipt is None:
            return
        status = self.receipt.status
        if status.state == "pending":
            with suppress(AgentDisposed):  # then it stays pending, in the log
                self._agent.withdraw(self.receipt.id, "the stream was left")
        elif status.state == "in turn" and self._ended is None:
            state = self._agent.session.state
            if state.turn_open and state.turn == status.turn:  # a slow consumer's may be over: not the next one's (C8)
                self._agent.cancel("user" if exc[0] is None else "task")
            with anyio.CancelScope(shield=True) as scope:
                scope.cancel()  # a cancelled waiter leaves behind the end of its turn, within a bound (C8)
                await self.receipt.result()
