"""Long logs in pieces: where the pages of a file begin is found once, and each is read again when it is asked for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from checkrein.errors import StoreError
from checkrein.log import Page

from .files import FileOps

__all__ = ["PAGE_BYTES", "pages_of"]

PAGE_BYTES = 262_144


def pages_of(
    ops: FileOps, path: Path, start: int, stop: int | None = None, page_bytes: int = PAGE_BYTES
) -> tuple[list[Page[bytes]], int, bytes]:
    """Divide a part of a log into pages of whole lines.

    Args:
        ops: the file operations.
        path: the log.
        start: where the part begins, at the beginning of a line.
        stop: where it ends; None for the end of the file.
        page_bytes: how large a page is, but for its last line.

    Returns:
        The pages, where the last of them ends, and the bytes behind it.

    Raises:
        OSError: it cannot be read.
    """
    path = path.absolute()  # they are read later, perhaps from another working directory
    pages: list[Page[bytes]] = []
    rest = b""
    place = start
    while block := ops.read(path, place, page_bytes if stop is None else min(page_bytes, stop - place)):
        place += len(block)
        data = rest + block if rest else block
        end = data.rfind(b"\n") + 1
        if end:
            count = data.count(b"\n", 0, end)
            pages.append(Page(count, partial(_read, ops, path, place - len(data), end, count)))
        rest = data[end:]
    return pages, place - len(rest), rest


def _read(ops: FileOps, path: Path, offset: int, size: int, count: int) -> list[bytes]:
    """Read a page's lines.

    Raises:
        StoreError: they are not there any more.
    """
    try:
        data = ops.read(path, offset, size)
    except OSError as exc:
        raise StoreError(f"older events cannot be read back from {path}: {exc}") from exc
    lines = data.split(b"\n")
    if lines.pop() or len(data) != size or len(lines) != count:
        raise StoreError(
            f"expected {count} lines in {size} bytes at byte {offset} of {path}, got {len(lines)} in {len(data)}: "
            "the log was changed while it was open; open the session again"
        )
    return lines
