"""Does a turn go round in circles? A fold of the log: what each step asked for, and what it came to (L1).

A step counts as a repetition only if its calls, their arguments and their results are all the same:
a loop that learns something new is work. Blocks of several steps (A, B, A, B, ...) count too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from checkrein.events import AssistantAnswer, StepEnd, ToolEnded, ToolResulted, TurnStart
from checkrein.log import onward
from checkrein.messages import CallBlock, content_text
from checkrein.text import decode_json

if TYPE_CHECKING:
    from checkrein.session import Session

__all__ = ["Circle", "Steps", "find_circle"]

NEVER_REACHED = ("UNKNOWN_TOOL", "INVALID_ARGUMENTS")
MOST_STEPS = 1_000
_encode = msgspec.json.Encoder(order="sorted").encode


class Circle(Struct, frozen=True):
    """A block of steps that came again and again.

    Attributes:
        period: how many steps the block has.
        times: how often it came in a row.
    """

    period: int
    times: int


def find_circle(steps: Sequence[bytes | None], max_period: int, times: int) -> Circle | None:
    """Return the shortest block that the newest steps repeat.

    Args:
        steps: a digest of each step, oldest first; None for one that may repeat.
        max_period: steps a block may have, at least 1.
        times: how often it must have come in a row, at least 2.
    """
    for period in range(1, max_period + 1):
        tail = list(steps)[-period * times :]
        if len(tail) == period * times and None not in tail and tail == tail[:period] * times:
            return Circle(period, times)
    return None


class Steps(Struct):
    """The steps of the open turn, as digests.

    Args:
        polling: patterns of tools that may be called again with the same result.
        position: how many events of the log are folded.
        digests: one for each step of the turn, the newest 1,000.
        malformed: how many steps in a row had calls and not one that reached a tool.
    """

    polling: tuple[str, ...] = ()
    position: int = 0
    digests: deque[bytes | None] = field(default_factory=lambda: deque(maxlen=MOST_STEPS))
    malformed: int = 0
    _answer: AssistantAnswer | None = None
    _ended: dict[str, ToolEnded] = field(default_factory=dict)
    _results: dict[str, ToolResulted] = field(default_factory=dict)

    def catch_up(self, session: Session) -> None:
        """Fold the events that came since."""
        for event in onward(session.events, self.position):
            self._apply(event)
            self.position += 1

    def _apply(self, event: Any) -> None:
        if isinstance(event, TurnStart):
            self.digests.clear()
            self.malformed = 0
        elif isinstance(event, AssistantAnswer):
            self._answer = event
            self._ended.clear()
            self._results.clear()
        elif isinstance(event, ToolEnded):
            self._ended[event.call_id] = event
        elif isinstance(event, ToolResulted):
            self._results[event.call_id] = event
        elif isinstance(event, StepEnd) and self._answer is not None:
            self._end_step(self._answer)
            self._answer = None

    def _end_step(self, answer: AssistantAnswer) -> None:
        calls = [block for block in answer.content if isinstance(block, CallBlock)]
        if not calls:  # an answer that a plugin would not let be the last one
            self.digests.append(sha256(content_text(answer.content).encode()).digest())
            return
        reached = [self._code(call.call_id) not in NEVER_REACHED for call in calls]
        self.malformed = 0 if any(reached) else self.malformed + 1
        if all(any(fnmatchcase(call.name, pattern) for pattern in self.polling) for call in calls):
            self.digests.append(None)
        else:
            self.digests.append(_digest(self._facts(call) for call in calls))

    def _facts(self, call: CallBlock) -> Any:
        result: ToolEnded | ToolResulted | None = self._results.get(call.call_id)
        if result is not None and result.content is None:
            result = self._ended.get(call.call_id)
        content = result.content if result is not None else None
        return call.name, _canonical(call.arguments), content

    def _code(self, call_id: str) -> str | None:
        result = self._results.get(call_id)
        return result.error.code if result is not None and result.error is not None else None


def _canonical(arguments: str) -> Any:
    try:
        return decode_json(arguments or "{}")
    except ValueError:
        return {"not json": arguments}


def _digest(facts: Iterable[Any]) -> bytes:
    total = sha256()
    for fact in facts:
        total.update(_encode(fact))
    return total.digest()
