"""Calls that a model writes as DSML markup into its answer's text, read as calls. Pure.

    <|DSML|tool_calls><|DSML|invoke name="ls"><|DSML|parameter name="path" string="true">.</|DSML|parameter>...

The bars come in several spellings, and the markup is cut anywhere by the stream. Used where the
quirk `dsml` says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from .wirejson import dumps, loads

__all__ = ["MarkupReader", "MarkedCall", "BadMarkup"]

MAX_MARKUP_CHARS = 4 * 1024 * 1024
_MARK_CHARS = 40  # no mark is longer
_BARS = "[|\uff5c\u2016]{1,2}"  # an ASCII bar, a full-width one, a double one
_MARK = f"{_BARS}DSML{_BARS}"
_OPEN = re.compile(f"<{_MARK}(?:tool|function)_calls>")
_CLOSE = re.compile(f"</{_MARK}(?:tool|function)_calls>")
_INVOKE = re.compile(rf'\s*<{_MARK}invoke name="([^"]*)">')
_INVOKE_END = re.compile(f"</{_MARK}invoke>")
_PARAMETER = re.compile(rf'\s*<{_MARK}parameter name="([^"]*)"(?: string="(true|false)")?>')
_PARAMETER_END = re.compile(f"</{_MARK}parameter>")
# A text that may still become an opening mark: each prefix of one.
_PREFIX = re.compile(r"<(?:[|\uff5c\u2016]{1,2}(?:D(?:S(?:M(?:L(?:[|\uff5c\u2016]{1,2}(?:[a-z_]{0,14})?)?)?)?)?)?)?$")


class BadMarkup(ValueError):
    """The markup is cut, or holds no call that can be read."""


class MarkedCall(NamedTuple):
    """A call that was written as markup; `arguments` is JSON text."""

    name: str
    arguments: str


class MarkupReader:
    """Splits a text that comes in pieces into plain text and calls.

    Attributes:
        inside: whether an opened markup has not been closed.
    """

    def __init__(self) -> None:
        self.inside = False
        self._held = ""  # outside: a tail that may be the beginning of a mark
        self._pieces: list[str] = []  # inside
        self._tail = ""
        self._size = 0

    def push(self, text: str) -> Iterator[str | MarkedCall]:
        """Take the next piece; yield plain texts and the calls between them. Iterate to the end.

        Raises:
            BadMarkup: a closed markup holds no readable call, or it is longer than the bound.
        """
        while text:
            if self.inside:
                calls, text = self._read_inside(text)
                yield from calls
            else:
                plain, text = self._read_outside(text)
                if plain:
                    yield plain

    def end(self) -> str:
        """Return the plain text that was held back."""
        held, self._held = self._held, ""
        return held

    def _read_outside(self, text: str) -> tuple[str, str]:
        """The plain text before a mark, and what is behind it."""
        text = self._held + text
        self._held = ""
        mark = _OPEN.search(text)
        if mark is not None:
            self.inside = True
            return text[: mark.start()], text[mark.end() :]
        tail = _PREFIX.search(text, max(0, len(text) - _MARK_CHARS))
        cut = len(text) if tail is None else tail.start()
        self._held = text[cut:]
        return text[:cut], ""

    def _read_inside(self, text: str) -> tuple[list[MarkedCall], str]:
        """The calls of a markup that ends in this text, and what is behind it."""
        self._size += len(text)
        if self._size > MAX_MARKUP_CHARS:
            raise BadMarkup(f"expected at most {MAX_MARKUP_CHARS} characters of call markup, got more")
        self._pieces.append(text)
        seam = self._tail + text  # the closing mark may be cut; no more than this is looked at again
        if _CLOSE.search(seam) is None:
            self._tail = seam[-_MARK_CHARS:]
            return [], ""
        whole = "".join(self._pieces)
        mark = _CLOSE.search(whole)
        assert mark is not None  # it stands in a part of `whole`
        self.inside, self._pieces, self._size, self._tail = False, [], 0, ""
        return _calls(whole[: mark.start()]), whole[mark.end() :]


def _calls(markup: str) -> list[MarkedCall]:
    calls = [MarkedCall(mark[1], _arguments(body)) for mark, body in _elements(markup, _INVOKE, _INVOKE_END)]
    if not calls:
        raise BadMarkup("expected a call in DSML markup, got none")
    return calls


def _arguments(body: str) -> str:
    arguments: dict[str, Any] = {}
    for mark, value in _elements(body, _PARAMETER, _PARAMETER_END):
        arguments[mark[1]] = value
        if mark[2] != "true":
            try:
                arguments[mark[1]] = loads(value.encode("utf-8", "replace"))
            except ValueError:
                pass  # a text that was not marked as one
    return dumps(arguments)


def _elements(text: str, begin: re.Pattern[str], end: re.Pattern[str]) -> Iterator[tuple[re.Match[str], str]]:
    """The elements that a text consists of, each with its body; anything between them is no markup we know."""
    at = 0
    text = text.rstrip()
    while at < len(text):
        mark = begin.match(text, at)
        close = end.search(text, mark.end()) if mark is not None else None
        if mark is None or close is None:
            raise BadMarkup("expected DSML call markup, got some that cannot be read")
        yield mark, text[mark.end() : close.start()]
        at = close.end()
