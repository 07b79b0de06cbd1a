"""The JSON Lines store: a folder a session, its log one file that is only ever appended to.

.checkrein/.gitignore                 *
.checkrein/index.json                 what a listing needs; can be deleted without loss
.checkrein/hooks.json                 what the hooks of the last run cost; can be deleted without loss
.checkrein/sessions/<id>/log.jsonl    the log; locked while it is written
.checkrein/sessions/<id>/log.torn     torn tails that were set aside, one a line
.checkrein/sessions/<id>/owner.json   who writes it, or did last
.checkrein/sessions/<id>/snapshot     what opening the log sooner needs; can be deleted without loss
.checkrein/sessions/<id>/blobs/       by SHA-256
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary
from zlib import crc32

import msgspec

from checkrein.errors import SessionLocked, SessionNotFound, StoreError
from checkrein.store import SessionInfo, StoredLog, check_lines, check_session_id

from .files import FileOps, forget, replace, unique, write_all, write_new
from .listing import list_sessions
from .pages import PAGE_BYTES
from .reading import ReadLog, read_log, read_on
from .writer import JsonlWriter

__all__ = ["JsonlStore"]

LONG_BYTES = 8_388_608
_SHA256_DIGITS = 64
_LINES_AT_ONCE = 4_096


class JsonlStore:
    """Keeps each session as JSON Lines in a folder of its own.

    Args:
        folder: where everything lies, as `.checkrein`; made when the first session is.
        owner: a name for this process in the owner record, besides its id and host.
        ops: the file operations.
        long_bytes: a log of more bytes is read a page at a time, and older events again when they are asked for.
        page_bytes: how much is read at once then.

    Attributes:
        name: what the config's `session.store` says.
        folder: as given, made absolute: the program, or a tool, may change its working directory.
    """

    name = "jsonl"

    def __init__(
        self,
        folder: Path | str = ".checkrein",
        *,
        owner: str = "",
        ops: FileOps | None = None,
        long_bytes: int = LONG_BYTES,
        page_bytes: int = PAGE_BYTES,
    ) -> None:
        self.folder = Path(folder).absolute()
        self._long_bytes = long_bytes
        self._page_bytes = page_bytes
        self._sessions = self.folder / "sessions"
        self._accounts = self.folder / "hooks.json"
        self._owner = owner
        self._ops = ops or FileOps()
        self._writers: WeakValueDictionary[str, JsonlWriter] = WeakValueDictionary()

    def create(self, session_id: str, lines: Sequence[bytes]) -> JsonlWriter:
        """Create a session with its first lines; see Store."""
        check_lines(lines)
        log = self._log(session_id)
        try:
            self._make_folder(log.parent)
            fd, size, crc = self._publish(log, lines)
        except FileExistsError:
            raise StoreError(
                f"a session {session_id!r} exists already at {log.parent}; open it, or choose another id"
            ) from None
        except OSError as exc:
            raise StoreError(f"session {session_id!r} cannot be created at {log.parent}: {exc}") from exc
        writer = JsonlWriter(
            self._ops,
            log,
            fd,
            size=size,
            folders=self._folders(log),
            durable=True,
            crc=crc,
            pieces=(),
            page_bytes=self._page_bytes,
        )
        try:
            writer.taken = len(lines)
            self._sign(log.parent)
            self._writers[session_id] = writer
        except BaseException:  # whoever asked does not have it: it must not stand in the way of the next try
            writer.close()
            forget(self._ops, log)
            raise
        return writer

    def open(self, session_id: str) -> tuple[StoredLog, JsonlWriter]:
        """Open a session to continue it; see Store."""
        log = self._log(session_id)
        try:
            fd = self._ops.open(log, os.O_RDWR | os.O_APPEND)
        except OSError as exc:
            raise self._unreadable(session_id, exc) from exc
        try:
            if not self._ops.lock(fd):
                raise SessionLocked(self._locked(session_id, log.parent))
            found = read_on(self._ops, log, self._page_bytes) or self._read(log)
        except OSError as exc:
            self._ops.close(fd)
            raise StoreError(f"session {session_id!r} cannot be opened at {log}: {exc}") from exc
        except BaseException:
            self._ops.close(fd)
            raise
        writer = JsonlWriter(
            self._ops,
            log,
            fd,
            size=found.size,
            torn=found.stored.torn,
            newline=found.newline,
            folders=self._folders(log),
            crc=found.crc,
            pieces=found.pieces,
            page_bytes=self._page_bytes,
        )
        self._sign(log.parent)
        self._writers[session_id] = writer
        return found.stored, writer

    def read(self, session_id: str, start: int = 0) -> StoredLog:
        """Read a session; see Store."""
        try:
            stored = self._read(self._log(session_id)).stored
        except OSError as exc:
            raise self._unreadable(session_id, exc) from exc
        return StoredLog(stored.lines[start:], stored.torn) if start else stored

    def list(self) -> Iterator[SessionInfo]:
        """All sessions, newest first; a bad one is listed with its problem."""
        return iter(list_sessions(self._ops, self._sessions, self.folder / "index.json"))

    def locate(self, session_id: str) -> str:
        """The path of the session's log."""
        log = self._log(session_id)
        if not log.exists():
            raise self._missing(session_id)
        return str(log)

    def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep bytes beside the session; see Store."""
        sha256 = hashlib.sha256(data).hexdigest()
        path = self._blob(session_id, sha256)
        try:
            if self._intact(path, sha256):
                return sha256
            self._make_folder(path.parent)
            writer = self._live(session_id)
            temporary = path.with_name(f".{sha256[:16]}.{unique()}")
            write_new(self._ops, temporary, data, durable=writer is None)
            self._ops.rename(temporary, path)
            folders = (path.parent, path.parent.parent)
            if writer is None:
                for folder in folders:
                    self._ops.fsync_dir(folder)
            else:
                writer.sync_later(path, folders)
        except OSError as exc:
            raise StoreError(f"a blob of {len(data)} bytes cannot be kept at {path}: {exc}") from exc
        return sha256

    def get_blob(self, session_id: str, sha256: str) -> bytes:
        """Return a blob's bytes; see Store."""
        path = self._blob(session_id, sha256)
        try:
            data = self._ops.read(path)
        except OSError as exc:
            raise StoreError(f"session {session_id!r} has no blob {sha256!r}: {exc}") from exc
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StoreError(f"the blob at {path} is damaged: its SHA-256 is not its name; put it again")
        return data

    def put_accounts(self, data: bytes) -> None:
        """Keep what the hooks of the last run cost; see Accounting."""
        replace(self._ops, self._accounts, data)

    def accounts(self, most: int) -> bytes | None:
        """Return what the hooks of the last run cost; see Accounting."""
        if not self._accounts.exists():
            return None
        return self._ops.read(self._accounts, 0, most)

    def _read(self, log: Path) -> ReadLog:
        return read_log(self._ops, log, self._long_bytes, self._page_bytes)

    # --- paths -----------------------------------------------------------------------------------------

    def _log(self, session_id: str) -> Path:
        return self._sessions / check_session_id(session_id) / "log.jsonl"

    def _folders(self, log: Path) -> tuple[Path, ...]:
        """The folders whose entries lead to the log; whoever made them may have died before they were synced."""
        return (log.parent, self._sessions, self.folder, self.folder.parent)

    def _live(self, session_id: str) -> JsonlWriter | None:
        writer = self._writers.get(session_id)
        return None if writer is None or writer.closed else writer

    def _blob(self, session_id: str, sha256: str) -> Path:
        if len(sha256) != _SHA256_DIGITS or not set(sha256) <= set("0123456789abcdef"):
            raise StoreError(f"expected a SHA-256 of 64 hex digits, got {sha256!r}")
        log = self._log(session_id)
        if not log.exists():
            raise self._missing(session_id)
        return log.parent / "blobs" / sha256

    def _make_folder(self, folder: Path) -> None:
        self._ops.mkdir(folder)
        ignore = self.folder / ".gitignore"
        if not ignore.exists():
            replace(self._ops, ignore, b"*\n")

    # --- files -----------------------------------------------------------------------------------------

    def _publish(self, log: Path, lines: Sequence[bytes]) -> tuple[int, int, int]:
        """Make the log under its name, whole or not at all; returns it open and locked, its size and its CRC."""
        if log.exists():
            raise FileExistsError(log)
        temporary = log.with_name(f".log.{unique()}")
        fd = self._ops.open(temporary, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        try:
            self._ops.lock(fd)
            size = crc = 0
            for first in range(0, len(lines), _LINES_AT_ONCE):
                part = b"\n".join(lines[first : first + _LINES_AT_ONCE]) + b"\n"
                write_all(self._ops, fd, part)
                size += len(part)
                crc = crc32(part, crc)
            self._ops.fsync(fd)
            if not self._ops.link(temporary, log):
                self._publish_without_links(temporary, log)
                return fd, size, crc
        except BaseException:
            self._ops.close(fd)
            forget(self._ops, temporary)
            raise
        forget(self._ops, temporary)
        return fd, size, crc

    def _publish_without_links(self, temporary: Path, log: Path) -> None:
        if log.exists():
            raise FileExistsError(log)
        self._ops.rename(temporary, log)

    def _intact(self, path: Path, sha256: str) -> bool:
        try:
            return hashlib.sha256(self._ops.read(path)).hexdigest() == sha256
        except FileNotFoundError:
            return False

    # --- owners and errors -----------------------------------------------------------------------------

    def _sign(self, folder: Path) -> None:
        """Record who writes; the lock is the truth, this only names its holder, so it may fail."""
        record = {"pid": os.getpid(), "host": socket.gethostname(), "time": int(time.time() * 1000)}
        if self._owner:
            record["owner"] = self._owner
        try:
            replace(self._ops, folder / "owner.json", msgspec.json.encode(record))
        except OSError:
            pass

    def _locked(self, session_id: str, folder: Path) -> str:
        try:
            record: dict[str, Any] = msgspec.json.decode(self._ops.read(folder / "owner.json"), type=dict[str, Any])
        except (OSError, msgspec.DecodeError, UnicodeError):
            record = {}
        who = f"process {record.get('pid', '(unknown)')} on {record.get('host', '(unknown host)')}"
        if record.get("pid") == os.getpid() and record.get("host") == socket.gethostname():
            who = f"this process ({os.getpid()})"
        if record.get("owner"):
            who += f" ({record['owner']})"
        return f"session {session_id!r} is being written by {who}; end that first, or continue with a fork"

    def _missing(self, session_id: str) -> SessionNotFound:
        return SessionNotFound(f"no session {session_id!r} in {self._sessions}; `checkrein sessions` lists them")

    def _unreadable(self, session_id: str, exc: OSError) -> StoreError:
        if isinstance(exc, (FileNotFoundError, NotADirectoryError)):
            return self._missing(session_id)
        return StoreError(f"session {session_id!r} cannot be read in {self._sessions}: {exc}")
