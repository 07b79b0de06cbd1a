"""What all folds share: the base class, how events are read, and where the log stands.

An event that does not fit its type is read through `Loose`: its structural members count, its
unknown words never break a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from checkrein.events import FreeEvent
from checkrein.messages import CallBlock

from .rules import Report

__all__ = ["Fold", "Handler", "Loose", "Where", "call_ids", "differs"]

Handler: TypeAlias = Callable[[Any, Any], None]  # a fold's method, not bound: one table serves all oracles

_NUMBERS = ("turn", "step", "attempt", "steps", "header", "messages", "end", "after", "before")
_TEXTS = ("call_id", "id", "parent", "outcome", "plugin", "kind", "effect", "provider", "key")


class Loose:
    """A known event type with words we do not know: members by name, None where they do not fit."""

    __slots__ = ("_fields", "seq", "type")

    def __init__(self, event: FreeEvent) -> None:
        self._fields = event.fields
        self.seq = event.seq
        self.type = event.type

    def __getattr__(self, name: str) -> Any:
        value = self._fields.get(name)
        if name in _NUMBERS:
            return value if type(value) is int else None
        if name in _TEXTS:
            return value if isinstance(value, str) else None
        # Everything below the structure may hold words we do not know: it is not judged.
        return None

    def blocks(self) -> list[Any]:
        """The raw content blocks."""
        content = self._fields.get("content")
        return content if isinstance(content, list) else []


class Where:
    """Where the log stands; the placement fold moves it, all others read it.

    Attributes:
        turn: the open turn's number, 0 between turns.
        step: the open step's number, 0 outside a step.
        steps: steps of the open turn so far.
        calls: ids of the newest answer's calls, in the model's order.
        turn_seq: seq of the open turn's start.
        step_seq: seq of the open step's start.
        holes: events were lost before; what refers to them is not judged.
    """

    __slots__ = ("calls", "holes", "step", "step_seq", "steps", "turn", "turn_seq")

    def __init__(self) -> None:
        self.turn = self.step = self.steps = 0
        self.turn_seq = self.step_seq = -1
        self.calls: Sequence[str] = ()
        self.holes = False


class Fold:
    """One group of rules over the log; each event costs O(1)."""

    def __init__(self, report: Report, where: Where) -> None:
        self.report = report
        self.where = where

    def handlers(self) -> dict[str, Handler]:
        """The event types this fold reads."""
        return {}

    def lost(self) -> None:
        """Events were lost here: forget what was open."""

    def finish(self, open_ok: bool) -> None:
        """The log ends; `open_ok` if it may go on."""


def differs(got: Any, expected: Any) -> bool:
    """Whether a member is there and is another."""
    return got is not None and got != expected


def call_ids(event: Any) -> list[str]:
    """The ids of an answer's call blocks, in the model's order."""
    if type(event) is Loose:
        raw: Iterable[Any] = event.blocks()
        ids = (block.get("call_id") for block in raw if isinstance(block, dict) and block.get("type") == "tool_call")
        return [call_id for call_id in ids if isinstance(call_id, str)]
    return [block.call_id for block in event.content if type(block) is CallBlock]
