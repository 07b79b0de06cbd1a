"""L3: what append refuses before it exists; found missing by mutation.py."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein.errors import InvariantViolation
from checkrein.events import (
    AssistantAnswer,
    AssistantPartial,
    CompactionEnd,
    CompactionStart,
    RequestEnd,
    RequestStart,
    StepStart,
    ToolCalled,
    ToolStarted,
    TurnStart,
)
from checkrein.messages import CallBlock, TextBlock
from checkrein.session import Session

TRIGGER = {"kind": "input", "ids": []}


def test_L3_O2_the_next_turn_does_not_start_while_one_is_open() -> None:
    session = Session("s")
    session.append(TurnStart(turn=1, trigger=TRIGGER))
    with pytest.raises(InvariantViolation) as refused:
        session.append(TurnStart(turn=2, trigger=TRIGGER))
    assert refused.value.rule == "O2"
    assert len(session) == 1


def refused(session: Session, rule: str, kind: type[Any], **fields: Any) -> None:
    length = len(session)
    with pytest.raises(InvariantViolation) as refusal:
        session.append(kind(**fields))
    assert (refusal.value.rule, len(session)) == (rule, length)


def asked(session: Session, attempt: int, outcome: str | None) -> None:
    session.append(RequestStart(turn=1, step=1, attempt=attempt, header=0, messages=1, digest=""))
    if outcome is not None:
        session.append(RequestEnd(turn=1, step=1, attempt=attempt, outcome=outcome))


def test_L3_O5_a_partial_text_lies_in_its_step() -> None:
    session = Session("s")
    session.append(TurnStart(turn=1, trigger=TRIGGER))
    for turn, step in ((1, 1), (1, 0)):
        with pytest.raises(InvariantViolation):
            session.append(AssistantPartial(turn=turn, step=step, text="x"))
    session.append(StepStart(turn=1, step=1))
    refused(session, "O5", AssistantPartial, turn=1, step=2, text="x")
    asked(session, 1, "error")
    session.append(AssistantPartial(turn=1, step=1, text="x"))


def test_L3_O6_a_partial_text_stands_where_the_oracle_has_it() -> None:
    partial = {"turn": 1, "step": 1, "text": "x"}
    session = Session("s")
    session.append(TurnStart(turn=1, trigger=TRIGGER))
    session.append(StepStart(turn=1, step=1))
    refused(session, "O6", AssistantPartial, **partial)
    asked(session, 1, None)
    refused(session, "O6", AssistantPartial, **partial)
    session.append(RequestEnd(turn=1, step=1, attempt=1, outcome="error"))
    session.append(AssistantPartial(**partial))
    refused(session, "O6", AssistantPartial, **partial)
    asked(session, 2, "ok")
    session.append(AssistantPartial(**partial))
    refused(session, "O6", AssistantAnswer, turn=1, step=1, content=[TextBlock("given up")])


def test_L3_O21_one_compaction_at_a_time() -> None:
    session = Session("s")
    session.append(CompactionStart(id="k1", range=(0, 0)))
    refused(session, "O21", CompactionStart, id="k2", range=(0, 0))
    session.append(CompactionEnd(id="k1", range=(0, 0), outcome="ok"))
    session.append(CompactionStart(id="k2", range=(0, 0)))


def test_L3_O4_attempts_of_a_request_and_of_a_call_are_consecutive() -> None:
    session = Session("s")
    session.append(TurnStart(turn=1, trigger=TRIGGER))
    session.append(StepStart(turn=1, step=1))
    request = {"turn": 1, "step": 1, "header": 0, "messages": 1, "digest": ""}
    for attempt in (0, 2):
        refused(session, "O4", RequestStart, attempt=attempt, **request)
    asked(session, 1, "ok")
    session.append(AssistantAnswer(turn=1, step=1, content=[CallBlock("c1.1.1", "act", "{}")]))
    session.append(ToolCalled(turn=1, step=1, call_id="c1.1.1", name="act"))
    call = {"turn": 1, "step": 1, "call_id": "c1.1.1", "effect": "idempotent"}
    for attempt in (0, 2):
        refused(session, "O4", ToolStarted, attempt=attempt, **call)
    session.append(ToolStarted(attempt=1, **call))
    refused(session, "O4", ToolStarted, attempt=1, **call)
