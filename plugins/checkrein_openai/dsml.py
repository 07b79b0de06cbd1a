"""Calls that a model writes as DSML markup into its answer's text, read as calls. Pure.

    <|DSML|tool_calls><|DSML|invoke name="ls"><|DSML|parameter name="path" string="true">.</|DSML|parameter>...

The bars come in several spellings, and the markup is cut anywhere by the stream. Used where the
quirk `dsml` says so.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .wirejson import dumps, loads

__all__ = ["MarkupReader", "MarkedCall", "BadMarkup"]

MAX_MARKUP_CHARS = 4 * 1024 * 1024
_MARK_CHARS = 40  # no mark is longer
_BARS = "[|\uff5c\u2016]{1,2}"  # an ASCII bar, a full-width one, a double one
_MARK = f"{_BARS}DSML{_BARS}"
_OPEN = re.compile(f"<{_MARK}(?:tool|function)_calls>")
_CLOSE = re.compile(f"</{_MARK}(?:tool|function)_calls>")
_INVOKE = re.compile(rf'<{_MARK}invoke name="([^"]*)">(.*?)</{_MARK}invoke>', re.DOTALL)
_PARAMETER = re.compile(
    rf'<{_MARK}parameter name="([^"]*)"(?: string="(true|false)")?>(.*?)</{_MARK}parameter>', re.DOTALL
)
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

    def push(self, text: str) -> list[str | MarkedCall]:
        """Take the next piece; return plain texts, and the calls between them.

        Raises:
            BadMarkup: a closed markup holds no readable call, or it is longer than the bound.
        """
        out: list[str | MarkedCall] = []
        while text:
            text = self._read_inside(text, out) if self.inside else self._read_outside(text, out)
        return out

    def end(self) -> str:
        """Return the plain text that was held back."""
        held, self._held = self._held, ""
        return held

    def _read_outside(self, text: str, out: list[str | MarkedCall]) -> str:
        text = self._held + text
        self._held = ""
        mark = _OPEN.search(text)
        if mark is None:
            tail = _PREFIX.search(text, max(0, len(text) - _MARK_CHARS))
            cut = len(text) if tail is None else tail.start()
            self._held = text[cut:]
            if cut:
                out.append(text[:cut])
            return ""
        if mark.start():
            out.append(text[: mark.start()])
        self.inside = True
        return text[mark.end() :]

    def _read_inside(self, text: str, out: list[str | MarkedCall]) -> str:
        self._size += len(text)
        if self._size > MAX_MARKUP_CHARS:
            raise BadMarkup(f"expected at most {MAX_MARKUP_CHARS} characters of call markup, got more")
        self._pieces.append(text)
        seam = self._tail + text  # the closing mark may be cut; no more than this is looked at again
        if _CLOSE.search(seam) is None:
            self._tail = seam[-_MARK_CHARS:]
            return ""
        whole = "".join(self._pieces)
        mark = _CLOSE.search(whole)
        assert mark is not None  # it stands in a part of `whole`
        out.extend(_calls(whole[: mark.start()]))
        self.inside, self._pieces, self._size, self._tail = False, [], 0, ""
        return whole[mark.end() :]


def _calls(markup: str) -> list[MarkedCall]:
    rest = _INVOKE.sub("", markup)
    calls = [_call(name, body) for name, body in _INVOKE.findall(markup)]
    if not calls or rest.strip():
        raise BadMarkup("expected DSML call markup, got some that cannot be read")
    return calls


def _call(name: str, body: str) -> MarkedCall:
    arguments: dict[str, Any] = {}
    for key, string, value in _PARAMETER.findall(body):
        if string == "true":
            arguments[key] = value
            continue
        try:
            arguments[key] = loads(value.encode("utf-8", "replace"))
        except ValueError:
            arguments[key] = value
    if _PARAMETER.sub("", body).strip():
        raise BadMarkup("expected DSML parameters, got some that cannot be read")
    return MarkedCall(name, dumps(arguments))
