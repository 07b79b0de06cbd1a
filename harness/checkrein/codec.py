"""The one codec of the log: events to sealed lines and back (L5).

A line is the event's JSON whose last member is `crc`, the CRC-32 of all bytes before it: a fixed
18-byte suffix `,"crc":"xxxxxxxx"}`. Whatever was sealed loads again, in any later version: what
does not fit its type is kept as a FreeEvent.
"""

from __future__ import annotations

import math
import sys
from array import array
from binascii import hexlify
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, cast
from zlib import crc32

import msgspec

from .errors import NotPlainJSON, RefusedAtAppend
from .events import AnyEvent, FreeEvent, KnownEvent

__all__ = [
    "encode",
    "fast_encode",
    "seal",
    "seal_from",
    "unseal",
    "decode",
    "decode_all",
    "decode_body",
    "plain",
    "copied",
    "DamagedLine",
    "SUFFIX_BYTES",
]

SUFFIX_BYTES = 18
MAX_DEPTH = 100

_DIGITS = 8  # of the CRC, and where they begin in the suffix
_head = itemgetter(slice(None, -SUFFIX_BYTES))
_suffix = itemgetter(slice(-SUFFIX_BYTES, None))

_encoder = msgspec.json.Encoder()


@cache
def _known() -> msgspec.json.Decoder[KnownEvent]:
    # Made on first use: a program that only writes need not pay for it at import.
    return msgspec.json.Decoder(KnownEvent)


_encode = fast_encode = _encoder.encode


class DamagedLine(ValueError):
    """A line that is not what was written: no seal, a wrong CRC, or no event."""


def encode(event: AnyEvent) -> bytes:
    """Return the event's JSON, not yet sealed.

    Raises:
        RefusedAtAppend: it holds text that UTF-8 cannot carry, or nests too deeply.
    """
    try:
        if isinstance(event, FreeEvent):
            return _encode({"type": event.type, "seq": event.seq, "time": event.time, **event.fields})
        return _encode(event)
    except UnicodeEncodeError:
        raise RefusedAtAppend("the event holds a lone surrogate; clean its text first (checkrein.text.clean)") from None
    except (RecursionError, TypeError, OverflowError) as exc:
        raise RefusedAtAppend(f"the event cannot be encoded: {exc}") from None


def seal(body: bytes) -> bytes:
    """Return the body as a log line: its closing brace replaced by the CRC member; a sealed line as it is.

    No body ends like a seal: `crc` is nobody's member, and within a string its quotes are escaped.
    """
    if _ends_sealed(body):
        return body
    head = body[:-1]
    return head + b',"crc":"%08x"}' % crc32(head)


def seal_from(lines: list[bytes], place: int) -> None:
    """Seal the lines from `place` on where they are; if some of them are sealed already, they are the first ones."""
    end = len(lines)
    while place < end and _ends_sealed(lines[place]):
        place += 1
    for at in range(place, end):
        head = lines[at][:-1]
        lines[at] = head + b',"crc":"%08x"}' % crc32(head)


def _ends_sealed(body: bytes) -> bool:
    return body[-SUFFIX_BYTES:-10] == b',"crc":"' and body.endswith(b'"}')


def unseal(line: bytes) -> bytes:
    """Check a line's CRC and return its body.

    Raises:
        DamagedLine: there is no seal, or it does not match.
    """
    head, suffix = line[:-SUFFIX_BYTES], line[-SUFFIX_BYTES:]
    if suffix != b',"crc":"%08x"}' % crc32(head):
        raise DamagedLine("the line's checksum does not match")
    return head + b"}"


def decode(line: bytes) -> AnyEvent:
    """Check and decode a sealed line.

    Raises:
        DamagedLine: the seal does not match, or it is no event (no object with type, seq and time).
    """
    head = line[:-SUFFIX_BYTES]
    if line[-SUFFIX_BYTES:] != b',"crc":"%08x"}' % crc32(head):
        raise DamagedLine("the line's checksum does not match")
    return decode_body(line)


def decode_all(lines: Sequence[bytes]) -> list[AnyEvent]:
    """Check and decode many sealed lines, several times faster than one by one.

    Args:
        lines: some hundred lines; more cost memory for nothing.

    Raises:
        DamagedLine: one of them is damaged; `decode` tells which.
    """
    if b"".join(map(_suffix, lines)) != _suffixes(array("I", map(crc32, map(_head, lines)))):
        raise DamagedLine("a line's checksum does not match")
    try:
        return cast("list[AnyEvent]", _known().decode_lines(b"\n".join(lines)))
    except (msgspec.DecodeError, UnicodeError, RecursionError):  # one event we do not know is enough
        return [decode_body(line) for line in lines]


def _suffixes(crcs: array[int]) -> bytearray:
    """The suffixes of many lines, one behind the other: the digits of all made at once and set in their places."""
    if sys.byteorder == "little":
        crcs.byteswap()
    digits = hexlify(crcs)
    suffixes = bytearray(b',"crc":"00000000"}' * len(crcs))
    for place in range(_DIGITS):
        suffixes[_DIGITS + place :: SUFFIX_BYTES] = digits[place::_DIGITS]
    return suffixes


def decode_body(body: bytes) -> AnyEvent:
    """Decode an event's JSON, sealed or not, without looking at the seal.

    Raises:
        DamagedLine: it is no event.
    """
    try:
        event = _known().decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _free(body)
    if event.seq < 0:
        raise DamagedLine("the line is no event: it lacks seq")
    return event


def _free(body: bytes) -> FreeEvent:
    from .text import decode_json

    try:
        fields = decode_json(body)
    except ValueError as exc:
        raise DamagedLine(f"the line is not JSON: {exc}") from None
    if not isinstance(fields, dict):
        raise DamagedLine("the line is not an object")
    kind, seq, time = fields.pop("type", None), fields.pop("seq", None), fields.pop("time", None)
    if not (isinstance(kind, str) and type(seq) is int and type(time) is int):
        raise DamagedLine("the line is no event: it lacks type, seq or time")
    fields.pop("crc", None)
    return FreeEvent(kind, seq, time, fields)


def plain(value: Any, path: str = "$", depth: int = MAX_DEPTH, text: Callable[[str], str] | None = None) -> Any:
    """Return value if it is plain JSON (L2), copied so that its owner cannot change it later.

    Args:
        value: anything.
        path: where it stands, for the error.
        depth: how deep it may nest.
        text: what is made of each string, keys included; without it a lone surrogate is refused.

    Raises:
        NotPlainJSON: with the path of the first thing that is not.
    """
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is str:
        if text is not None:
            return text(value)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise NotPlainJSON(path, "a str with a lone surrogate") from None
        return value
    if kind is float:
        if not math.isfinite(value):
            raise NotPlainJSON(path, str(value))
        return value
    if depth <= 0:
        raise NotPlainJSON(path, "deeper nesting than 100")
    if kind is list or kind is tuple:
        return [plain(item, f"{path}[{i}]", depth - 1, text) for i, item in enumerate(value)]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise NotPlainJSON(path, f"the key {key!r} of type {type(key).__name__}")
        return {plain(key, path, 1, text): plain(item, f"{path}.{key}", depth - 1, text) for key, item in value.items()}
    raise NotPlainJSON(path, kind.__name__)


def copied(value: Any) -> Any:
    """Return a copy of plain JSON, for somebody who may change it; nothing is checked."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if type(value) is list else value
