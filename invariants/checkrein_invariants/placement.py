"""Rules O1 to O5: the numbers of events, turns and steps, and which event lies where.

After lost events (a jump of `seq`) the fold is adrift: nothing that belongs to a turn is judged until
the next turn/start. Not here: the order inside a step (order.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .folds import Fold, Loose, Where, differs
from .rules import Report

__all__ = ["Placement"]

_IN_STEP = (
    "steering/message",
    "request/header",
    "request/start",
    "request/end",
    "assistant/thinking",
    "assistant/partial",
    "assistant/message",
    "tool/call",
    "tool/start",
    "tool/end",
    "tool/result",
)


class Placement(Fold):
    """Follows turns and steps, and tells the oracle whether an event may be folded further."""

    def __init__(self, report: Report, where: Where) -> None:
        super().__init__(report, where)
        self._next_seq = 0
        self._last_turn = 0
        self._adrift = False
        self._jumped = False

    def number(self, seq: int) -> bool | None:
        """Check the event's seq (O1); False if events were lost before it, None if it was there already."""
        expected, self._next_seq = self._next_seq, seq + 1
        if seq == expected:
            return True
        after = expected - 1
        if seq < expected:
            self.report.add("O1", f"expected seq {expected}, got {seq}: it was there already", after)
            self._next_seq = expected
            return None
        self.report.hold(
            ("gap", after, seq), "O1", f"expected seq {expected}, got {seq}, and no log/gap names it", after
        )
        return False

    def place(self, word: str, event: Any) -> bool:
        """Move on by this event; False if it lies where it may not and must not be folded further."""
        place = _PLACES.get(word)
        return place is None or place(self, word, event)

    def _context(self, word: str, event: Any) -> bool:
        if self.where.step or event.step is not None:
            return self._in_step(word, event)
        return self._in_turn(word, event)

    def lost(self) -> None:
        """Adrift until the next turn/start."""
        where = self.where
        self._last_turn = max(self._last_turn, where.turn)
        where.turn = where.step = where.steps = 0
        where.holes = self._adrift = self._jumped = True

    def finish(self, open_ok: bool) -> None:
        """An open turn or step is wrong, unless the log goes on."""
        where = self.where
        if open_ok or not where.turn:
            return
        if where.step:
            self.report.add("O3", f"step {where.step} of turn {where.turn} has no step/end", where.step_seq)
        self.report.add("O2", f"turn {where.turn} has no turn/end", where.turn_seq)

    # --- turns -----------------------------------------------------------------------------------------

    def _turn_start(self, word: str, event: Any) -> bool:
        where = self.where
        if where.turn:
            self.report.add("O2", f"turn {event.turn} starts while turn {where.turn} is open", where.turn_seq)
            self._last_turn = where.turn
        expected = self._last_turn + 1
        if differs(event.turn, expected) and not (self._jumped and (event.turn or 0) > expected):
            self.report.add("O4", f"expected turn {expected}, got turn {event.turn}")
        self._open_turn(expected if event.turn is None else event.turn)
        self._adrift = self._jumped = False
        return True

    def _open_turn(self, number: int) -> None:
        where = self.where
        where.turn, where.step, where.steps = number, 0, 0
        where.turn_seq = self.report.seq
        self._last_turn = number

    def _turn_end(self, word: str, event: Any) -> bool:
        if not self._in_turn(word, event):
            return False
        where = self.where
        if where.step:
            self.report.add("O3", f"turn {where.turn} ends while its step {where.step} is open", where.step_seq)
        if differs(event.steps, where.steps):
            self.report.add("O4", f"turn {where.turn} had {where.steps} steps, its turn/end says {event.steps}")
        return True

    def closed(self, word: str) -> None:
        """Leave the turn or step, after all folds have seen its end."""
        where = self.where
        if word == "turn/end":
            where.turn = where.step = where.steps = 0
        elif word == "step/end":
            where.step = 0

    def _in_turn(self, word: str, event: Any) -> bool:
        where, number = self.where, event.turn
        if self._adrift:
            self._last_turn = max(self._last_turn, number or 0)
            return False
        if where.turn:
            if not differs(number, where.turn):
                return True
            self.report.add("O5", f"{word} names turn {number} inside turn {where.turn}", where.turn_seq)
            return False
        if word == "turn/end":
            self.report.add("O2", f"turn/end of turn {number}, which is not open")
            self._last_turn = max(self._last_turn, number or 0)
            return False
        if number is None or number <= self._last_turn:
            self.report.add("O5", f"{word} of turn {number} outside any turn")
            return False
        self.report.add("O2", f"{word} of turn {number}, which has no turn/start")
        self._open_turn(number)
        return True

    # --- steps -----------------------------------------------------------------------------------------

    def _step_start(self, word: str, event: Any) -> bool:
        if not self._in_turn(word, event):
            return False
        where = self.where
        if where.step:
            self.report.add("O3", f"step {event.step} starts while step {where.step} is open", where.step_seq)
        expected = where.steps + 1
        if differs(event.step, expected):
            self.report.add("O4", f"expected step {expected} of turn {where.turn}, got step {event.step}")
        self._open_step(event.step or expected)
        return True

    def _open_step(self, number: int) -> None:
        where = self.where
        where.step = number
        where.steps += 1
        where.step_seq = self.report.seq

    def _step_end(self, word: str, event: Any) -> bool:
        if not self._in_turn(word, event):
            return False
        where = self.where
        if not where.step:
            self.report.add("O3", f"step/end of step {event.step}, which is not open")
            return False
        if differs(event.step, where.step):
            self.report.add("O5", f"step/end names step {event.step} inside step {where.step}", where.step_seq)
        return True

    def _in_step(self, word: str, event: Any) -> bool:
        where, number = self.where, event.step
        if number is not None and number == where.step and event.turn == where.turn and not self._adrift:
            return True
        if not self._in_turn(word, event):
            return False
        if where.step:
            if word == "context/message" and number is None and type(event) is not Loose:
                self.report.add("O5", f"{word} inside step {where.step} does not name it", where.step_seq)
            if not differs(number, where.step):
                return True
            self.report.add("O5", f"{word} names step {number} inside step {where.step}", where.step_seq)
            return False
        if number is not None and number > where.steps:
            self.report.add("O3", f"{word} of step {number} of turn {where.turn}, which has no step/start")
            self._open_step(number)
            return True
        self.report.add("O5", f"{word} of step {number} of turn {where.turn} outside any step")
        return False

    # --- gaps ------------------------------------------------------------------------------------------

    def _gap(self, word: str, event: Any) -> bool:
        if not self.report.settle(("gap", event.after, event.before)):
            self.report.add("O1", f"log/gap names {event.after} to {event.before}, where nothing is missing")
        return True


_PLACES: dict[str, Callable[[Placement, str, Any], bool]] = {
    "turn/start": Placement._turn_start,
    "turn/end": Placement._turn_end,
    "step/start": Placement._step_start,
    "step/end": Placement._step_end,
    "user/message": Placement._in_turn,
    "context/message": Placement._context,
    "log/gap": Placement._gap,
    **dict.fromkeys(_IN_STEP, Placement._in_step),
}
