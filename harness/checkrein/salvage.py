"""From bytes to sealed lines, and to what damaged ones still hold (R1). Which of them count is recovery.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

from .codec import SUFFIX_BYTES, DamagedLine, decode, decode_all
from .store import StoredLog

if TYPE_CHECKING:
    from .events import AnyEvent

__all__ = ["Damage", "judged", "parse_log", "salvage", "split_tail"]

_SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"\}')
_START = re.compile(rb'\{"type":"')
_SEARCH = 64  # salvage may read a damaged stretch this many times, so that hostile bytes cost linear time

Damage: TypeAlias = list[tuple[int, int]]
"""Stretches of bytes that are no event: the seq before each in the file, and its size."""


def parse_log(data: bytes) -> StoredLog:
    """Divide a log's bytes into lines and a torn tail, as a store owes them."""
    lines = data.split(b"\n")
    whole, torn = split_tail(lines.pop())
    if whole:
        lines.append(whole)
    return StoredLog(lines, torn)


def salvage(data: bytes) -> Iterator[bytes]:
    """Yield the sealed lines within damaged bytes, in order.

    A line begins with `{"type":"` and its seal says where it ends, so two glued together (a lost
    newline) or one behind a fragment (an append after a crash) are found whole.
    """
    view = memoryview(data)
    budget = _SEARCH * len(data)
    begin = 0
    for seal in _SEAL.finditer(data):
        wanted = int(seal[1], 16)
        for start in _START.finditer(data, begin, seal.start()):
            budget -= seal.start() - start.start()
            if crc32(view[start.start() : seal.start()]) == wanted:
                yield data[start.start() : seal.end()]
                begin = seal.end()
                break
            if budget < 0:
                return


def split_tail(tail: bytes) -> tuple[bytes, bytes]:
    """Divide the bytes behind a log's last newline into what is still whole and what is torn.

    Stores call it when they open a log: a last event that lacks only its newline is not lost.

    Args:
        tail: the bytes behind the last newline.

    Returns:
        The part up to the last whole event, which becomes a line, and the rest, which is set aside.
    """
    end = 0
    for line in salvage(tail):
        end = tail.index(line, end) + len(line)
    return tail[:end], tail[end:]


def judged(chunk: Sequence[bytes], last: int, damage: Damage) -> tuple[list[AnyEvent], Sequence[bytes]]:
    """The events of some lines in file order, with their lines: `chunk` itself if nothing is wrong with it."""
    try:
        return decode_all(chunk), chunk
    except DamagedLine:
        pass
    events: list[AnyEvent] = []
    lines: list[bytes] = []
    for line in chunk:
        end = 0
        for part in (line,) if _is_sealed(line) else salvage(line):
            try:
                event = decode(part)
            except DamagedLine:
                continue
            begin = line.index(part, end)
            if begin > end:
                damage.append((last, begin - end))
            end = begin + len(part)
            last = event.seq
            events.append(event)
            lines.append(part)
        if end < len(line):
            damage.append((last, len(line) - end))
    return events, lines


def _is_sealed(line: bytes) -> bool:
    head = line[:-SUFFIX_BYTES]
    return line[-SUFFIX_BYTES:] == b',"crc":"%08x"}' % crc32(head)
