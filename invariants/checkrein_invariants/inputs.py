"""Rule O12: input conservation (I3). Each accepted input is pending, taken by one event, or discarded."""

from __future__ import annotations

from typing import Any

from .folds import Fold, Handler, Loose, Where
from .rules import Report

__all__ = ["Inputs"]

_TAKES = {
    "user/message": ("queued", "steering"),  # steering that was left over, with its mark
    "steering/message": ("steering",),
    "context/message": ("context",),
}


class Inputs(Fold):
    """Follows each input by its id; the input event is the claim."""

    def __init__(self, report: Report, where: Where) -> None:
        super().__init__(report, where)
        self._pending: dict[str, tuple[int, str | None, Any, str | None]] = {}  # id -> seq, kind, content, key
        self._settled: dict[str, int] = {}  # id -> seq of what took or discarded it
        self._keys: dict[str, int] = {}  # of all but what was discarded: its client may try again
        self._due: list[str] = []  # the ids the open turn was started for

    def handlers(self) -> dict[str, Handler]:
        """The inbox and the three input events."""
        return {
            "inbox/accepted": Inputs._accepted,
            "inbox/replaced": Inputs._replaced,
            "inbox/discarded": Inputs._discarded,
            "turn/start": Inputs._turn_start,
            "user/message": Inputs._taken,
            "steering/message": Inputs._taken,
            "context/message": Inputs._taken,
            "step/start": Inputs._step_start,
        }

    def _accepted(self, event: Any) -> None:
        if event.id is None:
            return
        before = self._settled.get(event.id, self._pending.get(event.id, (None,))[0])
        if before is not None:
            self.report.add("O12", f"input {event.id} was accepted before", before)
            return
        if event.key is not None and self._keys.setdefault(event.key, event.seq) != event.seq:
            self.report.add("O12", f"input {event.id} repeats the key {event.key!r}", self._keys[event.key])
        self._pending[event.id] = (event.seq, event.kind, event.content, event.key)

    def _replaced(self, event: Any) -> None:
        if event.id in self._pending:
            seq, kind, _, key = self._pending[event.id]
            self._pending[event.id] = (seq, kind, event.content, key)
        elif self.where.holes and event.id is not None and event.id not in self._settled:
            self._pending[event.id] = (event.seq, None, event.content, None)  # its acceptance is lost
        else:
            self._not_pending(event)

    def _discarded(self, event: Any) -> None:
        found = self._pending.pop(event.id, None)
        if found is None:
            self._not_pending(event)
            return
        seq, _, _, key = found
        self._settled[event.id] = event.seq
        if key is not None and self._keys[key] == seq:
            del self._keys[key]

    def _not_pending(self, event: Any) -> None:
        if event.id is None:
            return
        before = self._settled.get(event.id)
        if before is not None:
            self.report.add("O12", f"{event.type} of input {event.id}, which was taken or discarded before", before)
        elif not self.where.holes:
            self.report.add("O12", f"{event.type} of input {event.id}, which was never accepted")
        self._settled.setdefault(event.id, event.seq)

    def _taken(self, event: Any) -> None:
        if event.id is None:  # context that a vote or a plugin brought
            return
        found = self._pending.pop(event.id, None)
        if found is None:
            self._not_pending(event)
            return
        seq, kind, content, _ = found
        self._settled[event.id] = event.seq
        if type(event) is Loose:
            return
        if kind is not None and kind not in _TAKES[event.type]:
            self.report.add("O12", f"{event.type} takes {event.id}, which is {kind} input", seq)
        elif content is not None and content != event.content:
            self.report.add("O12", f"{event.type} of {event.id} is not what was accepted", seq)
        elif kind == "steering" and event.type == "user/message" and event.mark != "steering":
            self.report.add("O12", f"{event.id} was steering and is taken as queued input without its mark", seq)

    # --- the inputs a turn was started for ---------------------------------------------------------------

    def _turn_start(self, event: Any) -> None:
        ids = event.trigger.get("ids") if event.trigger else None
        self._due = [input_id for input_id in ids if isinstance(input_id, str)] if isinstance(ids, list) else []

    def _step_start(self, event: Any) -> None:
        for input_id in self._due:
            if input_id in self._pending:
                seq = self._pending[input_id][0]
                self.report.add("O12", f"turn {self.where.turn} was started for {input_id} and did not take it", seq)
        self._due = []

    def lost(self) -> None:
        """What the open turn was started for may have been taken in the gap, and what is pending replaced."""
        self._due = []
        self._pending = {input_id: (seq, kind, None, key) for input_id, (seq, kind, _, key) in self._pending.items()}
