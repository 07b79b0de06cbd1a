"""A file as rows of JSON with their line numbers: JSON Lines, a JSON array, or an object that holds one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from checkrein.text import clean_json, decode_json

__all__ = ["Row", "Document", "parse", "dump"]

_MESSAGES = re.compile(r'"messages"\s*:\s*\[')
_SPACE = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One JSON value; `raw` are its bytes where it is a line of its own."""

    line: int
    value: Any
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file.

    Attributes:
        rows: its values, in order.
        unreadable: lines that are no JSON, with their bytes.
        envelope: the object around the rows, without them; None if there is none.
        is_lines: whether it is JSON Lines.
    """

    rows: tuple[Row, ...]
    unreadable: tuple[tuple[int, bytes], ...] = ()
    envelope: dict[str, Any] | None = None
    is_lines: bool = True

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The rows that are objects."""
        return [row.value for row in self.rows if isinstance(row.value, dict)]


def parse(data: bytes) -> Document:
    """Read a file's bytes; what is no JSON is kept as unreadable, it never raises."""
    return _whole(data.removeprefix(b"\xef\xbb\xbf")) or _lines(data.removeprefix(b"\xef\xbb\xbf"))


def _whole(data: bytes) -> Document | None:
    """A file that is one array, or one object with a member `messages`."""
    if not data.lstrip().startswith((b"[", b"{")):
        return None
    try:
        value = decode_json(data)
    except ValueError:
        return None
    text = data.decode("utf-8", "replace")
    if isinstance(value, list):
        return Document(_rows(value, text, text.index("[") + 1), is_lines=False)
    messages = value.get("messages") if isinstance(value, dict) else None
    if not isinstance(messages, list):
        return None
    envelope = {name: member for name, member in value.items() if name != "messages"}
    return Document(_rows(messages, text, _start(messages, text)), envelope=envelope, is_lines=False)


def _start(messages: list[Any], text: str) -> int:
    """Where the array of these messages begins, -1 if it is not found: other members may hold arrays of that name."""
    decoder = json.JSONDecoder()
    for found in _MESSAGES.finditer(text):
        try:
            if decoder.raw_decode(text, found.end() - 1)[0] == messages:
                return found.end()
        except (ValueError, RecursionError):
            continue
    return -1


def _rows(values: list[Any], text: str, at: int) -> tuple[Row, ...]:
    """Find the line of each element by reading the array again from its first bracket on."""
    decoder = json.JSONDecoder()
    rows: list[Row] = []
    line = 1
    seen = 0
    for value in values:
        if at >= 0:
            at = _after_space(text, at)
            line += text.count("\n", seen, at)
            seen = at
            try:
                at = decoder.raw_decode(text, at)[1]
            except (ValueError, RecursionError):
                at = -1
        rows.append(Row(line if at >= 0 else 0, value))
    return tuple(rows)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _lines(data: bytes) -> Document:
    rows: list[Row] = []
    unreadable: list[tuple[int, bytes]] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(Row(number, decode_json(line), line.rstrip(b"\r")))
        except ValueError:
            unreadable.append((number, line))
    return Document(tuple(rows), tuple(unreadable))


def dump(document: Document, rows: Sequence[Any]) -> bytes:
    """Return the bytes of a copy with these rows, in the original's shape; a Row keeps its own bytes."""
    if document.is_lines:
        return b"".join([_line(row) + b"\n" for row in rows])
    values = [row.value if isinstance(row, Row) else row for row in rows]
    whole = values if document.envelope is None else {**document.envelope, "messages": values}
    return _encode(whole, indent=2) + b"\n"


def _line(row: Any) -> bytes:
    if isinstance(row, Row):
        if row.raw is not None:
            return row.raw
        row = row.value
    return _encode(row)


def _encode(value: Any, indent: int | None = None) -> bytes:
    """Text that UTF-8 cannot carry is cleaned; otherwise nothing is, for a value that nests deeply loses by it."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent).encode()
    except UnicodeEncodeError:
        return json.dumps(clean_json(value)[0], ensure_ascii=False, indent=indent).encode()
