"""What a caller gets back: a receipt for an input, a result for a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from .errors import TurnFailed
from .events import AnyEvent, Reason
from .messages import Usage

__all__ = ["TurnResult", "InputStatus", "EXIT_CODES", "exit_code"]

# The CLI's exit code by turn reason (docs/cli.md); errors of kinds not named here are 1.
EXIT_CODES = {
    "completed": 0,
    "error": 1,
    "interrupted": 1,
    "step_limit": 7,
    "cancelled": 130,
    "disposed": 130,
}


class TurnResult(Struct, frozen=True):
    """How a turn ended.

    Attributes:
        turn: its number.
        reason: one of the six (T4), with its details.
        text: the final answer's text, empty if there is none.
        usage: the sum over the turn's requests.
        steps: how many steps it took.
        events: the turn's events, in order.
        value: the structured answer, where an output schema was given.
    """

    turn: int
    reason: Reason
    text: str = ""
    usage: Usage = msgspec.field(default_factory=Usage)
    steps: int = 0
    events: Sequence[AnyEvent] = ()
    value: Any = None

    @property
    def ok(self) -> bool:
        """Whether the turn completed."""
        return self.reason.kind == "completed"

    def check(self) -> TurnResult:
        """Return this result.

        Raises:
            TurnFailed: the turn did not complete.
        """
        if not self.ok:
            raise TurnFailed(self)
        return self


class InputStatus(Struct, frozen=True):
    """Where an input is: pending, in turn n, or discarded with a reason (I4)."""

    state: str
    turn: int | None = None
    reason: str | None = None


def exit_code(result: TurnResult) -> int:
    """The CLI's exit code for a turn's result."""
    reason = result.reason
    if reason.kind == "cancelled" and reason.cause is not None and reason.cause.kind == "budget":
        return 7
    if reason.kind == "error" and reason.error in ("generate", "stream", "timeout"):
        return 4 if reason.code == "INVALID_CREDENTIAL" else 5
    return EXIT_CODES.get(reason.kind, 1)
