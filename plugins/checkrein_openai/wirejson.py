"""JSON at the border of the wire: reading what servers write, and writing what they read. Pure.

`checkrein.text.decode_json` would replace the halves of a surrogate pair that is split over two
frames before anybody could join them; here they are kept, and decode.py joins them (L9).
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from checkrein.text import clean_json

__all__ = ["loads", "dumps", "whole", "is_object"]

MAX_DEPTH = 100

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def loads(data: bytes) -> Any:
    """Decode JSON leniently.

    Lone surrogates stay in its strings, bytes that are no UTF-8 become U+FFFD, and what is no finite
    number becomes None.

    Raises:
        ValueError: it is no JSON, or nests deeper than MAX_DEPTH.
    """
    try:
        value = _loads(data)
    except RecursionError:
        raise ValueError("the JSON nests too deeply") from None
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and not _is_shallow(value):
        raise ValueError("the JSON nests too deeply")  # whoever walks it may use recursion
    return value


def _loads(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None, parse_float=_finite)


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return True
    return False


def _finite(word: str) -> float | None:
    number = float(word)
    return number if math.isfinite(number) else None


def dumps(value: Any) -> str:
    """Encode a value read by `loads`, cleaned so that UTF-8 can carry it."""
    cleaned, _ = clean_json(value)
    return json.dumps(cleaned, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def whole(value: Any) -> int | None:
    """Return a whole number as an int, however it is written (1 or 1.0); None for what is none."""
    if type(value) is float and value.is_integer():
        return int(value)
    return value if type(value) is int else None


def is_object(text: str) -> bool:
    """Whether a text is one complete JSON object."""
    try:
        _object(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
