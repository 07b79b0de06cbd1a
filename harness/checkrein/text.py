"""Text at the border: cleaning what JSON cannot carry (L9), and describing exceptions safely."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["clean", "clean_json", "describe", "decode_json", "preview"]

REPLACEMENT = "\ufffd"
MESSAGE_CHARS = 2_000


def clean(text: str) -> tuple[str, int]:
    """Join surrogate pairs and replace lone surrogates.

    Args:
        text: any str, lone surrogates included.

    Returns:
        The text as UTF-8 can carry it, and how many characters were replaced.
    """
    if text.isascii():
        return text, 0
    try:
        text.encode()
        return text, 0
    except UnicodeEncodeError:
        pass
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    # "replace" writes one U+FFFD for a lone surrogate; those the text had before are not ours to count.
    return joined, joined.count(REPLACEMENT) - text.count(REPLACEMENT)


def clean_json(value: Any, depth: int = 100) -> tuple[Any, int]:
    """Clean every string of a JSON value, keys included.

    Args:
        value: a JSON value.
        depth: how deep it may nest; deeper parts are replaced by a note.

    Returns:
        The cleaned value and how many characters were replaced.
    """
    if isinstance(value, str):
        return clean(value)
    if depth <= 0 and isinstance(value, (list, tuple, dict)):
        return "[nested too deeply]", 1
    if isinstance(value, (list, tuple)):
        pairs = [clean_json(item, depth - 1) for item in value]
        return [item for item, _ in pairs], sum(count for _, count in pairs)
    if isinstance(value, dict):
        out: dict[str, Any] = {}
        total = 0
        for key, item in value.items():
            name, count = clean(str(key))
            out[name], more = clean_json(item, depth - 1)
            total += count + more
        return out, total
    return value, 0


def decode_json(text: str | bytes) -> Any:
    """Decode JSON leniently where the fast decoder refuses for surrogates (L9).

    Raises:
        ValueError: it is no JSON at all, or nests too deeply.
    """
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        return clean_json(json.loads(text, parse_constant=_no_constant, parse_float=_finite))[0]
    except RecursionError:
        raise ValueError("the JSON nests too deeply") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(word: str) -> float:
    value = float(word)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {preview(word, 40)} is out of range")
    return value


def describe(exc: BaseException) -> str:
    """Return what an exception says, whatever its `__str__` does.

    `str(exc)` can itself raise (SystemExit included) and can hold surrogates; closing events are
    made from this text, so it must always come back.
    """
    try:
        text = str(exc)
    except BaseException:  # a guard around foreign code: nothing may escape it
        text = ""
    return preview(clean(text)[0] or type(exc).__name__, MESSAGE_CHARS)


def preview(text: str, chars: int) -> str:
    """Shorten text to at most `chars` characters, saying how much was left out."""
    if len(text) <= chars:
        return text
    return f"{text[:chars]}… ({len(text) - chars} more characters)"
