"""Rules O7 to O10 and O19: calls, from the answer's block over start and end to the one result."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from checkrein.events import SessionRepaired, ToolResulted

from .folds import Fold, Handler, Loose, Where, differs
from .rules import Report

__all__ = ["Calls"]

_MAX_LOST = 10_000


class _Call(Struct, gc=False):
    """A call of the open step."""

    place: int  # in the model's order; nested calls have none of it
    nested: bool
    seq: int
    logged: bool  # its tool/call is there
    starts: int = 0
    attempt: int = 0
    effectful: bool = False
    end: int | None = None  # seq of its tool/end
    failed: bool | None = None  # what its tool/end said
    result: int | None = None


class Calls(Fold):
    """Follows the calls of the open step; of closed ones it keeps the ids."""

    def __init__(self, report: Report, where: Where) -> None:
        super().__init__(report, where)
        self._seen: dict[str, int] = {}  # every call id -> seq of its first event
        self._lost: dict[str, None] = {}  # calls that may have lost their result in a gap
        self._begin()

    def _begin(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._order: list[str] = []  # the model's order
        self._logged = 0  # top-level tool/call events so far
        self._done = 0  # how many of the order have results
        self._answer = False

    def handlers(self) -> dict[str, Handler]:
        """Answers, everything of a call, and the repair of old ones."""
        return {
            "step/start": Calls._step_start,
            "assistant/message": Calls._answered,
            "tool/call": Calls._called,
            "tool/start": Calls._started,
            "tool/end": Calls._ended,
            "tool/result": Calls._resulted,
            "tool/late": Calls._late,
            "step/end": Calls._close,
            "turn/end": Calls._close,
            "session/repaired": Calls._repaired,
        }

    def lost(self) -> None:
        """Calls that were open may have been answered in the gap."""
        for call_id, call in self._calls.items():
            if call.result is None and len(self._lost) < _MAX_LOST:
                self._lost[call_id] = None
        self._begin()

    def finish(self, open_ok: bool) -> None:
        """Calls of a step that stays open have no result."""
        if not open_ok and self.where.step:
            self._close(None)

    @property
    def open(self) -> bool:
        """Whether a call of an answer waits for its result."""
        return self._done < len(self._order)

    def is_open(self, call_id: str) -> bool:
        """Whether this call waits for its result."""
        call = self._calls.get(call_id)
        return call is not None and call.result is None

    # --- an answer and its calls -----------------------------------------------------------------------

    def _step_start(self, event: Any) -> None:
        if self._answer or self._calls:  # the step before has no end
            self._close(None)

    def _add(self, call_id: str, *, nested: bool, logged: bool) -> None:
        seq = self.report.seq
        first = self._seen.setdefault(call_id, seq)
        if first != seq or call_id in self._calls:
            self.report.add("O9", f"call id {call_id} was used before", first)
            if call_id in self._calls:
                return
        self._calls[call_id] = _Call(len(self._order), nested, seq, logged)
        if not nested:
            self._order.append(call_id)

    def _answered(self, event: Any) -> None:
        self._answer = True
        for call_id in self.where.calls:
            self._add(call_id, nested=False, logged=False)

    def _called(self, event: Any) -> None:
        call_id = event.call_id
        if call_id is None:
            return
        if event.parent is not None:
            self._nested(call_id, event.parent)
            return
        call = self._calls.get(call_id)
        if call is None or call.logged:
            if call is None and self._answer:
                self.report.add(
                    "O10", f"tool/call {call_id}, which is no call block of the answer", self.where.step_seq
                )
            self._add(call_id, nested=False, logged=True)
            return
        call.logged = True
        if call.place < self._logged:
            self.report.add("O10", f"tool/call {call_id} comes after a later call of the answer", call.seq)
        self._logged = call.place + 1

    def _nested(self, call_id: str, parent: str) -> None:
        if not self.is_open(parent):
            self.report.add("O8", f"nested call {call_id} of {parent}, which is not open")
        self._add(call_id, nested=True, logged=True)

    # --- running ---------------------------------------------------------------------------------------

    def _find(self, event: Any) -> _Call | None:
        call_id = event.call_id
        if call_id is None:
            return None
        call = self._calls.get(call_id)
        if call is None:
            if not (self.where.holes and call_id in self._lost):
                self.report.add("O8", f"{event.type} of {call_id}, which is no call of this step", self.where.step_seq)
        elif call.result is not None:
            rule = "O7" if event.type == "tool/result" else "O8"
            self.report.add(rule, f"{event.type} of {call_id}, which has its result", call.result)
            return None
        return call

    def _started(self, event: Any) -> None:
        call = self._find(event)
        if call is None:
            return
        call.starts += 1
        call.effectful = call.effectful or event.effect == "effectful"
        if call.starts > 1 and call.effectful:
            self.report.add("O19", f"the effectful call {event.call_id} is started {call.starts} times", call.seq)
        if event.attempt is not None:
            if event.attempt != call.attempt + 1:
                self.report.add("O4", f"expected attempt {call.attempt + 1} of {event.call_id}, got {event.attempt}")
            call.attempt = event.attempt

    def _ended(self, event: Any) -> None:
        call = self._find(event)
        if call is None:
            return
        if call.end is not None:
            self.report.add("O7", f"a second tool/end of {event.call_id}", call.end)
            return
        if not call.nested and call.place <= self._done:
            self.report.add(
                "O6", f"tool/end of {event.call_id}, though no earlier call is open: its tool/result is due"
            )
        call.end = self.report.seq
        call.failed = None if type(event) is Loose else event.is_error

    def _resulted(self, event: Any) -> None:
        call = self._find(event)
        if call is None:
            return
        call.result = self.report.seq
        if type(event) is ToolResulted:
            self._check_result(call, event)
        if call.nested:
            return
        if call.place != self._done:
            earlier = self._order[self._done]
            self.report.add("O7", f"the result of {event.call_id} comes before that of {earlier}", call.seq)
        calls, order = self._calls, self._order
        while self._done < len(order) and calls[order[self._done]].result is not None:
            self._done += 1

    def _check_result(self, call: _Call, event: ToolResulted) -> None:
        name = event.call_id
        if differs(event.end, call.end):
            self.report.add("O7", f"the result of {name} names tool/end {event.end}, its tool/end is {call.end}")
        elif event.end is None and call.end is not None:
            self.report.add("O7", f"the result of {name} is not the one its tool/end holds", call.end)
        elif (event.end is None) == (event.content is None):
            self.report.add("O7", f"the result of {name} needs either content or end")
        elif call.failed is not None and event.is_error != call.failed:
            self.report.add("O7", f"the result of {name} and its tool/end differ in is_error", call.end or call.seq)
        if not event.is_error and event.by is None and not call.starts:
            self.report.add("O19", f"{name} has a result without error and was never started", call.seq)

    def _late(self, event: Any) -> None:
        call_id = event.call_id
        if call_id is None:
            return
        if call_id not in self._seen:
            if not self.where.holes:
                self.report.add("O8", f"tool/late of {call_id}, which is no call")
        elif self.is_open(call_id):
            self.report.add("O8", f"tool/late of {call_id}, which is still open", self._seen[call_id])

    # --- closing ---------------------------------------------------------------------------------------

    def _close(self, event: Any) -> None:
        for call_id, call in self._calls.items():
            if not call.logged:
                self.report.add("O10", f"the answer's call {call_id} has no tool/call", call.seq)
            if call.result is None:
                self.report.hold(("call", call_id), "O7", f"the step ends and {call_id} has no result", call.seq)
        self._begin()

    def _repaired(self, event: Any) -> None:
        if type(event) is not SessionRepaired:
            return
        for entry in event.calls:
            call_id = entry.get("call_id")
            if not isinstance(call_id, str) or self.report.settle(("call", call_id)):
                continue
            if call_id in self._lost:
                del self._lost[call_id]
            elif call_id in self._seen:
                self.report.add("O7", f"session/repaired answers {call_id}, which has its result", self._seen[call_id])
            elif not self.where.holes:
                self.report.add("O8", f"session/repaired answers {call_id}, which is no call")
