"""Long logs in pieces: where the pages of a file begin is found once, and each is read again when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from checkrein.errors import StoreError
from checkrein.log import Page

from .files import FileOps

__all__ = ["PAGE_BYTES", "Divided", "Piece", "crc_of", "divided", "pages_of"]

PAGE_BYTES = 262_144

_BLOCK = 1_048_576


class Piece(NamedTuple):
    """So many whole lines of a log, as they follow each other in it.

    Attributes:
        lines: how many, at least one.
        size: their bytes, with the last newline.
    """

    lines: int
    size: int


class Divided(NamedTuple):
    """A part of a log in pieces.

    Attributes:
        pieces: of whole lines.
        end: where the last of them ends.
        rest: the bytes behind it.
        crc: the CRC-32 of everything before `end`.
    """

    pieces: list[Piece]
    end: int
    rest: bytes
    crc: int


def pages_of(ops: FileOps, path: Path, start: int, pieces: Iterable[Piece]) -> list[Page[bytes]]:
    """The pages of a log whose pieces are known.

    Args:
        ops: the file operations.
        path: the log.
        start: where the first of them begins.
        pieces: one for each page.
    """
    pages: list[Page[bytes]] = []
    for lines, size in pieces:
        pages.append(Page(lines, partial(_read, ops, path, start, size, lines)))
        start += size
    return pages


def crc_of(ops: FileOps, path: Path, size: int) -> int | None:
    """The CRC-32 of a log's first bytes; None if it is shorter.

    Raises:
        OSError: it cannot be read.
    """
    crc = place = 0
    while place < size and (block := ops.read(path, place, min(_BLOCK, size - place))):
        place += len(block)
        crc = crc32(block, crc)
    return crc if place == size else None


def divided(
    ops: FileOps, path: Path, start: int, stop: int | None = None, page_bytes: int = PAGE_BYTES, crc: int = 0
) -> Divided:
    """Divide a part of a log into pieces of whole lines, of which each may be a page.

    Args:
        ops: the file operations.
        path: the log.
        start: where the part begins, at the beginning of a line.
        stop: where it ends; None for the end of the file.
        page_bytes: how large a piece is, but for its last line.
        crc: the CRC-32 of what stands before the part.

    Raises:
        OSError: it cannot be read.
    """
    pieces: list[Piece] = []
    rest = b""
    place = start
    while stop is None or place < stop:
        block = ops.read(path, place, page_bytes if stop is None else min(page_bytes, stop - place))
        if not block:
            break
        place += len(block)
        data = rest + block if rest else block
        end = data.rfind(b"\n") + 1
        if end:
            crc = crc32(memoryview(data)[:end], crc)
            pieces.append(Piece(data.count(b"\n", 0, end), end))
        rest = data[end:]
    return Divided(pieces, place - len(rest), rest, crc)


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
