"""The writer of one JSON Lines log: whole lines in one write(), rolled back when one fails (R3, R4)."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from checkrein.errors import StoreError
from checkrein.log import Page, Pages
from checkrein.store import check_lines

from .files import FileOps, write_all
from .pages import PAGE_BYTES, Piece, divided, pages_of
from .snapshots import Beginning, write_snapshot

__all__ = ["JsonlWriter"]


class JsonlWriter:
    """The single writer of a session's log.

    `append` belongs to the loop's thread, `sync` to any other; `close` may come while a sync runs, and another sync
    while one that was given up still hangs: it waits for it.

    Args:
        ops: the file operations.
        path: the log.
        fd: the log, open to append and locked.
        size: where its whole lines end.
        torn: the bytes behind them, to be set aside before the first append.
        newline: whether the last whole line lacks its newline.
        folders: folders whose entries are not on the disk yet.
        durable: whether everything up to `size` is.
        crc: the CRC-32 of everything up to `size`.
        pieces: what the log consists of up to there; None if nobody counted.
        page_bytes: how large the pages are in which lines are read back.
    """

    def __init__(
        self,
        ops: FileOps,
        path: Path,
        fd: int,
        *,
        size: int,
        torn: bytes = b"",
        newline: bool = False,
        folders: Sequence[Path] = (),
        durable: bool = False,
        crc: int = 0,
        pieces: Sequence[Piece] | None = None,
        page_bytes: int = PAGE_BYTES,
    ) -> None:
        self.taken = 0
        self.covered: int | None = 0
        self._ops = ops
        self._write = ops.write
        self._path = path
        self._page_bytes = page_bytes
        self._fd = fd
        self._size = size
        self._pieces = None if pieces is None else list(pieces)
        self._cut_lines = sum(piece.lines for piece in self._pieces or ())  # where the last piece ends
        self._cut_size = sum(piece.size for piece in self._pieces or ())
        self._crc = crc  # of what was handed over, not of what is found there now: damage does not become truth
        self._torn = torn
        self._newline = newline
        self._ragged = bool(torn) or newline  # what stands behind _size is not ours to keep
        self._unsynced: list[bytes] = []
        self._synced = size  # where _unsynced begins
        self._inherited = not durable  # whether what stands before it may not be on the disk
        self._suspect = False
        self._beside: list[Path] = []
        self._suspects: set[Path] = set()
        self._folders = list(folders)
        self._guard = threading.Lock()
        self._turns = threading.Lock()  # two syncs at once would both count what they share as done
        self._syncing = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines, all or none; see Writer."""
        if not lines:
            return
        data = b"\n".join(lines) + b"\n"
        if data.count(b"\n") != len(lines) or b"" in lines:
            check_lines(lines)
        if self._closed:
            raise OSError(errno.EBADF, "the session's writer is closed", str(self._path))
        if self._ragged:
            self._even_out()
        try:
            written = self._write(self._fd, data)
            if written != len(data):
                write_all(self._ops, self._fd, data[written:])
            # In this order: whatever strikes in between, a line is written twice at worst, which recovery
            # sees, and never left out.
            self._unsynced += lines
            self._size += len(data)
            self._crc = crc32(data, self._crc)
            self.taken += len(lines)
            if self._size - self._cut_size >= self._page_bytes:
                self._cut()
        except BaseException:
            self._pieces = None
            self._ragged = True
            self._try_even_out()
            raise

    def reread(self, lines: Sequence[bytes], count: int) -> Sequence[Page[bytes]]:
        """Give back lines it has taken as pages of the log; see Rereading."""
        start = self._size - sum(map(len, lines)) - len(lines)
        old = lines[:count]
        if start < 0:
            return ()
        stop = start + sum(map(len, old)) + len(old)
        pieces = divided(self._ops, self._path, start, stop, self._page_bytes).pieces
        pages = pages_of(self._ops, self._path, start, pieces)
        return pages if Pages(pages) == old else ()

    def keep(self, data: bytes) -> None:
        """Keep a snapshot of what it has taken; see Snapshotting."""
        if self._closed:
            raise OSError(errno.EBADF, "the session's writer is closed", str(self._path))
        if self._ragged:
            raise StoreError(f"the log at {self._path} does not end with a whole line yet; append first")
        self._cut()
        if self._pieces is None:
            found = divided(self._ops, self._path, 0, self._size, self._page_bytes)
            if (found.end, found.crc) != (self._size, self._crc):
                raise StoreError(f"the log at {self._path} is not what was written there; open the session again")
            self._pieces = found.pieces
        write_snapshot(self._ops, self._path, Beginning(self.taken, self._size, self._crc, self._pieces), data)
        self.covered = self.taken

    def sync(self) -> None:
        """Put what was appended on the disk; see Writer."""
        with self._guard:
            if self._closed:
                raise OSError(errno.EBADF, "the session's writer is closed", str(self._path))
            self._syncing += 1
        try:
            with self._turns:
                self._sync()
        finally:
            with self._guard:
                self._syncing -= 1
                if self._closed and not self._syncing:
                    self._ops.close(self._fd)

    def close(self) -> None:
        """Release the log and its lock, as soon as no sync runs; idempotent."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            if not self._syncing:
                self._ops.close(self._fd)

    def sync_later(self, path: Path, folders: Sequence[Path]) -> None:
        """Have the next sync put a file of the session on the disk too, and the folders' entries."""
        self._beside.append(path)
        self._folders += [folder for folder in folders if folder not in self._folders]

    def _cut(self) -> None:
        """End a piece of the log here; what came in one piece and is too large for a page is counted later."""
        lines, size = self.taken - self._cut_lines, self._size - self._cut_size
        self._cut_lines, self._cut_size = self.taken, self._size
        if size > 2 * self._page_bytes:
            self._pieces = None
        elif size and self._pieces is not None:
            self._pieces.append(Piece(lines, size))

    def _sync(self) -> None:
        if not (self._unsynced or self._inherited or self._beside or self._folders):
            return  # all of it is on the disk
        lines = self._unsynced[:]  # appends go on meanwhile; they belong to the next sync
        size = sum(map(len, lines)) + len(lines)
        beside, folders = self._beside[:], self._folders[:]
        for path in beside:
            self._sync_file(path)
        if self._suspect:
            self._rewrite(lines)
        try:
            self._ops.fsync(self._fd)
        except OSError:
            # The kernel may have dropped the dirty pages and would call the next fsync a success:
            # only what is written again is sure to be written.
            self._suspect = True
            raise
        for folder in folders:
            self._ops.fsync_dir(folder)
        self._suspect = self._inherited = False
        self._synced += size
        del self._unsynced[: len(lines)]
        del self._beside[: len(beside)]
        del self._folders[: len(folders)]

    def _sync_file(self, path: Path) -> None:
        try:
            fd = self._ops.open(path, os.O_WRONLY)
        except FileNotFoundError:  # removed since, by its owner
            return
        try:
            if path in self._suspects:
                write_all(self._ops, fd, self._ops.read(path))
            self._ops.fsync(fd)
            self._suspects.discard(path)
        except OSError:
            self._suspects.add(path)  # as below
            raise
        finally:
            self._ops.close(fd)

    def _rewrite(self, lines: list[bytes]) -> None:
        fd = self._ops.open(self._path, os.O_WRONLY)
        try:
            if self._inherited:
                write_all(self._ops, fd, self._ops.read(self._path)[: self._synced])
            self._ops.seek(fd, self._synced)
            write_all(self._ops, fd, b"".join([line + b"\n" for line in lines]))
            self._ops.fsync(fd)
        finally:
            self._ops.close(fd)

    def _even_out(self) -> None:
        """Set a torn tail aside, cut the log to its whole lines, end the last one."""
        if self._torn:
            self._set_aside()
            self._torn = b""
        self._ops.truncate(self._fd, self._size)
        if self._newline:
            write_all(self._ops, self._fd, b"\n")
            self._newline = False
            self._size += 1
            self._crc = crc32(b"\n", self._crc)
            self._synced += 1
            self._inherited = True
        self._ragged = False

    def _try_even_out(self) -> None:
        try:
            self._even_out()
        except OSError:
            pass  # tried again before the next append; until then recovery sees a torn tail

    def _set_aside(self) -> None:
        fd = self._ops.open(self._path.with_suffix(".torn"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            write_all(self._ops, fd, self._torn + b"\n")
            self._ops.fsync(fd)
        finally:
            self._ops.close(fd)
        self._ops.fsync_dir(self._path.parent)
