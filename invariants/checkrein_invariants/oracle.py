"""The oracle: feed it events, ask it what is wrong.

It reads the log alone and shares no code with the harness's own state, so that it can disagree with
it. What needs the running agent is in watch.py, what needs the derived history in deep.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from checkrein.events import KNOWN, AnyEvent
from checkrein.eventtypes import Balance
from checkrein.messages import Usage

from .calls import Calls
from .folds import WORDS, Fold, Handler, Loose, Where
from .inputs import Inputs
from .order import Order
from .pairs import Approvals, Balances, Compactions, Faults
from .placement import Placement
from .requests import Requests
from .rules import Report, Violation

__all__ = ["Oracle", "check_events"]

Readers: TypeAlias = dict[str, list[tuple[int, Handler]]]

_made: dict[frozenset[str], Readers] = {}


class Oracle:
    """Checks one session's log, event by event, each at constant cost.

    Args:
        balances: the balance rules that plugins registered (O22).
    """

    def __init__(self, balances: Iterable[Balance] = ()) -> None:
        self.report = Report()
        self.where = where = Where()
        report = self.report
        self._placement = Placement(report, where)
        calls = Calls(report, where)
        rules = tuple(balances)
        self._requests = Requests(report, where)
        # Compactions read whether calls are open after Calls has folded the event, so Calls comes first.
        self._folds: tuple[Fold, ...] = (
            Order(report, where),
            calls,
            Inputs(report, where),
            self._requests,
            Approvals(report, where, calls),
            Compactions(report, where, calls),
            Balances(report, where, rules),
            Faults(report, where),
        )
        self._readers = _readers(self._folds, rules)

    def feed(self, event: AnyEvent) -> None:
        """Check the next event of the log.

        Args:
            event: as decoded or as committed; the oracle keeps no change of it.
        """
        self.report.seq = event.seq
        placement = self._placement
        seen = placement.number(event.seq)
        if seen is None:
            return
        if not seen:
            placement.lost()
            for fold in self._folds:
                fold.lost()
        word = WORDS.get(type(event))
        if word is None:
            word = event.type
            if word in KNOWN:
                event = Loose(event)  # type: ignore[arg-type,assignment]
        if placement.place(word, event):
            for index, handler in self._readers.get(word, ()):
                handler(self._folds[index], event)
            # Only now, so that every fold saw the end inside what it ends.
            if word == "step/end" or word == "turn/end":
                placement.closed(word)

    def finish(self, open_ok: bool = False) -> list[Violation]:
        """Check what the end of the log shows, and return all violations.

        Args:
            open_ok: the log may go on (it is live, or will be repaired at the next open), so an open
                turn is no violation.

        Returns:
            The violations, in the order of the log.
        """
        for fold in (*self._folds, self._placement):
            fold.finish(open_ok)
        return self.violations

    @property
    def violations(self) -> list[Violation]:
        """The violations so far, in the order of the log."""
        return self.report.violations

    @property
    def open_turn(self) -> int:
        """The number of the open turn, 0 if there is none."""
        return self.where.turn

    @property
    def usage(self) -> Usage:
        """The sum over all requests."""
        return self._requests.usage


def _readers(folds: Sequence[Fold], rules: Sequence[Balance]) -> Readers:
    """Which folds read an event type, by their index, and how.

    One table serves all oracles over the same registered types: of its own it was most of an idle agent's memory.
    """
    words = frozenset(word for rule in rules for word in (rule.opens, rule.closes))
    readers = _made.get(words)
    if readers is None:
        readers = _made[words] = {}
        for index, fold in enumerate(folds):
            for word, handler in fold.handlers().items():
                readers.setdefault(word, []).append((index, handler))
    return readers


def check_events(
    events: Iterable[AnyEvent], *, open_ok: bool = False, balances: Iterable[Balance] = ()
) -> list[Violation]:
    """Check a whole log by its events.

    Args:
        events: in the order of the log.
        open_ok: the log may go on, so an open turn at its end is no violation.
        balances: the balance rules that plugins registered (O22).

    Returns:
        The violations, in the order of the log; none if it is right.
    """
    oracle = Oracle(balances)
    for event in events:
        oracle.feed(event)
    return oracle.finish(open_ok)
