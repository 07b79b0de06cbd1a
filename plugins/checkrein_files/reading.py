"""read_file: a page of a text file."""

from __future__ import annotations

import codecs
import os
from typing import BinaryIO

from checkrein.calls import Outcome
from checkrein.errors import ToolError
from checkrein.output import kind_of, looks_binary
from checkrein.text import preview

from .bounds import MAX_RESULT_BYTES, Clock
from .workspace import Workspace, shown

__all__ = ["is_binary", "read_file"]

HEAD_BYTES = 8_192
MAX_LINE_CHARS = 2_000
MAX_LINE_BYTES = 1_000_000  # a longer line is read in pieces, so that memory stays bounded
MAX_SCANNED_BYTES = 64_000_000
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_binary(head: bytes) -> bool:
    """Whether a file whose first bytes these are is no text."""
    if head.startswith(_UTF16):
        return True
    return looks_binary(head.decode("utf-8", "replace"))


def read_file(workspace: Workspace, clock: Clock, path: str, offset: int, limit: int) -> Outcome:
    """Read a page; see Plugin.read_file."""
    parts = workspace.locate(path)
    name = shown("/".join(parts))
    with workspace.open(parts) as file:
        status = os.fstat(file.fileno())
        head = file.read(HEAD_BYTES)
        if is_binary(head):
            kind = "UTF-16 text" if head.startswith(_UTF16) else kind_of(head)
            return Outcome.text(f"{name}: {kind}, {status.st_size} bytes, not shown")
        file.seek(0)
        page, last, total, complete = _page(file, clock, offset, limit)
    links = f", {status.st_nlink} hard links" if status.st_nlink > 1 else ""
    about = f"{status.st_size} bytes{links}"
    if not page:
        if total == 0 and complete:
            return Outcome.text(f"{name}: empty, {about}")
        if not complete:
            raise ToolError(
                f"{name} is too large: it was read to line {total}, short of offset {offset}", code="TOO_LARGE"
            )
        raise ToolError(f"{name} has {total} lines; offset {offset} is behind its end", code="BEHIND_END")
    lines = f"{total} lines" if complete else f"at least {total} lines"
    head_line = f"{name}: lines {offset} to {last} of {lines}, {about}"
    more = f"[go on with offset={last + 1}]" if last < total or not complete else ""
    return Outcome.text(f"{head_line}\n{''.join(page)}{more}", value={"path": "/".join(parts), "lines": total})


def _page(file: BinaryIO, clock: Clock, offset: int, limit: int) -> tuple[list[str], int, int, bool]:
    """The page's lines, the number of its last one, how many there are, and whether all were counted."""
    page: list[str] = []
    used = scanned = number = 0
    last = offset - 1
    full = False
    while raw := file.readline(MAX_LINE_BYTES):
        number += 1
        scanned += len(raw)
        ends = raw.endswith(b"\n")
        # The tail of an overlong line is only counted, within the same bounds: it may be the whole of a huge file.
        while not ends and not (scanned > MAX_SCANNED_BYTES or clock.over()):
            rest = file.readline(MAX_LINE_BYTES)
            scanned += len(rest)
            ends = not rest or rest.endswith(b"\n")
        if number >= offset and not full:
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            text = preview(raw.decode("utf-8", "replace").rstrip("\r\n"), MAX_LINE_CHARS) + "\n"
            used += len(text.encode())
            full = len(page) == limit or (used > MAX_RESULT_BYTES and bool(page))
            if not full:
                page.append(text)
                last = number
        if scanned > MAX_SCANNED_BYTES or not ends or (number % 4096 == 0 and clock.over()):
            return page, last, number, False
    return page, last, number, True
