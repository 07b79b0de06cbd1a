"""Rules O1 to O5: the numbers of events, turns and steps, and which event lies where.

After lost events (a jump of `seq`) the fold is adrift: nothing that belongs to a turn is judged until
the next turn/start. Not here: the order inside a step (order.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from .folds import Fold, Handler, Loose, Where, call_ids, differs
from .rules import Report

__all__ = ["PLACES", "Place", "Placement"]

_IN_STEP = (
    "steering/message",
    "request/header",
    "request/start",
    "request/end",
    "assistant/thinking",
    "assistant/partial",
    "tool/call",
    "tool/start",
    "tool/end",
    "tool/result",
)


class Placement(Fold):
    """Follows turns and steps, and tells the oracle (PLACES) whether an event may be folded further.

    Attributes:
        next_seq: the seq of the event that comes next.
    """

    def __init__(self, report: Report, where: Where) -> None:
        super().__init__(report, where)
        self.next_seq = 0
        self._last_turn = 0
        self._adrift = False
        self._jumped = False

    def handlers(self) -> dict[str, Handler]:
        """What closes a turn or step: it is left when all other folds have seen its end."""
        return {"turn/end": Placement._left_turn, "step/end": Placement._left_step}

    def jumped(self, seq: int) -> bool:
        """Say that this is not the seq that comes next (O1); False if it was there already."""
        expected = self.next_seq
        after = expected - 1
        if seq < expected:
            self.report.add("O1", f"expected seq {expected}, got {seq}: it was there already", after)
            return False
        self.report.hold(
            ("gap", after, seq), "O1", f"expected seq {expected}, got {seq}, and no log/gap names it", after
        )
        return True

    def _context(self, event: Any) -> bool:
        if self.where.step or event.step is not None:
            return self._in_step(event)
        return self._in_turn(event)

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

    def _turn_start(self, event: Any) -> bool:
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

    def _turn_end(self, event: Any) -> bool:
        if not self._in_turn(event):
            return False
        where = self.where
        if where.step:
            self.report.add("O3", f"turn {where.turn} ends while its step {where.step} is open", where.step_seq)
        if differs(event.steps, where.steps):
            self.report.add("O4", f"turn {where.turn} had {where.steps} steps, its turn/end says {event.steps}")
        return True

    def _left_turn(self, event: Any) -> None:
        where = self.where
        where.turn = where.step = where.steps = 0

    def _left_step(self, event: Any) -> None:
        self.where.step = 0

    def _in_turn(self, event: Any) -> bool:
        where, number = self.where, event.turn
        if self._adrift:
            self._last_turn = max(self._last_turn, number or 0)
            return False
        if where.turn:
            if not differs(number, where.turn):
                return True
            self.report.add("O5", f"{event.type} names turn {number} inside turn {where.turn}", where.turn_seq)
            return False
        word = event.type
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

    def _step_start(self, event: Any) -> bool:
        if not self._in_turn(event):
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

    def _step_end(self, event: Any) -> bool:
        if not self._in_turn(event):
            return False
        where = self.where
        if not where.step:
            self.report.add("O3", f"step/end of step {event.step}, which is not open")
            return False
        if differs(event.step, where.step):
            self.report.add("O5", f"step/end names step {event.step} inside step {where.step}", where.step_seq)
        return True

    def _in_step(self, event: Any) -> bool:
        where, number = self.where, event.step
        if number == where.step and event.turn == where.turn and not self._adrift:
            return True
        if not self._in_turn(event):
            return False
        word = event.type
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

    def _answer(self, event: Any) -> bool:
        self.where.calls = call_ids(event)
        return self._in_step(event)

    # --- gaps ------------------------------------------------------------------------------------------

    def _gap(self, event: Any) -> bool:
        if not self.report.settle(("gap", event.after, event.before)):
            self.report.add("O1", f"log/gap names {event.after} to {event.before}, where nothing is missing")
        return True


Place: TypeAlias = Callable[[Placement, Any], bool]

PLACES: dict[str, Place] = {
    "turn/start": Placement._turn_start,
    "turn/end": Placement._turn_end,
    "step/start": Placement._step_start,
    "step/end": Placement._step_end,
    "user/message": Placement._in_turn,
    "context/message": Placement._context,
    "log/gap": Placement._gap,
    "assistant/message": Placement._answer,
    **dict.fromkeys(_IN_STEP, Placement._in_step),
}
