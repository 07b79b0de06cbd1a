"""The store contract: what keeps sessions, and what every store has to do (R1-R5).

A store deals in whole log lines as bytes (codec.py seals them with a CRC); it never interprets
them. `checkrein.testing.store_conformance` runs any store against this contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["Store", "SessionInfo", "StoredLog", "Writer"]


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A line of a listing; a damaged session is listed too, with its `problem`."""

    id: str
    agent: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    events: int = 0
    size_bytes: int = 0
    title: str = ""
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class StoredLog:
    """What a store found when it opened a session.

    Attributes:
        lines: the log's lines in order, without newline, damaged ones included (codec.py judges them).
        torn: the bytes behind the last newline, to be set aside (R1).
    """

    lines: Sequence[bytes]
    torn: bytes = b""


@runtime_checkable
class Writer(Protocol):
    """The single writer of one session; its lock dies with its process (R3)."""

    def append(self, lines: Sequence[bytes]) -> None:
        """Hand whole lines to the operating system: after this they survive kill -9.

        Raises:
            OSError: nothing, or a prefix, was written; the writer rolls the file back to whole lines
                and takes the same lines again.
        """
        ...

    def sync(self) -> None:
        """Make what was appended survive power loss; may block, so it is called in a thread."""
        ...

    def close(self) -> None:
        """Release the lock; idempotent."""
        ...


@runtime_checkable
class Store(Protocol):
    """Keeps sessions.

    Attributes:
        name: what the config's `session.store` says.
    """

    name: str

    def create(self, session_id: str, lines: Sequence[bytes]) -> Writer:
        """Create a session with its first lines, atomically: it is there whole, or not at all.

        Raises:
            StoreError: a session of this id exists.
        """
        ...

    def open(self, session_id: str) -> tuple[StoredLog, Writer]:
        """Open a session to continue it, taking the lock; sets a torn tail aside.

        Raises:
            SessionNotFound: there is none.
            SessionLocked: another process writes it.
        """
        ...

    def read(self, session_id: str, start: int = 0) -> StoredLog:
        """Read a session without a lock, from line `start`.

        Raises:
            SessionNotFound: there is none.
        """
        ...

    def list(self) -> Iterator[SessionInfo]:
        """All sessions, newest first; a bad one never stops the listing."""
        ...

    def locate(self, session_id: str) -> str:
        """Where the session is, for a person."""
        ...

    def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep bytes beside the session, once, and return their SHA-256 in hex."""
        ...

    def get_blob(self, session_id: str, sha256: str) -> bytes:
        """Return a blob's bytes.

        Raises:
            StoreError: there is none, or it does not match its hash.
        """
        ...
