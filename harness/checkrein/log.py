"""Long logs: what is old is read back from the store a page at a time, what is recent is a plain list.

`Pages` is that, for events and for their lines alike. A store makes one of a long log's lines (StoredLog);
recovery makes the events of it; a session that has grown long puts its old events behind pages too.
"""

from __future__ import annotations

import gc
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, overload

from msgspec import Struct

from .codec import DamagedLine, decode_all
from .errors import StoreError

if TYPE_CHECKING:
    from .events import AnyEvent

__all__ = ["KEPT", "LONG", "Follower", "Page", "Pages", "decoded", "onward", "place_of", "without_gc"]

T = TypeVar("T")

LONG = 50_000
"""A session of fewer events is in memory as a whole."""
KEPT = 10_000
"""How many of its events a longer one keeps there at least."""

_HELD = 4
_MANY = 2_000
_seq = attrgetter("seq")


class Page(NamedTuple, Generic[T]):
    """A piece of a long log.

    Attributes:
        length: how many items it has, at least one.
        read: reads them; raises StoreError if they are not there any more.
    """

    length: int
    read: Callable[[], list[T]]


class Pages(Sequence[T]):
    """A long sequence: pages that are read when somebody asks for what is in them, then a plain list.

    Iterating keeps nothing of what it reads; single items keep the pages read last.

    Args:
        pages: the old part.
        recent: the new part, to be appended to; it is not copied.
    """

    __slots__ = ("pages", "recent", "_starts", "_old", "_held", "_here")

    def __init__(self, pages: Sequence[Page[T]] = (), recent: list[T] | None = None) -> None:
        self.pages: list[Page[T]] = []
        self.recent: list[T] = recent if recent is not None else []
        self._starts = array("Q")
        self._old = 0
        self._held: dict[int, list[T]] = {}
        self._here: tuple[int, int, list[T]] = (0, 0, [])  # where the page begins and ends that was asked for last
        for page in pages:
            self.add(page)

    def add(self, page: Page[T]) -> None:
        """Add a page behind the others; only while nothing is recent."""
        self.pages.append(page)
        self._starts.append(self._old)
        self._old += page.length

    def upto(self, count: int) -> Pages[T]:
        """The first items, where they are: what is asked for of them is read then."""
        whole = bisect_right(self._starts, min(count, self._old))
        if whole and self._starts[whole - 1] + self.pages[whole - 1].length > count:
            whole -= 1
        begin = self._starts[whole] if whole < len(self.pages) else self._old
        return Pages(self.pages[:whole], self[begin:count])

    def __len__(self) -> int:
        return self._old + len(self.recent)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        first, end, page = self._here
        if isinstance(index, int) and first <= index < end:  # most who ask go on to the next one
            return page[index - first]
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self._between(start, stop)
            return [self[place] for place in range(start, stop, step)]
        if index < 0:
            index += len(self)
        if index >= self._old:
            return self.recent[index - self._old]
        if index < 0:
            raise IndexError("the log has no such item")
        number = bisect_right(self._starts, index) - 1
        first, page = self._starts[number], self._page(number)
        self._here = (first, first + len(page), page)
        return page[index - first]

    def __iter__(self) -> Iterator[T]:
        for page in self.pages:
            yield from page.read()
        yield from self.recent

    def onward(self, place: int) -> Iterator[T]:
        """Iterate from an index on; as iterating, it keeps nothing of what it reads."""
        for number in self._from(place):
            yield from self.pages[number].read()[max(0, place - self._starts[number]) :]
        yield from self.recent[max(0, place - self._old) :]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def _between(self, start: int, stop: int) -> list[T]:
        found: list[T] = []
        for number in self._from(start):
            first = self._starts[number]
            if first >= stop:
                return found
            page = self._held.get(number) or self.pages[number].read()
            found += page[max(0, start - first) : stop - first]
        return found + self.recent[max(0, start - self._old) : max(0, stop - self._old)]

    def _from(self, place: int) -> range:
        """The pages with items from an index on; none if all of those are recent, as nearly always."""
        if place >= self._old:
            return range(0)
        return range(max(0, bisect_right(self._starts, place) - 1), len(self.pages))

    def _page(self, number: int) -> list[T]:
        held = self._held
        page = held.get(number)
        if page is None:
            page = self.pages[number].read()
            while len(held) >= _HELD:
                del held[next(iter(held))]
            held[number] = page
        return page


def decoded(page: Page[bytes]) -> Page[AnyEvent]:
    """The events of a page of sealed lines."""

    def read() -> list[AnyEvent]:
        try:
            return decode_all(page.read())
        except DamagedLine as exc:
            raise StoreError(f"a part of the log that was read before cannot be read again: {exc}") from exc

    return Page(page.length, read)


def onward(events: Sequence[T], place: int) -> Iterable[T]:
    """The items from an index on: what a fold has still to read, of a log of any length."""
    return events.onward(place) if type(events) is Pages else events[place:]


class Follower(Struct):
    """A fold of a growing log: it reads on when it is asked, and each event once.

    Attributes:
        READS: what it does with an event, by the event's class; others are passed over.
        position: how many events of the log are read.
    """

    READS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {}
    position: int = 0

    def catch_up(self, events: Sequence[AnyEvent]) -> None:
        """Fold the events that came since."""
        reads = self.READS
        for event in onward(events, self.position):
            self.position += 1
            if type(event) in reads:
                reads[type(event)](self, event)


def place_of(events: Sequence[AnyEvent], seq: int) -> int:
    """The list position of the first event whose seq is at least `seq`; without gaps, that is `seq` itself."""
    if not events or events[-1].seq < seq:
        return len(events)
    if 0 <= seq < len(events) and events[seq].seq == seq:
        return seq
    return bisect_left(events, seq, key=_seq)


@contextmanager
def without_gc(items: int) -> Iterator[None]:
    """Pause the cyclic collector while many events are made: none of them is garbage, and it looks at all of them."""
    if items < _MANY or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
