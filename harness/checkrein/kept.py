"""What a session keeps: its events and their lines, in memory while it is short, the older ones in its store if not.

Appending is a plain list's append either way. Between turns `let_go` leaves to the store what is old, once it is
too much and the store can give it back; what memory holds from then on grows with the projections, not with the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .codec import seal_from
from .errors import StoreError
from .log import KEPT, LONG, Pages, decoded, place_of
from .snapshot import keep
from .store import Rereading

if TYPE_CHECKING:
    from .events import AnyEvent, Event
    from .state import State
    from .store import Writer

__all__ = ["Kept"]

E = TypeVar("E", bound="Event")

MAX_TRIES = 16


class Kept:
    """The events and lines of a session; see Session, which is one."""

    __slots__ = ("state", "writer", "events", "_recent", "_lines", "_sealed", "_stored", "_long")

    state: State

    def __init__(self) -> None:
        self.writer: Writer | None = None
        # What is in memory: all of it while the session is short, else `events` and `_stored` are Pages that end in it.
        self._recent: list[AnyEvent] = []
        self.events: Sequence[AnyEvent] = self._recent
        self._lines: list[bytes] = []  # encoded at append; the first `_sealed` of them have their CRC
        self._sealed = 0
        self._stored: Pages[bytes] | None = None
        self._long = LONG

    def fill(self, events: Sequence[AnyEvent], lines: Sequence[bytes]) -> None:
        """Take over what recovery made of a log: Pages stay where they are."""
        if isinstance(events, Pages) and isinstance(lines, Pages):
            self._hold(Pages(events.pages, list(events.recent)), Pages(lines.pages, list(lines.recent)))
        else:
            self.events = self._recent = list(events)
            self._lines = list(lines)
            self._sealed = len(self._lines)

    def _hold(self, events: Pages[AnyEvent], lines: Pages[bytes]) -> None:
        self.events, self._recent = events, events.recent
        self._stored, self._lines = lines, lines.recent
        self._sealed, self._long = len(self._lines), LONG

    # --- reading ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.events)

    @property
    def lines(self) -> Sequence[bytes]:
        """Each event as the bytes that were encoded at append, sealed, without newline."""
        lines = self._lines
        # Sealed when somebody reads or keeps them, and not at append: half of them are never read. Struck in
        # between, lines may come here twice; those that are sealed stay as they are.
        if self._sealed != len(lines):
            seal_from(lines, self._sealed)
            self._sealed = len(lines)
        return lines if self._stored is None else self._stored

    def line(self, seq: int) -> bytes:
        """The sealed bytes of the event at list position `seq`."""
        return self.lines[seq]

    def turn_events(self, turn: int) -> list[AnyEvent]:
        """The events of a turn, from its start to its end (or so far)."""
        start, end = self.state.starts.get(turn), self.state.ends.get(turn)
        if start is None:
            return []
        last = len(self.events) if end is None else place_of(self.events, end + 1)
        return list(self.events[place_of(self.events, start) : last])

    @overload
    def since(self, seq: int) -> list[AnyEvent]: ...
    @overload
    def since(self, seq: int, kind: type[E]) -> list[E]: ...
    def since(self, seq: int, kind: type[E] | None = None) -> list[Any]:
        """The events whose seq is at least `seq`, of one kind if given."""
        found = self.events[place_of(self.events, seq) :]
        return list(found) if kind is None else [event for event in found if type(event) is kind]

    # --- letting go -------------------------------------------------------------------------------

    def let_go(self, keep: int = KEPT, long: int | None = None) -> None:
        """Leave old events to the store if too many are in memory and it can give them back; between turns only.

        The last turn stays whole: whoever waited for it is about to read it.

        Args:
            keep: how many events stay in memory at least.
            long: how many are too many; 50,000 if not given.
        """
        in_memory = len(self._recent)
        if in_memory <= (self._long if long is None else long) or self.state.turn_open:
            return
        self._long = in_memory + LONG  # if it does not work out now, it is not tried again at every turn's end
        count = in_memory - keep
        if (start := self.state.starts.get(self.state.turn)) is not None:
            count = min(count, in_memory - len(self.events) + place_of(self.events, start))
        if count > 0 and (moved := self._left_to_store(count)) is not None:
            self._surely_hold(*moved)

    def release(self) -> None:
        """Close the writer, keeping a snapshot before if that is worth it; nothing without one.

        Raises:
            As Writer.close; it is let go all the same.
        """
        writer, self.writer = self.writer, None
        if writer is None:
            return
        try:
            keep(self.state, writer, len(self))
        finally:
            writer.close()

    def _left_to_store(self, count: int) -> tuple[Pages[AnyEvent], Pages[bytes]] | None:
        """Events and lines as they are when the first `count` in memory are left to the store; None if it cannot."""
        writer = self.writer
        if not isinstance(writer, Rereading) or writer.taken != len(self.lines):
            return None
        try:
            pages = writer.reread(self._lines, count)
        except (OSError, StoreError):
            return None
        if not pages:
            return None
        stored = self._stored.pages if self._stored is not None else []
        events = self.events.pages if isinstance(self.events, Pages) else []
        return (
            Pages([*events, *map(decoded, pages)], self._recent[count:]),
            Pages([*stored, *pages], self._lines[count:]),
        )

    def _surely_hold(self, events: Pages[AnyEvent], lines: Pages[bytes]) -> None:
        """Hold them whatever strikes meanwhile: half of it is not consistent, so it is done again."""
        struck: BaseException | None = None
        for _ in range(MAX_TRIES):
            try:
                self._hold(events, lines)
                break
            except BaseException as exc:
                struck = exc
        if struck is not None:
            raise struck
