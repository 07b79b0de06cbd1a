"""Estimates: the known figures, and totality."""

from __future__ import annotations

import base64
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein.messages import (
    AssistantMessage,
    CallBlock,
    MediaBlock,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from checkrein_compaction import (
    estimate_image_tokens,
    estimate_message_tokens,
    estimate_system_tokens,
    estimate_tokens,
)


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("aaaa", 1), ("aaaaa", 2), ("漢", 1), ("漢字", 2), ("\ud800", 1)]
)
def test_text_is_a_quarter_of_its_utf8_bytes(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text(), st.text())
def test_text_estimates_are_subadditive(a: str, b: str) -> None:
    assert estimate_tokens(a + b) <= estimate_tokens(a) + estimate_tokens(b)


def test_messages_count_every_block() -> None:
    def call(arguments: str) -> AssistantMessage:
        return AssistantMessage([CallBlock("c1", "read_file", arguments)])

    assert estimate_message_tokens(UserMessage([TextBlock("hello")])) == 6
    assert estimate_message_tokens(AssistantMessage([TextBlock("hi")])) == 5
    assert estimate_message_tokens(ToolMessage("c1", "read_file", [TextBlock("hello")])) == 7
    assert estimate_message_tokens(call('{"path":"(local)"}')) == 22
    assert estimate_message_tokens(call('{ "path" : "(local)" }')) == 22  # the compact form is counted
    assert estimate_message_tokens(call("{not json")) == 4 + 10 + 3 + 3
    assert estimate_message_tokens(AssistantMessage([ThinkingBlock(0, "a" * 40)])) == 14
    assert estimate_message_tokens(AssistantMessage([ThinkingBlock(0, None, "s" * 8)])) == 6
    assert estimate_message_tokens(AssistantMessage([OpaqueBlock("p", {"a": 1})])) == 6


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(750, 1, 86), (751, 1, 87), (1024, 1024, 1484), (0, 9, 85), (-1, 9, 85), (math.nan, 9, 85), (math.inf, 9, 85)],
)
def test_image_tokens(width: float, height: float, tokens: int) -> None:
    assert estimate_image_tokens(width, height) == tokens


def _jpeg(width: int, height: int) -> bytes:
    app0 = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9)
    return b"\xff\xd8" + app0 + b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + bytes(3)


IMAGES = {
    "png": b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 300, 500) + bytes(5),
    "gif": b"GIF89a" + struct.pack("<HH", 300, 500),
    "jpeg": _jpeg(300, 500),
    "webp-x": b"RIFF\0\0\0\0WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + b"\x2b\x01\x00" + b"\xf3\x01\x00",
    "webp-l": b"RIFF\0\0\0\0WEBPVP8L" + struct.pack("<I", 5) + b"\x2f" + struct.pack("<I", 299 | 499 << 14),
    "webp": b"RIFF\0\0\0\0WEBPVP8 " + bytes(4) + bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 300, 500),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_images_are_counted_by_their_pixels(kind: str) -> None:
    block = MediaBlock(f"image/{kind}", data=base64.b64encode(IMAGES[kind]).decode())
    assert estimate_message_tokens(UserMessage([block])) == 4 + 85 + 200


@pytest.mark.parametrize("data", [None, "", "!", "iVBORw0KGgo=", base64.b64encode(b"\xff\xd8\xff").decode()])
def test_an_image_of_unknown_size_is_not_free(data: str | None) -> None:
    assert estimate_message_tokens(UserMessage([MediaBlock("image/png", data=data, url="x")])) == 4 + 1484


def test_other_media_count_by_size() -> None:
    assert estimate_message_tokens(UserMessage([MediaBlock("application/pdf", blob="x", bytes=64_000)])) == 2004
    assert estimate_message_tokens(UserMessage([MediaBlock("text/plain", data="YWFhYQ==" * 10)])) == 4 + 15


def test_system_prompt_and_tool_schemas_count() -> None:
    schema = ToolSchema("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
    assert estimate_system_tokens(["a" * 40], []) == 14
    assert estimate_system_tokens([], [schema]) == 10 + 3 + 4 + 15


@given(st.binary(max_size=60))
def test_any_bytes_as_an_image_have_an_estimate(data: bytes) -> None:
    heads = [b"", b"\xff\xd8", b"RIFF\0\0\0\0WEBPVP8X", b"GIF89a", b"\x89PNG\r\n\x1a\n"]
    for head in heads:
        block = MediaBlock("image/x", data=base64.b64encode(head + data).decode())
        assert estimate_message_tokens(UserMessage([block])) >= 85
