"""The wall around the workspace: which paths lead into it, and opening them so that they still do when it counts.

A path is resolved first, links included, and compared part by part with the resolved workspace; then it is opened
from the workspace's own descriptor downwards, one part at a time, following no link. Whoever swaps a folder for a
link in between gets an error instead of a file outside. Hard links cannot be told from files: they are inside.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import BinaryIO, Literal

from msgspec import Struct

from checkrein.errors import ToolError

__all__ = ["Entry", "Kind", "Workspace", "shown"]

MAX_PATH_CHARS = 4_096
Kind = Literal["file", "folder", "link", "special"]
Parts = tuple[str, ...]

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# A pipe or terminal must not hold us up in the moment before we see what it is.
_LEAF = _READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_FOLDER = _READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)


class Entry(Struct, frozen=True):
    """What a folder holds under one name; `size` is in bytes, 0 for what is no file."""

    parts: Parts
    kind: Kind
    size: int = 0
    outside: bool = False

    @property
    def path(self) -> str:
        """The path from the workspace, with `/`."""
        return "/".join(self.parts)


class Workspace:
    """A folder nothing leads out of.

    Args:
        root: the folder; it may itself be a link.
        hidden: names that are treated as if they were not there, whatever their case.
    """

    def __init__(self, root: Path, hidden: Iterable[str] = ()) -> None:
        self.root = Path(os.path.realpath(root))
        self._hidden = {_bare(name) for name in hidden}

    def locate(self, path: str) -> Parts:
        """Return the resolved path of something that exists, as parts below the workspace; empty for itself.

        Args:
            path: relative to the workspace, or absolute and inside it.

        Raises:
            ToolError: it leads outside (OUTSIDE_WORKSPACE), is hidden (HIDDEN), is not there (NOT_FOUND), or is no
                path at all (BAD_PATH).
        """
        self._check(path)
        try:
            real = Path(os.path.realpath(self.root / path))
            if not real.is_relative_to(self.root):
                raise ToolError(
                    f"{shown(path)} leads outside of the workspace, and only what is inside can be seen;"
                    " give a path relative to the workspace",
                    code="OUTSIDE_WORKSPACE",
                )
            parts = real.relative_to(self.root).parts
            if any(self.hides(part) for part in parts):
                raise ToolError(f"{shown(path)} is hidden here by the configuration", code="HIDDEN")
            real.lstat()
        except (OSError, ValueError, RuntimeError) as exc:
            raise refusal(path, exc) from None
        return parts

    def _check(self, path: str) -> None:
        problem = ""
        if "\0" in path:
            problem = "it holds a NUL"
        elif len(path) > MAX_PATH_CHARS:
            problem = f"it is longer than {MAX_PATH_CHARS} characters"
        else:
            try:
                os.fsencode(path)
            except UnicodeEncodeError:
                problem = "it cannot be encoded"
        if sys.platform == "win32" and not problem:
            # Network paths are asked for over the wire, streams and devices are no files: not even looked at.
            windows = PureWindowsPath(path)
            rest = path[len(windows.drive) :]
            if windows.drive.startswith(("\\", "//")) or ":" in rest or windows.is_reserved():
                problem = "it names a network share, a stream or a device"
        if problem:
            raise ToolError(f"{shown(path[:200])} is no path that can be used: {problem}", code="BAD_PATH")

    def hides(self, name: str) -> bool:
        """Whether a name is one of the hidden ones, also as another file system would spell it."""
        bare = _bare(name)
        return bare in self._hidden or (bare == "git~1" and ".git" in self._hidden)

    @contextmanager
    def open(self, parts: Parts) -> Iterator[BinaryIO]:
        """Open a regular file for reading; the parts are those `locate` or `scan` returned.

        Raises:
            ToolError: it is a folder (IS_A_FOLDER), neither file nor folder (NOT_A_FILE), or cannot be opened.
        """
        path = "/".join(parts) or "."
        try:
            descriptor = self._descend(parts, _LEAF)
        except OSError as exc:
            raise refusal(path, exc) from None
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                raise ToolError(f"{shown(path)} is a folder; list it instead", code="IS_A_FOLDER")
            if not stat.S_ISREG(mode):
                raise ToolError(f"{shown(path)} is neither a file nor a folder", code="NOT_A_FILE")
            file = os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise
        try:
            with file:
                yield file
        except OSError as exc:
            raise refusal(path, exc) from None

    def scan(self, parts: Parts, limit: int) -> tuple[list[Entry], bool]:
        """Return what a folder holds, sorted by name, hidden names left out.

        Args:
            parts: from `locate` or a former `scan`.
            limit: how many names to look at, at most.

        Returns:
            The entries, and whether there are more.

        Raises:
            ToolError: it is no folder (NOT_A_FOLDER), or cannot be opened.
        """
        path = "/".join(parts) or "."
        try:
            descriptor = self._descend(parts, _FOLDER) if _BY_DESCRIPTOR else None
            try:
                folder = self.root.joinpath(*parts) if descriptor is None else descriptor
                return self._entries(folder, parts, limit)
            finally:
                if descriptor is not None:
                    os.close(descriptor)
        except OSError as exc:
            raise refusal(path, exc) from None

    def _entries(self, folder: int | Path, parts: Parts, limit: int) -> tuple[list[Entry], bool]:
        found: list[Entry] = []
        seen, more = 0, False
        with os.scandir(folder) as names:
            for name in names:
                if seen >= limit:
                    more = True
                    break
                seen += 1
                if self.hides(name.name):
                    continue
                try:
                    status = name.stat(follow_symlinks=False)
                except OSError:
                    continue  # gone between the two looks
                found.append(self._entry((*parts, name.name), status))
        found.sort(key=lambda entry: entry.parts)
        return found, more

    def _entry(self, parts: Parts, status: os.stat_result) -> Entry:
        if stat.S_ISREG(status.st_mode):
            return Entry(parts, "file", status.st_size)
        if stat.S_ISDIR(status.st_mode):
            return Entry(parts, "folder")
        if stat.S_ISLNK(status.st_mode):
            real = Path(os.path.realpath(self.root.joinpath(*parts)))
            return Entry(parts, "link", outside=not real.is_relative_to(self.root))
        return Entry(parts, "special")

    def _descend(self, parts: Parts, flags: int) -> int:
        """Open what the parts name, from the root down, following no link on the way."""
        if not _BY_DESCRIPTOR:
            return self._open_checked(parts, flags)
        descriptor = os.open(self.root, _READ | getattr(os, "O_DIRECTORY", 0))
        for i, part in enumerate(parts):
            try:
                below = os.open(part, flags if i == len(parts) - 1 else _FOLDER, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor

    def _open_checked(self, parts: Parts, flags: int) -> int:
        """Where folders have no descriptors (Windows): open, then see that the path still names what was opened."""
        path = self.root.joinpath(*parts)
        descriptor = os.open(path, flags)
        real = Path(os.path.realpath(path))
        same = os.path.samestat(os.fstat(descriptor), path.lstat())
        if real.is_relative_to(self.root) and same:
            return descriptor
        os.close(descriptor)
        raise OSError(errno.ELOOP, "it changed while it was opened")


def refusal(path: str, exc: Exception) -> ToolError:
    """An error of the operating system, in words for a model."""
    words = {
        errno.ENOENT: ("NOT_FOUND", "is not there; list_files shows what is"),
        errno.ENOTDIR: ("NOT_A_FOLDER", "is not a folder, or goes through something that is none"),
        errno.EACCES: ("NO_ACCESS", "may not be read by this program"),
        errno.EPERM: ("NO_ACCESS", "may not be read by this program"),
        errno.ELOOP: ("OUTSIDE_WORKSPACE", "goes through a link that was not there a moment ago, or in a circle"),
        errno.ENAMETOOLONG: ("BAD_PATH", "has a part that is too long"),
        errno.ENXIO: ("NOT_A_FILE", "is neither a file nor a folder"),
        errno.EISDIR: ("IS_A_FOLDER", "is a folder; list it instead"),
    }
    number = exc.errno if isinstance(exc, OSError) else None
    code, text = words.get(number or 0, ("NO_ACCESS", f"cannot be read: {exc}"))
    return ToolError(f"{shown(path[:200])} {text}", code=code)


def shown(path: str) -> str:
    """Return a path as it can be printed on one line; escaped and quoted if it holds anything odd."""
    if path.isprintable() and path and path == path.strip() and '"' not in path and "\\" not in path:
        return path
    return '"' + "".join(_escaped(char) for char in path) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    return char.encode("unicode_escape").decode() if not 0xD800 <= ord(char) <= 0xDFFF else f"\\u{ord(char):04x}"


def _bare(name: str) -> str:
    """A name as the most lenient file system compares it: no case, no invisible characters, no trailing dots."""
    plain = unicodedata.normalize("NFKC", name)
    return "".join(char for char in plain if unicodedata.category(char) != "Cf").casefold().rstrip(". ")
