"""The store in memory: for tests, and for whoever needs no persistence.

Sessions live as long as the MemoryStore object; every harness that shares it shares them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from .errors import SessionLocked, SessionNotFound, StoreError
from .recovery import parse_log, summary
from .store import SessionInfo, StoredLog, check_lines, check_session_id

__all__ = ["MemoryStore"]


class _Kept(Struct):
    """One session: the bytes of its log, what was set aside, its blobs, and whether it is being written."""

    log: bytearray
    torn: list[bytes] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    locked: bool = False


class MemoryStore:
    """A Store that keeps its sessions in memory.

    Attributes:
        name: what the config's `session.store` says.
    """

    name = "memory"

    def __init__(self) -> None:
        self._sessions: dict[str, _Kept] = {}

    def create(self, session_id: str, lines: Sequence[bytes]) -> _MemoryWriter:
        """Create a session with its first lines; see Store."""
        check_lines(lines)
        if check_session_id(session_id) in self._sessions:
            raise StoreError(f"a session {session_id!r} exists already; open it, or choose another id")
        kept = self._sessions[session_id] = _Kept(bytearray(_joined(lines)))
        writer = _MemoryWriter(kept)
        writer.taken = len(lines)
        return writer

    def open(self, session_id: str) -> tuple[StoredLog, _MemoryWriter]:
        """Open a session to continue it; see Store."""
        kept = self._kept(session_id)
        if kept.locked:
            raise SessionLocked(f"session {session_id!r} is being written in this process; close it first")
        writer = _MemoryWriter(kept)
        return parse_log(bytes(kept.log)), writer

    def read(self, session_id: str, start: int = 0) -> StoredLog:
        """Read a session; see Store."""
        log = parse_log(bytes(self._kept(session_id).log))
        return StoredLog(log.lines[start:], log.torn)

    def list(self) -> Iterator[SessionInfo]:
        """All sessions, newest first."""
        infos = [self._info(session_id) for session_id in self._sessions]
        return iter(sorted(infos, key=lambda info: (info.updated_ms, info.id), reverse=True))

    def locate(self, session_id: str) -> str:
        """Where the session is, for a person."""
        self._kept(session_id)
        return f"memory:{session_id}"

    def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep bytes beside the session; see Store."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._kept(session_id).blobs[sha256] = bytes(data)
        return sha256

    def get_blob(self, session_id: str, sha256: str) -> bytes:
        """Return a blob's bytes; see Store."""
        try:
            return self._kept(session_id).blobs[sha256]
        except KeyError:
            raise StoreError(f"session {session_id!r} has no blob {sha256!r}") from None

    def raw(self, session_id: str) -> bytearray:
        """The log's bytes themselves, for tests that damage them."""
        return self._kept(session_id).log

    def _kept(self, session_id: str) -> _Kept:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise SessionNotFound(f"no session {session_id!r} in memory") from None

    def _info(self, session_id: str) -> SessionInfo:
        log = bytes(self._sessions[session_id].log)
        return summary(session_id, parse_log(log).lines, size_bytes=len(log))


class _MemoryWriter:
    """The writer of a session in memory."""

    def __init__(self, kept: _Kept) -> None:
        self.taken = 0
        self._kept = kept
        self._open = kept.locked = True

    def append(self, lines: Sequence[bytes]) -> None:
        """Keep whole lines."""
        if not self._open:
            raise OSError("the session's writer is closed")
        check_lines(lines)
        if not self._kept.log.endswith(b"\n"):
            self._repair_tail()
        self._kept.log += _joined(lines)
        self.taken += len(lines)

    def sync(self) -> None:
        """Nothing: memory does not survive power loss."""

    def _repair_tail(self) -> None:
        log = parse_log(bytes(self._kept.log))
        if log.torn:
            self._kept.torn.append(log.torn)
        self._kept.log[:] = _joined(log.lines)

    def close(self) -> None:
        """Release the lock; idempotent."""
        if self._open:
            self._open = self._kept.locked = False


def _joined(lines: Sequence[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in lines])
