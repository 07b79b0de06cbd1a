"""What every transcript format is read into: items in order, each with its line, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from checkrein.errors import CheckreinError

if TYPE_CHECKING:
    from .document import Document, Row

__all__ = ["Call", "Item", "Problem", "Change", "Report", "Format", "TranscriptError", "BARRIERS"]

BARRIERS = frozenset({"user", "assistant", "system", "close"})
"""Kinds of items that no result of an earlier call may follow."""


class TranscriptError(CheckreinError):
    """A file is no transcript we know, or the copy cannot be written."""


@dataclass(slots=True)
class Call:
    """A tool call.

    Attributes:
        id: its id, empty if it has none.
        name: the tool's name.
        arguments: their raw text.
        stored_id: the id that stands in the file.
        odd: what of it is stored as another type than the format has, as `the id`; empty if nothing.
    """

    id: str
    name: str
    arguments: str
    stored_id: str = ""
    odd: str = ""


@dataclass(slots=True, eq=False)
class Item:
    """A message, or a part of one that stands for itself.

    Attributes:
        kind: user, assistant, system, result, close (a step or turn ends here), mark (bookkeeping of the calls
            before it, which stays before their results) or other.
        row: where it comes from; None for an item that the repair made.
        part: which part of the row, -1 for all of it.
        text: what can be read in it.
        calls: an assistant's calls.
        call_id: the call a result answers, empty if it does not say.
        call: that call, once it is known.
        odd: as a call's, of a result.
        changed: whether its row has to be written anew.
    """

    kind: str
    row: Row | None
    part: int = -1
    text: str = ""
    calls: list[Call] = field(default_factory=list)
    call_id: str = ""
    call: Call | None = None
    odd: str = ""
    changed: bool = False

    @property
    def line(self) -> int:
        """Its line in the file, from 1; 0 if unknown."""
        return self.row.line if self.row is not None else 0


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong.

    Attributes:
        line: where, from 1; 0 if it has no line.
        kind: `orphan call`, `orphan result`, `duplicate result`, `wrong order`, `missing id`, `duplicate id`,
            `arguments`, `type`, `numbering`, `open turn` or `unreadable`.
        message: what, with the ids concerned.
    """

    line: int
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Change:
    """Something a repair did; `line` is the line in the original it was done to or behind."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in a transcript, and what a repair changed.

    Attributes:
        path: the file.
        format: the format's name.
        messages: how many messages it holds.
        problems: what is wrong, by line.
        changes: what the copy has otherwise; empty without a repair.
        out: the copy, if one was written.
    """

    path: str
    format: str
    messages: int
    problems: tuple[Problem, ...]
    changes: tuple[Change, ...] = ()
    out: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class Format(Protocol):
    """A transcript format: one small module.

    Attributes:
        name: its name, as `openai-chat`.
    """

    name: str

    def fits(self, document: Document) -> float:
        """How surely the document is of this format, 0 to 1; the surest format reads it."""
        ...

    def read(self, document: Document) -> tuple[list[Item], list[Problem]]:
        """Return the items in order, and what is wrong with the format's own bookkeeping."""
        ...

    def write(self, document: Document, items: Iterable[Item]) -> tuple[list[Any], list[Change]]:
        """Return the rows of a balanced copy and what was changed in the bookkeeping.

        A row that did not change is returned as its Row, so that its bytes stay as they are.
        """
        ...
