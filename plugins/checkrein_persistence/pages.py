"""Long logs in pieces: where the pages of a file begin is found once, and each is read again when it is asked for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from checkrein.errors import StoreError
from checkrein.log import Page

from .files import FileOps

__all__ = ["PAGE_BYTES", "Divided", "pages_of"]

PAGE_BYTES = 262_144


class Divided(NamedTuple):
    """A part of a log in pages.

    Attributes:
        pages: of whole lines.
        end: where the last of them ends.
        rest: the bytes behind it.
        crc: the CRC-32 of everything before `end`.
    """

    pages: list[Page[bytes]]
    end: int
    rest: bytes
    crc: int


def pages_of(
    ops: FileOps, path: Path, start: int, stop: int | None = None, page_bytes: int = PAGE_BYTES, crc: int = 0
) -> Divided:
    """Divide a part of a log into pages of whole lines.

    Args:
        ops: the file operations.
        path: the log.
        start: where the part begins, at the beginning of a line.
        stop: where it ends; None for the end of the file.
        page_bytes: how large a page is, but for its last line.
        crc: the CRC-32 of what stands before the part.

    Raises:
        OSError: it cannot be read.
    """
    pages: list[Page[bytes]] = []
    rest = b""
    place = start
    while block := ops.read(path, place, page_bytes if stop is None else min(page_bytes, stop - place)):
        place += len(block)
        data = rest + block if rest else block
        end = data.rfind(b"\n") + 1
        if end:
            crc = crc32(memoryview(data)[:end], crc)
            count = data.count(b"\n", 0, end)
            pages.append(Page(count, partial(_read, ops, path, place - len(data), end, count)))
        rest = data[end:]
    return Divided(pages, place - len(rest), rest, crc)


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
