"""The plugin `persistence`: registers the JSON Lines store and keeps sessions durable (R4).

    [plugins.persistence]
    dir = ".checkrein"       # a relative path is taken from the workspace
    sync = "normal"          # or "always": every gate waits for the disk, not only turn end and approvals
    # owner = "nightly job"  # who to name when somebody else wants to write the same session

What a gate costs: one write() of the bytes that were encoded at append; nothing is collected here.
It serves every store's Writer, not only its own.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, Lock, to_thread

from checkrein.errors import ConfigError
from checkrein.hookspecs import hookimpl

from .jsonl import JsonlStore

if TYPE_CHECKING:
    from checkrein.harness import Harness
    from checkrein.session import Session
    from checkrein.store import Store, Writer

__all__ = ["Plugin"]

ALL_GATES = frozenset({"input", "request", "call", "approval", "turn_end"})
SYNCED_GATES = {"normal": frozenset({"approval", "turn_end"}), "always": ALL_GATES}
SYNC_THREADS = 8


class Plugin:
    """Writes each session's new lines at every gate, and has them synced where R4 asks for it.

    Raises:
        ConfigError: `sync` is neither `normal` nor `always`, or `dir` is empty.
    """

    @dataclass(frozen=True)
    class Config:
        """The table `[plugins.persistence]`.

        Attributes:
            dir: the folder that keeps sessions.
            sync: `normal` or `always`.
            owner: a name for this process in the owner record of a session.
        """

        dir: str = ".checkrein"
        sync: str = "normal"
        owner: str = ""

    def __init__(self, config: Config | None = None) -> None:
        config = config or self.Config()
        if config.sync not in SYNCED_GATES:
            raise ConfigError(f'expected "normal" or "always", got {config.sync!r}', path="plugins.persistence.sync")
        if not config.dir:
            raise ConfigError("expected a folder, got an empty text", path="plugins.persistence.dir")
        self.config = config
        self._synced_gates = SYNCED_GATES[config.sync]
        self._groups: dict[Writer, _Group] = {}
        self._threads: CapacityLimiter | None = None

    @hookimpl
    def register_stores(self, harness: Harness) -> list[Store]:
        """Offer the store `jsonl`."""
        folder = harness.workspace / Path(self.config.dir).expanduser()
        return [JsonlStore(folder, owner=self.config.owner)]

    @hookimpl
    def session_flush(self, session: Session, gate: str) -> Awaitable[None] | None:
        """Write what is new, at once; return the wait for the disk at the gates that have one."""
        writer = session.writer
        if writer is None:
            return None
        lines, taken = session.lines, writer.taken
        if taken != len(lines):
            writer.append(lines[taken:])
        return self._sync(writer) if gate in self._synced_gates else None

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
                    await to_thread.run_sync(writer.sync, abandon_on_cancel=True, limiter=self._limiter())
                    group.synced = covered
        finally:
            group.waiters -= 1
            if not group.waiters:
                del self._groups[writer]

    def _limiter(self) -> CapacityLimiter:
        if self._threads is None:
            self._threads = CapacityLimiter(SYNC_THREADS)
        return self._threads


class _Group:
    """Those who wait for one log to be synced; it lives as long as there are any."""

    __slots__ = ("lock", "synced", "waiters")

    def __init__(self) -> None:
        self.lock = Lock()
        self.synced = -1
        self.waiters = 0
