"""Does a turn go round in circles? A fold of the log: what each step asked for, and what it came to (L1).

A step counts as a repetition only if its calls, their arguments and their results are all the same:
a loop that learns something new is work. Blocks of several steps (A, B, A, B, ...) count too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import islice
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field

from checkrein.events import AssistantAnswer, StepEnd, ToolEnded, ToolResulted
from checkrein.log import Follower
from checkrein.messages import CallBlock, content_text
from checkrein.text import decode_json

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
    newest_first = reversed(steps)
    newest = next(newest_first, None)
    if newest is None or newest not in islice(newest_first, max_period):
        return None  # most steps are new, and a new one repeats nothing
    for period in range(1, max_period + 1):
        tail = list(islice(reversed(steps), period * times))
        if len(tail) == period * times and None not in tail and tail == tail[:period] * times:
            return Circle(period, times)
    return None


class Steps(Follower, kw_only=True):
    """The steps of one turn, as digests.

    Args:
        polling: patterns of tools that may be called again with the same result.
        position: where in the log to begin: at the turn's first request, or before it in the same turn.
        digests: one for each step, the newest 1,000.
        malformed: how many steps in a row had calls and not one that reached a tool.
    """

    polling: tuple[str, ...] = ()
    digests: deque[bytes | None] = field(default_factory=lambda: deque(maxlen=MOST_STEPS))
    malformed: int = 0
    _answer: AssistantAnswer | None = None
    _ended: dict[str, ToolEnded] = field(default_factory=dict)
    _results: dict[str, ToolResulted] = field(default_factory=dict)

    def _answered(self, event: AssistantAnswer) -> None:
        self._answer = event
        self._ended.clear()
        self._results.clear()

    def _tool_ended(self, event: ToolEnded) -> None:
        self._ended[event.call_id] = event

    def _resulted(self, event: ToolResulted) -> None:
        self._results[event.call_id] = event

    def _step_ended(self, event: StepEnd) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        calls = [block for block in answer.content if type(block) is CallBlock]
        if not calls:  # an answer that a plugin would not let be the last one
            self.digests.append(sha256(content_text(answer.content).encode()).digest())
            return
        reached = any(self._code(call.call_id) not in NEVER_REACHED for call in calls)
        self.malformed = 0 if reached else self.malformed + 1
        if self.polling and all(any(fnmatchcase(call.name, pattern) for pattern in self.polling) for call in calls):
            self.digests.append(None)
        else:
            self.digests.append(_digest(map(self._facts, calls)))

    READS: ClassVar = {
        AssistantAnswer: _answered,
        ToolEnded: _tool_ended,
        ToolResulted: _resulted,
        StepEnd: _step_ended,
    }

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
