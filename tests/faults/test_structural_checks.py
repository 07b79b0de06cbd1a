"""L3: what append refuses before it exists; found missing by mutation.py."""

from __future__ import annotations

import pytest

from checkrein.errors import InvariantViolation
from checkrein.events import AssistantPartial, StepStart, TurnStart
from checkrein.session import Session

TRIGGER = {"kind": "input", "ids": []}


def test_L3_O2_the_next_turn_does_not_start_while_one_is_open() -> None:
    session = Session("s")
    session.append(TurnStart, turn=1, trigger=TRIGGER)
    with pytest.raises(InvariantViolation) as refused:
        session.append(TurnStart, turn=2, trigger=TRIGGER)
    assert refused.value.rule == "O2"
    assert len(session) == 1


def test_L3_O5_a_partial_text_lies_in_its_step() -> None:
    session = Session("s")
    session.append(TurnStart, turn=1, trigger=TRIGGER)
    for turn, step in ((1, 1), (1, 0)):
        with pytest.raises(InvariantViolation):
            session.append(AssistantPartial, turn=turn, step=step, text="x")
    session.append(StepStart, turn=1, step=1)
    with pytest.raises(InvariantViolation):
        session.append(AssistantPartial, turn=1, step=2, text="x")
    session.append(AssistantPartial, turn=1, step=1, text="x")
