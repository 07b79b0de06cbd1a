"""The file of a session's snapshot: what was kept, and which bytes of the log it stands for (see checkrein.store).

Written under another name and renamed, not synced: a crash may leave any of it. Both checksums have to fit when it
is read, its own and that of the log's beginning; else it is as if there were none.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from .files import FileOps, replace

__all__ = ["Beginning", "read_snapshot", "write_snapshot"]

_NAME = "snapshot"
_HEAD = Struct("<8sQQI")
_CRC = Struct("<I")
_MAGIC = b"snapshot"


class Beginning(NamedTuple):
    """Which part of a log a snapshot stands for.

    Attributes:
        lines: how many lines.
        size: how many bytes, with the last newline.
        crc: their CRC-32.
    """

    lines: int
    size: int
    crc: int


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
    content = _HEAD.pack(_MAGIC, *beginning) + data
    replace(ops, log.with_name(_NAME), content + _CRC.pack(crc32(content)))


def read_snapshot(ops: FileOps, log: Path) -> tuple[Beginning, bytes] | None:
    """Return what a session's snapshot stands for, and what was kept; None if it has none that is whole."""
    try:
        content = ops.read(log.with_name(_NAME))
    except OSError:
        return None
    end = len(content) - _CRC.size
    if end < _HEAD.size or _CRC.unpack_from(content, end) != (crc32(memoryview(content)[:end]),):
        return None
    magic, lines, size, crc = _HEAD.unpack_from(content)
    return (Beginning(lines, size, crc), content[_HEAD.size : end]) if magic == _MAGIC else None
