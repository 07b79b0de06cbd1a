"""Rules O20 to O22 and O25: what else is opened and closed, approvals, compactions, balance rules; and faults."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from typing import Any

from checkrein.events import FreeEvent, PluginFaulted, ToolResulted, TurnEnd
from checkrein.eventtypes import Balance

from .calls import Calls
from .folds import Fold, Handler, Where, differs
from .rules import Report

__all__ = ["Approvals", "Compactions", "Balances", "Faults"]

_ACTIONS = frozenset(("turn_ended", "refused", "contained", "switched_off"))
_BY_FAULT = frozenset(("REFUSED_BY_FAULT", "WITHHELD_BY_FAULT"))


class Approvals(Fold):
    """O20."""

    def __init__(self, report: Report, where: Where, calls: Calls) -> None:
        super().__init__(report, where)
        self._calls = calls
        self._open: dict[str, int] = {}
        self._done: dict[str, int] = {}

    def handlers(self) -> dict[str, Handler]:
        """Questions and answers."""
        return {
            "approval/asked": Approvals._asked,
            "approval/decided": Approvals._decided,
            "turn/end": Approvals._turn_end,
        }

    def lost(self) -> None:
        """They may have been decided in the gap."""
        self._done.update(self._open)
        self._open.clear()

    def finish(self, open_ok: bool) -> None:
        """Nothing stays undecided."""
        if not open_ok:
            self._turn_end(None)

    def _asked(self, event: Any) -> None:
        if event.id is None:
            return
        if event.id in self._open or event.id in self._done:
            self.report.add("O20", f"approval {event.id} was asked before", self._open.get(event.id, 0))
        if event.call_id is not None and self.where.turn and not self._calls.is_open(event.call_id):
            self.report.add("O20", f"approval {event.id} asks for {event.call_id}, which is no open call")
        self._open[event.id] = event.seq

    def _decided(self, event: Any) -> None:
        if event.id is None:
            return
        asked = self._open.pop(event.id, None)
        if asked is not None:
            self._done[event.id] = event.seq
        elif event.id in self._done:
            if not self.where.holes:
                self.report.add("O20", f"approval {event.id} is decided twice", self._done[event.id])
        elif not self.where.holes:
            self.report.add("O20", f"approval {event.id} is decided, but was never asked")

    def _turn_end(self, event: Any) -> None:
        for approval, seq in self._open.items():
            self.report.add("O20", f"approval {approval} is neither decided nor closed", seq)
        self._done.update(self._open)
        self._open.clear()


class Compactions(Fold):
    """O21. Keeps the stretches from an answer with calls to its last result: no range may end in one."""

    def __init__(self, report: Report, where: Where, calls: Calls) -> None:
        super().__init__(report, where)
        self._calls = calls
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._open: Any = None
        self._summed = False

    def handlers(self) -> dict[str, Handler]:
        """Answers with calls, their closing, and compactions."""
        return {
            "assistant/message": Compactions._answer,
            "tool/result": Compactions._result,
            "step/end": Compactions._step_end,
            "turn/end": Compactions._turn_end,
            "compaction/start": Compactions._start,
            "compaction/summary": Compactions._summary,
            "compaction/end": Compactions._end,
        }

    def lost(self) -> None:
        """What was open is closed."""
        self._step_end(None)
        self._open = None

    def finish(self, open_ok: bool) -> None:
        """A compaction left open is wrong, unless the log goes on."""
        if not open_ok:
            self._turn_end(None)

    def _answer(self, event: Any) -> None:
        if self.where.calls and len(self._starts) == len(self._ends):
            self._starts.append(event.seq)

    def _result(self, event: Any) -> None:
        if not self._calls.open:
            self._step_end(event)

    def _step_end(self, event: Any) -> None:
        if len(self._starts) > len(self._ends):
            self._ends.append(self.report.seq)

    def _start(self, event: Any) -> None:
        if self._open is not None:
            self.report.add("O21", f"compaction {event.id} starts while {self._open.id} is open", self._open.seq)
        self._open, self._summed = event, False

    def _summary(self, event: Any) -> None:
        if not self._fits(event):
            return
        if self._summed:
            self.report.add("O21", f"compaction {event.id} has two summaries", self._open.seq)
        self._summed = True
        if event.range is None:
            return
        first, last = event.range
        if not 0 <= first <= last < self._open.seq:
            self.report.add("O21", f"compaction {event.id} covers {first} to {last}, which is no range before it")
        elif (split := self._inside(first - 1)) is not None or (split := self._inside(last)) is not None:
            self.report.add(
                "O21", f"compaction {event.id} separates the calls of answer {split} from their results", split
            )
        if event.tokens_after >= event.tokens_before:
            self.report.add(
                "O21", f"compaction {event.id} makes no progress: {event.tokens_before} to {event.tokens_after} tokens"
            )

    def _inside(self, seq: int) -> int | None:
        """The answer whose results are not all there just after seq; None if a cut behind seq is fine."""
        at = bisect_right(self._starts, seq) - 1
        if at < 0:
            return None
        end = self._ends[at] if at < len(self._ends) else None
        return self._starts[at] if end is None or seq < end else None

    def _end(self, event: Any) -> None:
        if not self._fits(event):
            return
        self._open = None

    def _fits(self, event: Any) -> bool:
        if self._open is None:
            if not self.where.holes:
                self.report.add("O21", f"{event.type} {event.id}, which was not started")
            return False
        if differs(event.id, self._open.id) or (
            self._open.range is not None and differs(event.range, self._open.range)
        ):
            self.report.add("O21", f"{event.type} {event.id} does not fit compaction {self._open.id}", self._open.seq)
        return True

    def _turn_end(self, event: Any) -> None:
        if self._open is not None and (event is None or self._open.seq > self.where.turn_seq):
            self.report.add("O21", f"compaction {self._open.id} has no compaction/end", self._open.seq)
            self._open = None


class Balances(Fold):
    """O22: the balance rules that plugins registered."""

    def __init__(self, report: Report, where: Where, rules: Iterable[Balance]) -> None:
        super().__init__(report, where)
        self._rules = list(rules)
        self._open: dict[tuple[int, Hashable], tuple[int, Balance]] = {}

    def handlers(self) -> dict[str, Handler]:
        """Each rule's two event types; a turn's end closes everything (T3)."""
        out: dict[str, Handler] = {}
        if self._rules:
            for word in {word for rule in self._rules for word in (rule.opens, rule.closes)}:
                out[word] = Balances._event
            out["turn/end"] = Balances._turn_end
        return out

    def lost(self) -> None:
        """They may have been closed in the gap."""
        self._open.clear()

    def finish(self, open_ok: bool) -> None:
        """Nothing stays open."""
        if not open_ok:
            self._all_open()

    def _event(self, event: Any) -> None:
        for number, rule in enumerate(self._rules):
            value = event.fields.get(rule.key) if type(event) is FreeEvent else getattr(event, rule.key, None)
            key = (number, value if isinstance(value, Hashable) else repr(value))
            if event.type == rule.opens:
                if key in self._open:
                    self.report.add("O22", f"{rule.opens} {rule.key}={value!r} is open already", self._open[key][0])
                self._open[key] = (event.seq, rule)
            elif event.type == rule.closes and self._open.pop(key, None) is None and not self.where.holes:
                self.report.add("O22", f"{rule.closes} {rule.key}={value!r}, which is not open")

    def _turn_end(self, event: Any) -> None:
        self._all_open()

    def _all_open(self) -> None:
        for (_, value), (seq, rule) in self._open.items():
            self.report.add("O22", f"{rule.opens} {rule.key}={value!r} has no {rule.closes}", seq)
        self._open.clear()


class Faults(Fold):
    """O25 as far as the log tells."""

    def __init__(self, report: Report, where: Where) -> None:
        super().__init__(report, where)
        self._turn: list[PluginFaulted] = []  # at most _KEPT faults of the open turn
        self._refusals: list[tuple[int, str]] = []

    _KEPT = 100

    def handlers(self) -> dict[str, Handler]:
        """Faults, and what says that there was one."""
        return {
            "plugin/fault": Faults._fault,
            "tool/result": Faults._result,
            "turn/start": Faults._turn_start,
            "turn/end": Faults._turn_end,
        }

    def lost(self) -> None:
        """The fault may be in the gap."""
        self._refusals.clear()

    def _turn_start(self, event: Any) -> None:
        self._turn.clear()
        self._refusals.clear()

    def _fault(self, event: Any) -> None:
        if type(event) is not PluginFaulted:
            return
        if not event.plugin:
            self.report.add("O25", f"a fault in {event.hook} without its author")
        elif event.action not in _ACTIONS:
            self.report.add("O25", f"expected an action of {', '.join(sorted(_ACTIONS))}, got {event.action!r}")
        if len(self._turn) < self._KEPT:
            self._turn.append(event)

    def _result(self, event: Any) -> None:
        if type(event) is not ToolResulted or event.error is None or event.error.code not in _BY_FAULT:
            return
        if len(self._refusals) < self._KEPT:
            self._refusals.append((event.seq, event.error.code))

    def _turn_end(self, event: Any) -> None:
        if len(self._turn) >= self._KEPT or self.where.holes:
            return
        if self._refusals and not any(fault.action in ("refused", "switched_off") for fault in self._turn):
            seq, code = self._refusals[0]
            self.report.add("O25", f"a result says {code}, but the turn has no fault that refused it", seq)
        if type(event) is not TurnEnd or event.reason.kind != "error" or event.reason.error != "plugin":
            return
        author = event.reason.plugin
        if not any(fault.action == "turn_ended" and not differs(author, fault.plugin) for fault in self._turn):
            self.report.add("O25", f"plugin {author!r} ended turn {event.turn}, but its fault is not recorded")
