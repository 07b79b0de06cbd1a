"""Rules O6 and O11: the order inside turn and step (T1), and the reason a turn ends with (T4)."""

from __future__ import annotations

from typing import Any

from checkrein.events import TurnEnd
from checkrein.messages import ThinkingBlock

from .folds import Fold, Handler, Loose, Where, differs
from .rules import Report

__all__ = ["Order", "REASONS", "ERROR_KINDS", "CAUSES"]

REASONS = frozenset(("completed", "cancelled", "error", "step_limit", "interrupted", "disposed"))
ERROR_KINDS = frozenset(
    ("generate", "stream", "timeout", "max_tokens", "refused", "output", "plugin", "store", "internal")
)
CAUSES = frozenset(("user", "parent", "hook", "budget", "signal", "task"))

# Phases of a step, in order. A failed attempt may leave its partial text and be followed by another one.
INPUT, REQUEST, FAILED, FAILED_SHOWN, ENDED, ANSWERED, PARTIAL, RESULTS = range(8)
_NAMES = (
    "taking input",
    "in a request",
    "after a failed request",
    "after a failed request and its partial text",
    "after a request",
    "answered",
    "given up",
    "answering calls",
)

_BEFORE_REQUEST = (INPUT, FAILED, FAILED_SHOWN)


class Order(Fold):
    """Follows the phase of the open step."""

    def __init__(self, report: Report, where: Where) -> None:
        super().__init__(report, where)
        self._begin()
        self._answered_without_calls = False

    def _begin(self) -> None:
        self._phase = INPUT
        self._attempt = 0
        self._bursts: set[int] = set()

    def handlers(self) -> dict[str, Handler]:
        """Everything of a turn that is not free."""
        return {
            "turn/start": Order._turn_start,
            "turn/end": Order._turn_end,
            "user/message": Order._user_message,
            "step/start": Order._step_start,
            "steering/message": Order._input,
            "context/message": Order._context,
            "request/header": Order._header,
            "request/start": Order._request_start,
            "assistant/thinking": Order._thinking,
            "request/end": Order._request_end,
            "assistant/message": Order._answer,
            "assistant/partial": Order._partial,
            "tool/call": Order._call,
            "tool/result": Order._result,
            "step/end": Order._step_end,
        }

    def lost(self) -> None:
        """Begin anew."""
        self._begin()

    # --- a turn ----------------------------------------------------------------------------------------

    def _turn_start(self, event: Any) -> None:
        self._answered_without_calls = False

    def _user_message(self, event: Any) -> None:
        where = self.where
        if where.steps:
            self.report.add("O6", f"user/message {event.id} after the first step of turn {where.turn}", where.turn_seq)

    def _turn_end(self, event: Any) -> None:
        if type(event) is not TurnEnd:
            return
        reason = event.reason
        problem = None
        if reason.kind not in REASONS:
            problem = f"expected one of {', '.join(sorted(REASONS))}, got {reason.kind!r}"
        elif reason.kind == "cancelled" and (reason.cause is None or reason.cause.kind not in CAUSES):
            problem = f"cancelled needs a cause, one of {', '.join(sorted(CAUSES))}, got {reason.cause_text or None!r}"
        elif reason.kind == "error" and reason.error not in ERROR_KINDS:
            problem = f"error needs a kind, one of {', '.join(sorted(ERROR_KINDS))}, got {reason.error!r}"
        elif reason.kind == "step_limit" and differs(reason.max_steps, event.steps):
            problem = f"step_limit of {reason.max_steps} after {event.steps} steps"
        elif reason.kind == "completed" and not self._answered_without_calls:
            problem = "completed, but its last step gave no answer without tool calls"
        if problem is not None:
            self.report.add("O11", f"turn {event.turn}: {problem}", self.where.turn_seq)

    # --- a step ----------------------------------------------------------------------------------------

    def _step_start(self, event: Any) -> None:
        self._begin()
        self._answered_without_calls = False

    def _out_of_order(self, event: Any) -> None:
        where = self.where
        self.report.add("O6", f"{event.type} while step {where.step} is {_NAMES[self._phase]}", where.step_seq)

    def _step_end(self, event: Any) -> None:
        if self._phase == REQUEST:
            self._out_of_order(event)

    def _input(self, event: Any) -> None:
        if self._phase != INPUT:
            self._out_of_order(event)

    def _context(self, event: Any) -> None:
        if self.where.step:
            self._input(event)

    def _header(self, event: Any) -> None:
        if self._phase not in _BEFORE_REQUEST:
            self._out_of_order(event)

    def _request_start(self, event: Any) -> None:
        if self._phase not in _BEFORE_REQUEST:
            self._out_of_order(event)
        expected = self._attempt + 1
        if differs(event.attempt, expected):
            self.report.add("O4", f"expected attempt {expected}, got attempt {event.attempt}", self.where.step_seq)
        self._attempt = event.attempt or expected
        self._phase = REQUEST
        self._bursts.clear()

    def _thinking(self, event: Any) -> None:
        self._in_request(event)
        if event.index is not None:
            self._bursts.add(event.index)

    def _request_end(self, event: Any) -> None:
        self._in_request(event)
        if differs(event.attempt, self._attempt):
            self.report.add("O5", f"request/end names attempt {event.attempt} inside attempt {self._attempt}")
        self._phase = ENDED if event.outcome == "ok" or type(event) is Loose else FAILED

    def _in_request(self, event: Any) -> None:
        if self._phase == REQUEST:
            return
        self._out_of_order(event)
        if self._phase == INPUT:  # no request/start: go on as if it had been there, one fault is one violation
            self._phase = REQUEST
            self._attempt += 1

    def _answer(self, event: Any) -> None:
        if self._phase != ENDED:
            self._out_of_order(event)
        self._phase = ANSWERED
        self._answered_without_calls = not self.where.calls
        if type(event) is Loose:
            return
        for block in event.content:
            if type(block) is ThinkingBlock and block.index not in self._bursts:
                self.report.add(
                    "O6", f"the answer holds thinking {block.index}, which no assistant/thinking of its attempt has"
                )

    def _partial(self, event: Any) -> None:
        if self._phase != FAILED and self._phase != ENDED:
            self._out_of_order(event)
        self._phase = FAILED_SHOWN if self._phase == FAILED else PARTIAL

    def _call(self, event: Any) -> None:
        if event.parent is not None or self._phase == ANSWERED:
            return
        self._out_of_order(event)
        if self._phase < ANSWERED:
            self._phase = ANSWERED

    def _result(self, event: Any) -> None:
        if self._phase < ANSWERED:
            return  # its call is missing or misplaced: O8, or O6 above
        if self._phase == PARTIAL:
            self._out_of_order(event)
        self._phase = RESULTS
