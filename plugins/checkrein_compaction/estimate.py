"""Token estimates of texts, messages, prompts and tool schemas; no tokenizer, so every model's are within a factor.

What a provider then reports corrects them (plugin.py); cutting is in trim.py.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from checkrein.messages import (
    Block,
    CallBlock,
    MediaBlock,
    Message,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolMessage,
    ToolSchema,
)
from checkrein.text import decode_json

__all__ = [
    "estimate_tokens",
    "estimate_image_tokens",
    "estimate_message_tokens",
    "estimate_system_tokens",
    "prefix_sums",
]

MESSAGE_TOKENS = 4
CALL_TOKENS = 10
IMAGE_TOKENS = 85
PIXELS_PER_TOKEN = 750
BYTES_PER_TOKEN = 4
# A page of a PDF is 1,500 to 3,000 tokens and 50 to 100 kB; audio is far less.
MEDIA_BYTES_PER_TOKEN = 32
UNKNOWN_SIDE_PIXELS = 1_024
_HEADER_CHARS = 64_000  # of base64: a JPEG's size may stand behind its embedded thumbnail

_canonical = msgspec.json.Encoder(order="sorted")


def estimate_tokens(text: str) -> int:
    """Return the estimate for a text: a quarter of its UTF-8 bytes, rounded up."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_PER_TOKEN)


def estimate_image_tokens(width: float, height: float) -> int:
    """Return the estimate for an image; sides in pixels, where one that is no positive number counts as none."""
    sides_known = all(math.isfinite(side) and side > 0 for side in (width, height))
    return IMAGE_TOKENS + (math.ceil(width * height / PIXELS_PER_TOKEN) if sides_known else 0)


def estimate_message_tokens(message: Message) -> int:
    """Return the estimate for one message, everything in it counted."""
    total = MESSAGE_TOKENS
    for block in message.content:
        total += estimate_tokens(block.text) if type(block) is TextBlock else _other_block(block)
        if block.provider_metadata is not None:
            total += estimate_tokens(block.provider_metadata)
    if type(message) is ToolMessage:
        total += estimate_tokens(message.call_id)
    return total


def estimate_system_tokens(system: Iterable[str], tools: Iterable[ToolSchema]) -> int:
    """Return the estimate for everything of a request but its messages: system prompt and tool schemas."""
    total = sum(MESSAGE_TOKENS + estimate_tokens(part) for part in system)
    for tool in tools:
        total += CALL_TOKENS + estimate_tokens(tool.name) + estimate_tokens(tool.description) + _json(tool.parameters)
    return total


def prefix_sums(messages: Sequence[Message]) -> list[int]:
    """Return n + 1 sums: item i is the estimate of the first i messages."""
    sums = [0]
    for message in messages:
        sums.append(sums[-1] + estimate_message_tokens(message))
    return sums


def _other_block(block: Block) -> int:
    if type(block) is CallBlock:
        return CALL_TOKENS + estimate_tokens(block.name) + _arguments(block.arguments)
    if type(block) is ThinkingBlock:
        return estimate_tokens(block.text or "")
    if type(block) is OpaqueBlock:
        return _json(block.data)
    return _media(block) if type(block) is MediaBlock else 0


def _arguments(raw: str) -> int:
    """Count arguments in their compact form, keys sorted; what is no JSON, as it stands."""
    try:
        return _json(decode_json(raw or "{}"))
    except (ValueError, RecursionError):
        return estimate_tokens(raw)


def _json(value: Any) -> int:
    try:
        return -(-len(_canonical.encode(value)) // BYTES_PER_TOKEN)
    except (TypeError, ValueError, RecursionError):
        return estimate_tokens(str(value))


def _media(block: MediaBlock) -> int:
    if block.media_type.startswith("image/"):
        return estimate_image_tokens(*_image_size(block.data))
    size = block.bytes if block.bytes is not None else len(block.data or "") * 3 // 4
    return -(-size // (BYTES_PER_TOKEN if block.media_type.startswith("text/") else MEDIA_BYTES_PER_TOKEN))


def _image_size(data: str | None) -> tuple[int, int]:
    """Read width and height, in pixels, from the head of a PNG, GIF, WebP or JPEG in base64."""
    try:
        head = base64.b64decode((data or "")[:_HEADER_CHARS].encode("ascii", "ignore"))
        size = _header_size(head)
    except (ValueError, IndexError):
        size = None
    return size or (UNKNOWN_SIDE_PIXELS, UNKNOWN_SIDE_PIXELS)


def _header_size(head: bytes) -> tuple[int, int] | None:
    def number(at: int, size: int, order: str) -> int:
        if at + size > len(head):
            raise ValueError("the header ends early")
        return int.from_bytes(head[at : at + size], "little" if order == "<" else "big")

    if head[:8] == b"\x89PNG\r\n\x1a\n":
        return number(16, 4, ">"), number(20, 4, ">")
    if head[:4] == b"GIF8":
        return number(6, 2, "<"), number(8, 2, "<")
    if head[:4] == b"RIFF" and head[8:15] == b"WEBPVP8":
        if head[15:16] == b"X":
            return number(24, 3, "<") + 1, number(27, 3, "<") + 1
        if head[15:16] == b"L":
            bits = number(21, 4, "<")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        return number(26, 2, "<") & 0x3FFF, number(28, 2, "<") & 0x3FFF
    if head[:2] == b"\xff\xd8":
        at = 2
        while head[at] == 0xFF:
            marker = head[at + 1]
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                return number(at + 7, 2, ">"), number(at + 5, 2, ">")
            at += 2 + number(at + 2, 2, ">")
    return None
