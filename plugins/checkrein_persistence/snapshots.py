"""The file of a session's snapshot: what was kept, and which bytes of the log it stands for (see checkrein.store).

Written under another name and renamed, not synced: a crash may leave any of it. Both checksums have to fit when it
is read, its own and that of the log's beginning; else it is as if there were none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from .files import FileOps, replace
from .pages import Piece

__all__ = ["Beginning", "read_snapshot", "write_snapshot"]

_NAME = "snapshot"
_HEAD = Struct("<8sQQII")
_PIECE = Struct("<QQ")
_CRC = Struct("<I")
_MAGIC = b"snapsho2"  # one of another shape is none


class Beginning(NamedTuple):
    """Which part of a log a snapshot stands for.

    Attributes:
        lines: how many lines.
        size: how many bytes, with the last newline.
        crc: their CRC-32.
        pieces: where its pages begin: all of it, none of them empty. Counting lines costs more than the CRC.
    """

    lines: int
    size: int
    crc: int
    pieces: Sequence[Piece]


def write_snapshot(ops: FileOps, log: Path, beginning: Beginning, data: bytes) -> None:
    """Put a snapshot in the place of the one before.

    Args:
        ops: the file operations.
        log: the session's log.
        beginning: what the snapshot stands for.
        data: what is kept.

    Raises:
        OSError: the one before is there still, if there was one.
    """
    lines, size, crc, pieces = beginning
    head = _HEAD.pack(_MAGIC, lines, size, crc, len(pieces)) + b"".join([_PIECE.pack(*piece) for piece in pieces])
    replace(ops, log.with_name(_NAME), head + data + _CRC.pack(crc32(data, crc32(head))))


def read_snapshot(ops: FileOps, log: Path) -> tuple[Beginning, memoryview] | None:
    """Return what a session's snapshot stands for, and what was kept; None if it has none that is whole."""
    try:
        content = ops.read(log.with_name(_NAME))
    except OSError:
        return None
    whole, end = memoryview(content), len(content) - _CRC.size
    if end < _HEAD.size or _CRC.unpack_from(content, end) != (crc32(whole[:end]),):
        return None
    magic, lines, size, crc, count = _HEAD.unpack_from(content)
    begin = _HEAD.size + count * _PIECE.size
    if magic != _MAGIC or begin > end:
        return None
    pieces = [Piece(*members) for members in _PIECE.iter_unpack(whole[_HEAD.size : begin])]
    fits = (sum(piece.lines for piece in pieces), sum(piece.size for piece in pieces)) == (lines, size)
    return (Beginning(lines, size, crc, pieces), whole[begin:end]) if fits else None
