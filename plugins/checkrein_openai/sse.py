"""Server-sent events from bytes, incrementally: any chunking, every line ending, bounded.

Pure: bytes in, events out. What an event's data means is decode.py's; connections are client.py's.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Event", "EventParser", "TooLong", "MAX_EVENT_BYTES"]

MAX_EVENT_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_ENDS = (b"\n", b"\r")


class TooLong(ValueError):
    """A line or an event is longer than the parser's bound."""


class Event(NamedTuple):
    """One event.

    Attributes:
        name: its `event` field, empty if it had none.
        data: its `data` lines, joined by newlines.
        whole: whether a blank line ended it; the last event of a cut stream is not whole.
    """

    name: str
    data: bytes
    whole: bool = True


class EventParser:
    """Turns a byte stream into events; events without data are dropped, as the standard says.

    Args:
        max_bytes: bound of one line and of one event's data, in bytes.
    """

    __slots__ = ("_after_cr", "_at_start", "_data", "_data_size", "_max", "_name", "_partial", "_partial_size")

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_bytes
        self._partial: list[bytes] = []  # pieces of a line whose end has not come; joined once
        self._partial_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._name = b""
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes, and return the events they complete.

        Raises:
            TooLong: a line or an event passes the bound.
        """
        if self._after_cr and chunk:
            # A CR at the end of the last chunk ended its line; an LF that follows belongs to it.
            self._after_cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        events: list[Event] = []
        for line in chunk.splitlines(keepends=True):
            if line.endswith(_ENDS):
                self._line(self._whole_line(line.rstrip(b"\r\n")), events)
            else:
                self._hold(line)
        self._after_cr = chunk.endswith(b"\r")
        return events

    def end(self) -> list[Event]:
        """Return what stands unfinished when the stream ends: at most one event, not `whole`."""
        events: list[Event] = []
        if self._partial:
            self._line(self._whole_line(b""), events)
        self._dispatch(events, whole=False)
        return events

    def _hold(self, piece: bytes) -> None:
        self._partial.append(piece)
        self._partial_size += len(piece)
        if self._partial_size > self._max:
            raise TooLong(f"expected lines of at most {self._max} bytes, got a longer one")

    def _whole_line(self, rest: bytes) -> bytes:
        if self._partial:
            self._hold(rest)
            rest = b"".join(self._partial)
            self._partial = []
            self._partial_size = 0
        if self._at_start:
            self._at_start = False
            rest = rest.removeprefix(_BOM)
        return rest

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            self._dispatch(events, whole=True)
            return
        field, _, value = line.partition(b":")
        if field == b"error":  # llama.cpp before late 2025: an event of this name in one line
            self._name, field = field, b"data"
        if field == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._data_size += len(value) + 1
            if self._data_size > self._max:
                raise TooLong(f"expected events of at most {self._max} bytes, got a longer one")
        elif field == b"event":
            self._name = value.removeprefix(b" ")
        # Comments (an empty field name), ids and retry times are nothing to us.

    def _dispatch(self, events: list[Event], *, whole: bool) -> None:
        if self._data:
            events.append(Event(self._name.decode("utf-8", "replace"), b"\n".join(self._data), whole))
            self._data = []
            self._data_size = 0
        self._name = b""
