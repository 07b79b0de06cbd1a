"""How a log is read: in one piece if it is short, in pages if it is long, or on from where its snapshot ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from checkrein.log import Pages
from checkrein.recovery import parse_log, split_tail
from checkrein.store import Snapshot, StoredLog

from .files import FileOps
from .pages import Divided, Piece, crc_of, divided, pages_of
from .snapshots import read_snapshot

__all__ = ["ReadLog", "read_log", "read_on"]


class ReadLog(NamedTuple):
    """A log as it stands.

    Attributes:
        stored: what a store owes of it.
        size: where its whole lines end.
        newline: whether the last of them lacks its newline.
        crc: the CRC-32 of everything before `size`.
        pieces: what it consists of up to `size`; None if nobody counted.
    """

    stored: StoredLog
    size: int
    newline: bool
    crc: int
    pieces: list[Piece] | None


def read_log(ops: FileOps, log: Path, long_bytes: int, page_bytes: int) -> ReadLog:
    """Read a log as if it had no snapshot.

    Args:
        ops: the file operations.
        log: where it is.
        long_bytes: one of more bytes is divided into pages.
        page_bytes: how large they are.

    Raises:
        OSError: it cannot be read.
    """
    data = ops.read(log, 0, long_bytes + 1)
    if len(data) > long_bytes:
        return _in_pages(ops, log, divided(ops, log, 0, None, page_bytes))
    stored = parse_log(data)
    size = len(data) - len(stored.torn)
    newline = size > 0 and data[size - 1 : size] != b"\n"
    return ReadLog(stored, size, newline, crc32(memoryview(data)[:size]), None)


def read_on(ops: FileOps, log: Path, page_bytes: int) -> ReadLog | None:
    """Read a log in pages, of which the first ones are those of its snapshot: each byte of them is looked at.

    Args:
        ops: the file operations.
        log: where it is.
        page_bytes: how large the pages are.

    Returns:
        The log; None if it has no snapshot, or does not begin with the lines the snapshot was made of.

    Raises:
        OSError: it cannot be read.
    """
    found = read_snapshot(ops, log)
    if found is None:
        return None
    beginning, data = found
    if crc_of(ops, log, beginning.size) != beginning.crc:
        return None
    then = divided(ops, log, beginning.size, None, page_bytes, beginning.crc)
    return _in_pages(ops, log, then, beginning.pieces, Snapshot(beginning.lines, data))


def _in_pages(
    ops: FileOps, log: Path, then: Divided, before: Sequence[Piece] = (), snapshot: Snapshot | None = None
) -> ReadLog:
    last, torn = split_tail(then.rest)
    pieces = [*before, *then.pieces]
    lines = Pages(pages_of(ops, log, 0, pieces), [last] if last else [])
    size, crc = then.end + len(last), crc32(last, then.crc)
    return ReadLog(StoredLog(lines, torn, snapshot), size, bool(last), crc, None if last else pieces)
