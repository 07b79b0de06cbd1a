"""The store contract: what keeps sessions, and what every store has to do (R1-R5).

A store deals in whole log lines as bytes (codec.py seals them with a CRC) and never judges them:
recovery.py does. `checkrein.testing.store_conformance` runs any store against this contract.
All calls are synchronous and short; `sync` and what touches a slow disk may be called in a thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import Struct

from .errors import StoreError

if TYPE_CHECKING:
    from .log import Page

__all__ = [
    "Store",
    "SessionInfo",
    "StoredLog",
    "Snapshot",
    "Writer",
    "Rereading",
    "Snapshotting",
    "Accounting",
    "check_session_id",
    "check_lines",
    "flush",
]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(?<!\.)")


def check_session_id(session_id: str) -> str:
    """Return the id if any store can use it, as the name of a folder for one.

    Raises:
        StoreError: it is anything but 1 to 128 letters, digits, `.`, `_` and `-`.
    """
    if not _ID.fullmatch(session_id):
        raise StoreError(
            "expected a session id of 1 to 128 letters, digits, '.', '_' or '-', beginning with a letter or "
            f"digit and not ending with a dot, got {session_id!r}"
        )
    return session_id


def flush(writer: Writer, lines: Sequence[bytes]) -> None:
    """Hand the writer those of a session's lines it has not taken yet (R4).

    Args:
        writer: the session's writer.
        lines: all lines of the session.

    Raises:
        OSError: as Writer.append; the next flush hands the same lines over again.
    """
    taken = writer.taken
    if taken != len(lines):
        writer.append(lines[taken:])


def check_lines(lines: Sequence[bytes]) -> None:
    """Refuse what would not come back as the same lines.

    Raises:
        StoreError: a line is empty or holds a newline.
    """
    for line in lines:
        if not line or b"\n" in line:
            raise StoreError(f"expected sealed log lines without newline, got {bytes(line[:80])!r}")


class SessionInfo(Struct, frozen=True):
    """A line of a listing; a damaged session is listed too, with its `problem`."""

    id: str
    agent: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    events: int = 0
    size_bytes: int = 0
    title: str = ""
    problem: str | None = None


class Snapshot(Struct, frozen=True):
    """What was kept beside a log to open it sooner (Snapshotting): a cache, which may be lost at any time.

    Attributes:
        count: the first lines it was made of, this many; the store has found their bytes to be the same ones.
        data: what was kept; no store looks into it.
    """

    count: int
    data: bytes | memoryview


class StoredLog(Struct, frozen=True):
    """What a store found when it opened a session.

    Attributes:
        lines: the log's lines in order, without newline, damaged ones included (recovery.py judges them). A store
            that can read parts of a long log gives `log.Pages`: then nobody keeps more of it than is recent.
        torn: what `recovery.split_tail` calls torn of the bytes behind the last newline (R1); what it
            calls whole is the last of the lines.
        snapshot: of the lines' beginning, where one of their pages ends; None if there is none that fits, or the
            log was not opened to continue it.
    """

    lines: Sequence[bytes]
    torn: bytes = b""
    snapshot: Snapshot | None = None


@runtime_checkable
class Writer(Protocol):
    """The single writer of one session; its lock dies with its process (R3).

    Attributes:
        taken: how many of the session's lines it has taken, so `lines[taken:]` is what it is owed.
            `create` and `append` count; `recovery.reopen` sets it after recovery.
    """

    taken: int

    def append(self, lines: Sequence[bytes]) -> None:
        """Hand whole lines to the operating system: after this they survive kill -9.

        Raises:
            OSError: none of them was taken, nothing of them stays; append them again later.
            StoreError: a line is empty or holds a newline.
        """
        ...

    def sync(self) -> None:
        """Make what was appended survive power loss; may block, so it is called in a thread.

        Raises:
            OSError: it may be lost on power loss; sync again later.
        """
        ...

    def close(self) -> None:
        """Release the lock; idempotent. Later appends raise OSError."""
        ...


@runtime_checkable
class Rereading(Writer, Protocol):
    """A writer that can read back what it took, so that a long session need not keep it in memory; no writer must."""

    def reread(self, lines: Sequence[bytes], count: int) -> Sequence[Page[bytes]]:
        """Give back lines as pages that are read when they are asked for.

        Args:
            lines: the last lines it has taken, in order.
            count: how many of them, from the first on, are to be given back.

        Returns:
            Pages of exactly these lines, which were compared; none if the log does not hold them so.

        Raises:
            OSError, StoreError: the log cannot be read now.
        """
        ...


@runtime_checkable
class Snapshotting(Writer, Protocol):
    """A writer that can keep a snapshot of the log beside it, which the next `open` gives back; no writer must.

    Attributes:
        covered: of how many lines a snapshot is kept, 0 without one. `keep` counts; `recovery.reopen` sets it
            after recovery, to None if the log holds anything but its events: then no snapshot of it is made.
    """

    covered: int | None

    def keep(self, data: bytes) -> None:
        """Keep a snapshot of all lines it has taken, in the place of the one before; it is not synced.

        Raises:
            OSError, StoreError: it is not kept; the one before may be there still.
        """
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
            StoreError: a session of this id exists, or the id or a line cannot be kept.
        """
        ...

    def open(self, session_id: str) -> tuple[StoredLog, Writer]:
        """Open a session to continue it, taking the lock (callers want `recovery.reopen`).

        Opening alone changes no byte of the log. Before the first append a torn tail is set aside; what is damaged
        elsewhere stays as it is, and what is appended begins on a line of its own.

        Raises:
            SessionNotFound: there is none.
            SessionLocked: somebody else writes it; the message names who (R3).
        """
        ...

    def read(self, session_id: str, start: int = 0) -> StoredLog:
        """Read a session without a lock and without changing anything, from line `start` on.

        Args:
            session_id: which.
            start: how many lines to leave out; more than there are gives none.

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
            StoreError: there is none, it does not match its hash, or `sha256` is none.
        """
        ...


@runtime_checkable
class Accounting(Store, Protocol):
    """A store that also keeps what the hooks of the last run cost, beside its sessions; no store must."""

    def put_accounts(self, data: bytes) -> None:
        """Keep these bytes in the place of the last ones, whole or not at all; they may be lost on power loss.

        Raises:
            OSError: what was kept before is kept still.
        """
        ...

    def accounts(self, most: int) -> bytes | None:
        """Return what was kept, its first `most` bytes if there are more; None if nothing was.

        Raises:
            OSError: it cannot be read.
        """
        ...
