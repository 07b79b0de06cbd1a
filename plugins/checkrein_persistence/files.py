"""The one door to the file system: every operation of the JSON Lines store goes through a FileOps.

A test puts its own in its place, to record the operations or to let one fail. Nothing here knows
of sessions. POSIX and Windows differ only here.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from stat import S_ISREG

__all__ = ["NO_FILE", "FileOps", "forget", "replace", "unique", "write_all", "write_new"]

_NO_LINK = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
NO_FILE = "expected a file, got something else; a pipe or a device might be read for ever"
_LOCK_BYTE = 2**31 - 2  # Windows locks a range of bytes; this one lies behind any that are read


def _at_once(path: str, flags: int) -> int:
    fd = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # to open a pipe would wait for who writes to it
    if S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(NO_FILE)


class FileOps:
    """File operations as the operating system has them; each raises OSError."""

    def mkdir(self, path: Path) -> None:
        """Make a private folder and its parents; one that is there is left as it is."""
        if not path.is_dir():
            self.mkdir(path.parent)
            path.mkdir(0o700, exist_ok=True)

    def open(self, path: Path, flags: int) -> int:
        """Open a file, created private if it is created."""
        return os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o600)

    def close(self, fd: int) -> None:
        """Close a file."""
        os.close(fd)

    def read(self, path: Path, offset: int = 0, size: int = -1) -> bytes:
        """The file's bytes from `offset` on, `size` of them or fewer if it ends before; all of them if not given."""
        with open(path, "rb", opener=_at_once) as file:  # noqa: PTH123 - Path.open takes no opener
            if offset:
                file.seek(offset)
            if size >= os.fstat(file.fileno()).st_size - offset:
                size = -1  # to its end: no buffer larger than the file is made for it
            return file.read(size)

    def write(self, fd: int, data: bytes) -> int:
        """Write at the file's place, or at its end if it was opened so; returns how much was written."""
        return os.write(fd, data)

    def seek(self, fd: int, offset: int) -> None:
        """Set the file's place."""
        os.lseek(fd, offset, os.SEEK_SET)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        """Wait until the file is on the disk."""
        os.fsync(fd)

    def fsync_dir(self, path: Path) -> None:
        """Wait until the folder's entries are on the disk; nothing where a folder cannot be opened (Windows)."""
        if os.name == "nt":
            return
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def link(self, source: Path, target: Path) -> bool:
        """Give the file a second name that must be new; False where the file system has no links."""
        try:
            os.link(source, target)
        except FileExistsError:
            raise
        except OSError as exc:
            if exc.errno in _NO_LINK:
                return False
            raise
        return True

    def rename(self, source: Path, target: Path) -> None:
        """Give the file another name, replacing what has it."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a name; one that is gone is no error."""
        path.unlink(missing_ok=True)

    def lock(self, fd: int) -> bool:
        """Lock the open file against every other opening of it, until it is closed or the process dies.

        Returns:
            False if somebody else has it.
        """
        try:
            import fcntl
        except ImportError:
            return _lock_windows(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _lock_windows(fd: int) -> bool:
    import msvcrt

    place = os.lseek(fd, 0, os.SEEK_CUR)
    os.lseek(fd, _LOCK_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return False
    finally:
        os.lseek(fd, place, os.SEEK_SET)
    return True


def write_all(ops: FileOps, fd: int, data: bytes) -> None:
    """Write all of the data, however little each write takes.

    Raises:
        OSError: a part may have been written.
    """
    while data:
        written = ops.write(fd, data)
        if written <= 0:
            raise OSError(errno.EIO, "write() took nothing")
        data = data[written:]


def write_new(ops: FileOps, path: Path, data: bytes, *, durable: bool) -> None:
    """Write a file that is not there yet; nothing is left of it where that fails.

    Raises:
        OSError: it could not be written.
    """
    fd = ops.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(ops, fd, data)
        if durable:
            ops.fsync(fd)
    except BaseException:
        ops.close(fd)
        forget(ops, path)
        raise
    ops.close(fd)


def replace(ops: FileOps, path: Path, data: bytes) -> None:
    """Put a small file in its place in one piece; the next sync of a log does not wait for it.

    Raises:
        OSError: the file before it is there still, if there was one.
    """
    temporary = path.with_name(f".{path.name.removeprefix('.')}.{unique()}")
    write_new(ops, temporary, data, durable=False)
    try:
        ops.rename(temporary, path)
    except BaseException:
        forget(ops, temporary)
        raise


def forget(ops: FileOps, path: Path) -> None:
    """Remove a file that nobody reads, if it can be removed."""
    try:
        ops.unlink(path)
    except OSError:
        pass  # a leftover without meaning: nothing reads a name that begins with a dot


def unique() -> str:
    """A part of a name that nobody else has."""
    return f"{os.getpid()}.{os.urandom(6).hex()}"
