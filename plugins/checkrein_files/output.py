"""read_output: pages of a tool's output that the log keeps in a blob (X5)."""

from __future__ import annotations

import re

from checkrein.errors import StoreError, ToolError
from checkrein.output import describe_bytes, looks_binary
from checkrein.tools import ToolContext

__all__ = ["read_output"]


def read_output(context: ToolContext, output_id: str, offset: int, limit: int) -> str:
    """Return a page of a blob of this session; see Plugin.read_output."""
    if not re.fullmatch(r"[0-9a-f]{64}", output_id):
        raise ToolError("expected the id of 64 hex digits that stands where an output was cut", code="NOT_FOUND")
    try:
        data = context.agent.harness.store.get_blob(context.session.id, output_id)
    except StoreError:
        raise ToolError("this session keeps no output of this id", code="NOT_FOUND") from None
    if offset >= len(data):
        raise ToolError(f"the output has {len(data)} bytes; offset {offset} is behind its end", code="BEHIND_END")
    if looks_binary(data[:8_192].decode("utf-8", "replace")):
        return describe_bytes(data)
    start, end = _border(data, offset), _border(data, min(offset + limit, len(data)))
    if end <= start:
        end = min(start + 4, len(data))
    more = f"; go on with offset={end}" if end < len(data) else ""
    return f"bytes {start} to {end} of {len(data)}{more}\n{data[start:end].decode('utf-8', 'replace')}"


def _border(data: bytes, at: int) -> int:
    """The start of the character that `at` lies in."""
    for back in range(min(4, at + 1)):
        if at - back >= len(data) or data[at - back] & 0xC0 != 0x80:
            return at - back
    return at
