"""A writer that creates its session in the store with the first flush: an agent nobody talks to leaves no trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .store import Rereading, Snapshotting, Store, Writer

if TYPE_CHECKING:
    from .log import Page

__all__ = ["LazyWriter"]


class LazyWriter:
    """See checkrein.store.Writer; creates the session at the first append."""

    __slots__ = ("_closed", "_session_id", "_store", "_writer", "taken")

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._writer: Writer | None = None
        self._closed = False
        self.taken = 0  # how many lines the store has taken

    def append(self, lines: Sequence[bytes]) -> None:
        """Hand lines over; the first time there is more than the session's own first event, create the session."""
        if self._closed:
            raise OSError(f"the session {self._session_id!r} is closed")
        if self._writer is None:
            if len(lines) == 1:
                return  # not taken: it comes again with what follows it
            self._writer = self._store.create(self._session_id, lines)
        else:
            self._writer.append(lines)
        self.taken = self._writer.taken

    def reread(self, lines: Sequence[bytes], count: int) -> Sequence[Page[bytes]]:
        """Give back lines the store has taken, if its writer can; see Rereading."""
        writer = self._writer
        return writer.reread(lines, count) if isinstance(writer, Rereading) else ()

    @property
    def covered(self) -> int | None:
        """Of how many lines the store keeps a snapshot, None if it cannot; see Snapshotting."""
        return self._writer.covered if isinstance(self._writer, Snapshotting) else None

    def keep(self, data: bytes) -> None:
        """Keep a snapshot, if the store's writer can; see Snapshotting."""
        if isinstance(self._writer, Snapshotting):
            self._writer.keep(data)

    def sync(self) -> None:
        """Make what was taken survive power loss."""
        if self._writer is not None:
            try:
                self._writer.sync()
            finally:
                self.taken = self._writer.taken  # a failed sync may take back what it covered

    def close(self) -> None:
        """Release the session; it is not created any more."""
        self._closed = True
        if self._writer is not None:
            self._writer.close()
