"""Keeping a session with its store (R4): what is new is written at every gate, and synced where it must be.

Shaped like a plugin, so that whoever brings a store has only to register it; the plugin
`persistence` is a JSON Lines store and this. What a gate costs: one append of the bytes that were
encoded when the events were.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, Lock, to_thread

from .hookspecs import hookimpl

if TYPE_CHECKING:
    from .session import Session
    from .store import Writer

__all__ = ["Flusher", "ALL_GATES", "SYNCED_GATES"]

ALL_GATES = frozenset({"input", "request", "call", "approval", "turn_end"})
SYNCED_GATES = frozenset({"approval", "turn_end"})
SYNC_THREADS = 8


class Flusher:
    """Hands each session's new lines to its writer, whatever store that is.

    Args:
        synced: the gates that wait for the disk.
    """

    def __init__(self, synced: frozenset[str] = SYNCED_GATES) -> None:
        self._synced = synced
        self._groups: dict[Writer, _Group] = {}
        self._threads: CapacityLimiter | None = None

    @hookimpl
    def session_flush(self, session: Session, gate: str) -> Awaitable[None] | None:
        """Write what is new, at once; return the wait for the disk at the gates that have one."""
        writer = session.writer
        if writer is None:
            return None
        lines, taken = session.lines, writer.taken
        if taken != len(lines):
            writer.append(lines[taken:])
        if gate == "turn_end":
            session.let_go()
        return self._sync(writer) if gate in self._synced else None

    async def _sync(self, writer: Writer) -> None:
        """Wait until everything taken so far is on the disk; who waits meanwhile shares the next sync."""
        wanted = writer.taken
        group = self._groups.get(writer)
        if group is None:
            group = self._groups[writer] = _Group()
        group.waiters += 1
        try:
            async with group.lock:
                if group.synced < wanted:
                    covered = writer.taken
                    await to_thread.run_sync(_sync, writer, abandon_on_cancel=True, limiter=self._limiter())
                    group.synced = covered
        finally:
            group.waiters -= 1
            if not group.waiters:
                del self._groups[writer]

    def _limiter(self) -> CapacityLimiter:
        if self._threads is None:
            self._threads = CapacityLimiter(SYNC_THREADS)
        return self._threads


def _sync(writer: Writer) -> None:
    try:
        writer.sync()
    except (GeneratorExit, StopIteration) as exc:  # thrown into a coroutine these end it, whoever awaits it
        raise RuntimeError(f"the store's sync raised {type(exc).__name__}") from exc


class _Group:
    """Those who wait for one log to be synced; it lives as long as there are any."""

    __slots__ = ("lock", "synced", "waiters")

    def __init__(self) -> None:
        self.lock = Lock()
        self.synced = -1
        self.waiters = 0
