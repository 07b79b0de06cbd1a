"""Foreign text made safe to show: what a terminal would obey, or a reader would not see, is written out.

Approval questions, status lines and logs on screens use it; the log itself keeps the text as it is.
"""

from __future__ import annotations

import unicodedata

__all__ = ["visible", "excerpt"]

# Control, format (bidi, zero width, tags), lone surrogates, private use, unassigned, line and paragraph separators.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Blank or without a shape of their own, whatever their category says: fillers, braille blank, selectors.
_BLANK = frozenset(
    [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)]
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, keep: str = "") -> str:
    """Return text in which every character is seen for what it is.

    Args:
        text: any str.
        keep: characters left as they are, as `"\\n"` where lines are wanted.

    Returns:
        The text, with control, invisible, bidirectional and unassigned characters as `\\n`, `\\x1b`,
        `\\u202e` or `\\U000e0041`, and every space but the plain one likewise.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in keep or not _hides(char) else _escape(char) for char in text)


def excerpt(text: str, chars: int) -> str:
    """Return text of at most about `chars` characters: its head and its tail, and how much lies between.

    The tail is kept because what matters may be hidden there behind a long head.
    """
    if len(text) <= chars:
        return text
    head, tail = chars * 2 // 3, chars // 3
    return f"{text[:head]} …({len(text) - head - tail} more characters)… {text[len(text) - tail :]}"


def _hides(char: str) -> bool:
    code = ord(char)
    if code < 0x7F:
        return code < 0x20
    category = unicodedata.category(char)
    return category in _ESCAPED or category == "Zs" or code in _BLANK or 0xE0100 <= code <= 0xE01EF


def _escape(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
