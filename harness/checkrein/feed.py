"""`harness.events()`: what all agents of a harness do, live, for one consumer, as a page or a trace needs it.

Logged events are read back from the logs, deltas come through a bounded buffer an agent; nothing here makes
the loop wait. The stream of a single turn is live.py; frames for a browser are sse.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from .live import BUFFER_DELTAS, Buffer, Delta, Live, live_item
from .log import place_of

if TYPE_CHECKING:
    from .agents import AgentLike
    from .harness import Harness

__all__ = ["Feed", "FeedItem"]


class FeedItem(Struct, frozen=True, gc=False):
    """Something an agent did.

    Attributes:
        agent: the agent's id.
        session: its session's id.
        seq: an event's own; of a delta, the last event's before it: resume with `after={session: seq}`.
        item: a delta, or a logged event as a stream yields it.
    """

    agent: str
    session: str
    seq: int
    item: Live


class _Source(Buffer):
    """One agent's part of a feed: its unread deltas, and how far its log was read."""

    __slots__ = ("agent", "next", "told", "detach", "_feed")

    def __init__(self, feed: Feed, agent: AgentLike, first: int, limit: int) -> None:
        super().__init__(limit)
        self.agent = agent
        self.next = first
        self.told = False  # whether the feed knows that there is something to read
        self.detach: Callable[[], None] = agent.attach(self)
        self._feed = feed

    def push(self, events: int, delta: Delta) -> None:
        super().push(events, delta)
        self.wake()

    def text(self, events: int, turn: int, step: int, index: int, text: str) -> None:
        super().text(events, turn, step, index, text)
        self.wake()

    def wake(self) -> None:
        if not self.told:
            self.told = True
            self._feed.tell(self)

    def read(self) -> FeedItem | None:
        """The next item in the agent's own order, None when everything was read."""
        session = self.agent.session
        events = session.events
        if self.items and self.next >= self.items[0][0]:
            _, delta = self.items.popleft()
            seq = events[self.next - 1].seq if self.next else -1
            return FeedItem(self.agent.id, session.id, seq, delta)
        if self.next < len(events):
            self.next += 1
            item = live_item(events, self.next - 1)
            return FeedItem(self.agent.id, session.id, events[self.next - 1].seq, item)
        return None


class Feed:
    """An async context manager and a single-consumer iterator of FeedItem; it ends when the harness closes.

    Each agent's items keep their order; agents take turns. A slow consumer gets the deltas of one block
    joined, never a hole; of tools' progress it gets the latest lines.

    Args:
        harness: whose agents; those that come later too.
        after: by session id, the seq of the last event the consumer has; other sessions begin now.
        buffer: deltas kept an agent before those of one block are joined.
    """

    def __init__(
        self, harness: Harness, after: Mapping[str, int] | None = None, *, buffer: int = BUFFER_DELTAS
    ) -> None:
        self._harness = harness
        self._after = dict(after or {})
        self._limit = buffer
        self._sources: dict[str, _Source] = {}  # by session id
        self._ready: deque[_Source] = deque()
        self._wake: anyio.Event | None = None
        self._waiting = self._entered = self._closed = False

    async def __aenter__(self) -> Feed:
        self._harness.check_thread()
        if self._entered:
            raise RuntimeError("a feed is entered once: call harness.events(...) again")
        self._entered = True
        if self._harness.closed:  # nobody would end it
            self._closed = True
            return self
        self._harness.feeds.append(self)
        for agent in self._harness.agents:
            self.add(agent, len(agent.session.events))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
        self._ready.clear()

    def add(self, agent: AgentLike, first: int = 0) -> None:
        """Follow an agent from an index of its log on, or from behind what the consumer has."""
        session = agent.session
        if (seq := self._after.pop(session.id, None)) is not None:  # once: it may be disposed and resumed
            first = place_of(session.events, seq + 1)
        source = self._sources[session.id] = _Source(self, agent, first, self._limit)
        source.wake()

    def drop(self, agent: AgentLike) -> None:
        """Follow an agent no longer: it is disposed; what it left can still be read."""
        source = self._sources.pop(agent.session.id, None)
        if source is not None:
            source.detach()

    def close(self) -> None:
        """End behind what is there."""
        self._closed = True
        if self in self._harness.feeds:
            self._harness.feeds.remove(self)
        for source in self._sources.values():
            source.detach()
        self._sources.clear()
        self._set()

    def tell(self, source: _Source) -> None:
        """An agent has something to read."""
        self._ready.append(source)
        self._set()

    def _set(self) -> None:
        if self._wake is not None:
            self._wake.set()

    def __aiter__(self) -> AsyncIterator[FeedItem]:
        return self

    async def __anext__(self) -> FeedItem:
        while True:
            while self._ready:
                source = self._ready.popleft()
                item = source.read()
                if item is not None:
                    self._ready.append(source)  # behind the others
                    return item
                source.told = False
            if self._closed:
                raise StopAsyncIteration
            if not self._entered:  # nobody would wake it
                raise RuntimeError("enter the feed first: async with harness.events(...) as feed")
            await self._wait()

    async def _wait(self) -> None:
        if self._waiting:
            raise RuntimeError("a feed has one consumer: expected nobody else to iterate over it")
        self._wake, self._waiting = anyio.Event(), True
        try:
            await self._wake.wait()
        finally:
            self._wake, self._waiting = None, False
