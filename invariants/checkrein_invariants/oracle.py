"""The oracle: feed it events, ask it what is wrong.

It reads the log alone and shares no code with the harness's own state, so that it can disagree with
it. What needs the running agent is in watch.py, what needs the derived history in deep.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from checkrein.events import KNOWN, AnyEvent, FreeEvent
from checkrein.eventtypes import Balance
from checkrein.messages import Usage

from .calls import Calls
from .folds import Fold, Handler, Loose, Where
from .inputs import Inputs
from .order import Order
from .pairs import Approvals, Balances, Compactions, Faults
from .placement import PLACES, Place, Placement
from .requests import Requests
from .rules import Report, Violation

__all__ = ["Oracle", "check_events"]


class Reading(NamedTuple):
    """What becomes of an event of one type.

    Attributes:
        place: says whether it lies where it may; None if it may lie anywhere.
        readers: the folds that read it, by their index, and how.
    """

    place: Place | None
    readers: list[tuple[int, Handler]]


# By class; free events, which all have the same one, by their word.
Readings: TypeAlias = dict[type | str, Reading]

_made: dict[frozenset[str], Readings] = {}
_UNREAD = Reading(None, [])


class Oracle:
    """Checks one session's log, event by event, each at constant cost.

    Args:
        balances: the balance rules that plugins registered (O22).
    """

    def __init__(self, balances: Iterable[Balance] = ()) -> None:
        self.report = Report()
        self.where = where = Where()
        report = self.report
        self._placement = placement = Placement(report, where)
        calls = Calls(report, where)
        rules = tuple(balances)
        self._requests = Requests(report, where)
        # Compactions read whether calls are open after Calls has folded the event, so Calls comes first; Placement
        # leaves a turn or step that ends, so it comes last: every fold sees the end inside what it ends.
        self._folds: tuple[Fold, ...] = (
            Order(report, where),
            calls,
            Inputs(report, where),
            self._requests,
            Approvals(report, where, calls),
            Compactions(report, where, calls),
            Balances(report, where, rules),
            Faults(report, where),
            placement,
        )
        self._readings = _readings(self._folds, rules)

    def feed(self, event: AnyEvent) -> None:
        """Check the next event of the log.

        Args:
            event: as decoded or as committed; the oracle keeps no change of it.
        """
        placement, folds = self._placement, self._folds
        self.report.seq = seq = event.seq
        if seq != placement.next_seq:
            if not placement.jumped(seq):
                return
            for fold in folds:
                fold.lost()
        placement.next_seq = seq + 1
        kind: type | str = type(event)
        if kind is FreeEvent:
            kind = event.type
            if kind in KNOWN:
                event = Loose(event)  # type: ignore[arg-type,assignment]
        place, readers = self._readings.get(kind, _UNREAD)
        if place is None or place(placement, event):
            for index, handler in readers:
                handler(folds[index], event)

    def begin_at(self, seq: int) -> None:
        """Begin in the midst of a log: what stood before is not known, as behind a gap, and not missed either."""
        self._placement.next_seq = seq
        for fold in self._folds:
            fold.lost()

    def finish(self, open_ok: bool = False) -> list[Violation]:
        """Check what the end of the log shows, and return all violations.

        Args:
            open_ok: the log may go on (it is live, or will be repaired at the next open), so an open
                turn is no violation.

        Returns:
            The violations, in the order of the log.
        """
        for fold in self._folds:
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


def _readings(folds: Sequence[Fold], rules: Sequence[Balance]) -> Readings:
    """What becomes of each event type that is placed or read.

    One table serves all oracles over the same registered types: of its own it was most of an idle agent's memory.
    """
    words = frozenset(word for rule in rules for word in (rule.opens, rule.closes))
    readings = _made.get(words)
    if readings is None:
        readings = _made[words] = {word: Reading(place, []) for word, place in PLACES.items()}
        for index, fold in enumerate(folds):
            for word, handler in fold.handlers().items():
                readings.setdefault(word, Reading(None, [])).readers.append((index, handler))
        readings.update({KNOWN[word]: reading for word, reading in readings.items() if word in KNOWN})
    return readings


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
