"""L1-L4 and T3: what a session keeps, what it refuses, whom it tells; with the real loop where a rule is about it."""

from __future__ import annotations

import json
import math
from typing import Any

import anyio
import pytest
from sessionkit import HELLO, TYPES, check_agrees, session, state_of, steps, whole

from checkrein import Agent, Harness, hookimpl, tool
from checkrein import events as ev
from checkrein.closing import closed, repair
from checkrein.codec import decode
from checkrein.errors import InvariantViolation, NotPlainJSON, RefusedAtAppend
from checkrein.memory_store import MemoryStore
from checkrein.messages import USER, Usage
from checkrein.session import Session
from checkrein.testing import ScriptedModel, call, text, thinking, usage

# --- L1 -----------------------------------------------------------------------------------------------------


def test_L1_every_projection_is_a_fold_of_the_log():
    held = whole()
    check_agrees(held)
    for cut in range(len(held.events) + 1):
        part = Session.load("s", held.events[:cut], held.lines[:cut], held.types)
        again = Session.load("s", [decode(line) for line in held.lines[:cut]], held.lines[:cut], held.types)
        assert state_of(part) == state_of(again), f"cut at {cut}"


def test_L1_the_loop_keeps_no_second_copy(run):
    """An agent over a loaded log asks the same next question as the one that wrote it."""
    store = MemoryStore()

    @tool(read_only=True)
    async def look(n: int) -> str:
        """Look."""
        return f"saw {n}"

    class Keeps:
        @hookimpl
        def session_flush(self, session: Any, gate: str) -> None:
            if session.writer is not None and session.writer.taken != len(session.lines):
                session.writer.append(session.lines[session.writer.taken :])

    async def main() -> Any:
        asked = []
        model = ScriptedModel([thinking("hm"), text("ok"), call("look", {"n": 1}), usage(input=5)], "done")
        async with Agent(model, tools=[look], plugins=[Keeps()], store=store) as agent:
            await agent.run("go")
            agent.inject("by the way")
            asked.append((agent.next_request(), agent.session.state.usage, [p.id for p in agent.pending]))
            session_id = agent.session.id
        async with Harness(
            tools=[look],
            plugins=[Keeps()],
            store=store,
            providers=[ScriptedModel("x")],
            found=(),
            overrides={"model": "scripted:x"},
        ) as harness:
            agent = await harness.resume(session_id)
            asked.append((agent.next_request(), agent.session.state.usage, [p.id for p in agent.pending]))
        return asked

    (before, used, pending), (after, used_after, pending_after) = run(main)
    assert list(before.messages) == list(after.messages) and before.tools == after.tools
    assert used == used_after and pending == pending_after == ["i2"]


def test_M10_latest_turn_and_total_usage_are_folds_of_the_log():
    held = whole()
    state, first, second = held.state, Usage(input=3, output=2), Usage(input=1, output=1)
    assert (state.usage_latest, state.usage_turn, state.usage) == (second, second, first + second)


def test_L1_the_events_of_a_turn_are_found_by_its_number():
    held = whole()
    first, second = held.turn_events(1), held.turn_events(2)
    assert (first[0].type, first[-1].type) == ("turn/start", "turn/end")
    assert (second[0].type, second[-1]) == ("turn/start", held.events[-1])
    assert held.turn_events(3) == []


def test_I3_an_id_of_the_log_is_never_given_again():
    held = session()
    held.append(ev.InboxAccepted(id="i12", kind="queued", content=HELLO, source=USER))  # eleven are lost in a gap
    assert held.next_input() == "i13"


def test_I3_a_clients_key_is_known_from_the_log_and_names_its_first_input():
    held = whole()
    assert held.state.keys == {"k": "i4"}
    held.append(ev.InboxAccepted(id="i6", kind="queued", content=HELLO, source=USER, key="k"))
    assert held.state.keys == {"k": "i4"}
    check_agrees(held)


# --- L2 -----------------------------------------------------------------------------------------------------


def test_L2_events_are_immutable_contiguous_and_encoded_once():
    held = whole()
    assert [event.seq for event in held.events] == list(range(len(held.events)))
    with pytest.raises(AttributeError):
        held.events[1].id = "other"  # type: ignore[union-attr, misc]
    assert [held.line(n) for n in range(len(held))] == held.lines
    for line in held.lines:
        assert json.loads(line)["crc"] and b"\n" not in line
    members = [list(json.loads(line))[:3] for line in held.lines]
    assert all(head == ["type", "seq", "time"] for head in members)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": object()}, "$.a"),
        ({"a": [1, {"b": {1, 2}}]}, "$.a[1].b"),
        ({"a": math.nan}, "$.a"),
        ({"a": [math.inf]}, "$.a[0]"),
        ({"a": {1: 2}}, "$.a"),
        ({"a": b"bytes"}, "$.a"),
        ({"a": (1, 2)}, None),
    ],
)
def test_L2_what_is_not_plain_json_is_refused_with_its_path(value, path):
    held = session()
    before = list(held.lines)
    if path is None:
        held.append_free("x/y", value)
        return
    with pytest.raises(NotPlainJSON) as info:
        held.append_free("x/y", value)
    assert info.value.path == path and held.lines == before
    check_agrees(held)


def test_L2_plain_json_is_kept_as_it_is():
    held = session()
    fields = {"a": [1, 1.5, -0.0, True, None, "x"], "b": {"c": {}, "d": 10**20}}
    event = held.append_free("notes/seen", fields)
    assert event.fields == fields and decode(held.lines[-1]).fields == fields


def test_L2_its_owner_cannot_change_an_event_afterwards():
    held = session()
    mine: dict[str, Any] = {"list": [1]}
    held.append_free("x/y", mine)
    mine["list"].append(2)
    assert held.events[-1].fields == {"list": [1]}  # type: ignore[union-attr]
    check_agrees(held)


@pytest.mark.parametrize("member", ["type", "seq", "time", "crc"])
def test_L2_an_event_cannot_bring_the_logs_own_members(member):
    with pytest.raises(RefusedAtAppend, match=member):
        session().append_free("x/y", {member: 1})


def test_L2_too_deep_is_refused_not_a_crash():
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    held = session()
    with pytest.raises(RefusedAtAppend):
        held.append_free("x/y", {"deep": deep})
    with pytest.raises(RefusedAtAppend):
        held.append(ev.ToolResulted(turn=1, step=1, call_id="c", content=[], is_error=False, value=deep))
    check_agrees(held)
    while deep:  # else its own deallocation recurses
        deep = deep[0]


# --- L3 -----------------------------------------------------------------------------------------------------


ILLEGAL: list[tuple[str, type[ev.Event], dict[str, Any]]] = [
    ("O2", ev.TurnEnd, {"turn": 1, "reason": ev.Reason("completed"), "steps": 0}),
    ("O5", ev.StepEnd, {"turn": 1, "step": 1}),
    ("O4", ev.TurnStart, {"turn": 2, "trigger": {}}),
    ("O2", ev.StepStart, {"turn": 1, "step": 1}),
    ("O2", ev.UserInput, {"turn": 1, "id": "i1", "content": HELLO, "source": USER}),
    ("O2", ev.ContextInput, {"turn": 1, "content": HELLO, "source": USER}),
    ("O12", ev.InboxDiscarded, {"id": "i1", "reason": "x"}),
    ("O12", ev.InboxAccepted, {"id": "i1", "kind": "shouted", "content": HELLO, "source": USER}),
    ("O5", ev.ToolCalled, {"turn": 1, "step": 1, "call_id": "c1.1.1", "name": "x"}),
    ("O5", ev.ToolResulted, {"turn": 1, "step": 1, "call_id": "c", "content": HELLO, "is_error": False}),
    ("O20", ev.ApprovalDecided, {"id": "a1", "outcome": "denied"}),
    ("O21", ev.CompactionEnd, {"id": "k", "range": (0, 1), "outcome": "ok"}),
    ("O1", ev.SessionCreated, {"format": 1, "session": "s", "agent": "a"}),
]


@pytest.mark.checkrein_oracle_off(reason="appends that are refused are the subject")
@pytest.mark.parametrize(("rule", "kind", "fields"), ILLEGAL, ids=lambda value: getattr(value, "__name__", None))
def test_L3_an_illegal_event_never_exists(rule, kind, fields):
    held = session()
    before, state = list(held.lines), state_of(held)
    told: list[Any] = []
    held.observe(told.append)
    with pytest.raises(InvariantViolation) as info:
        held.append(kind(**fields))
    assert info.value.rule == rule and f"{rule}:" in str(info.value)
    assert (held.lines, state_of(held), told) == (before, state, [])


@pytest.mark.checkrein_oracle_off(reason="appends that are refused are the subject")
def test_L3_a_step_does_not_end_while_a_call_is_unanswered():
    held = session()
    for step in steps(held)[:-1]:
        step()
    with pytest.raises(InvariantViolation, match=r"O7: .*c2\.1\.1 has no result"):
        held.append(ev.StepEnd(turn=2, step=1))
    with pytest.raises(InvariantViolation, match="O3"):
        held.append(ev.TurnEnd(turn=2, reason=ev.Reason("completed"), steps=1))
    with pytest.raises(InvariantViolation, match="O19"):
        held.append(ev.ToolStarted(turn=2, step=1, call_id="c2.1.1", attempt=2, effect="effectful"))
    with pytest.raises(InvariantViolation, match="O9"):
        held.append(ev.ToolCalled(turn=2, step=1, call_id="c2.1.1.1", name="act", parent="c2.1.1"))
    with pytest.raises(InvariantViolation, match="O7"):
        held.append(ev.ToolResulted(turn=2, step=1, call_id="c2.1.2", content=HELLO, is_error=False))
    check_agrees(held)


@pytest.mark.checkrein_oracle_off(reason="appends that are refused are the subject")
def test_L3_what_belongs_to_a_request_stands_in_its_step_and_before_its_end():
    held = session()
    for step in steps(held)[:14]:
        step()
    assert held.state.request_open
    with pytest.raises(InvariantViolation, match="O5"):
        held.append(ev.RequestEnd(turn=1, step=2, attempt=1, outcome="ok"))
    held.append(ev.RequestEnd(turn=1, step=1, attempt=1, outcome="ok"))
    with pytest.raises(InvariantViolation, match=r"O6: .*open request"):
        held.append(ev.AssistantThinking(turn=1, step=1, index=0, text="hm"))
    check_agrees(held)


def test_T3_for_every_prefix_closing_is_legal():
    held = whole()
    for cut in range(1, len(held.events) + 1):
        part = Session.load("s", held.events[:cut], held.lines[:cut], dict(TYPES))
        closed(part, ev.Reason("interrupted"))
        check_agrees(part)
        assert not part.state.turn_open and not part.state.step_open and not part.state.approvals
        assert not part.state.compactions and not part.state.open_pairs
    ends = [event for event in part.events if type(event) is ev.CompactionEnd]
    assert [(event.id, event.outcome) for event in ends] == [("k1", "ok"), ("k2", "interrupted")]


def test_T3_closing_struck_inside_goes_on_by_itself_and_then_raises():
    held = whole()
    struck: list[str] = []

    def strikes(event: Any) -> None:
        struck.append(event.type)
        raise KeyboardInterrupt(event.type)

    held.observe(strikes)
    with pytest.raises(KeyboardInterrupt) as info:
        closed(held, ev.Reason("interrupted"))
    assert str(info.value) == struck[0]  # the first
    assert struck[-2:] == ["step/end", "turn/end"] and not held.state.turn_open
    check_agrees(held)


def test_R2_what_was_set_aside_and_what_is_unanswered_are_each_said_alone():
    held = session()
    repair(held, set_aside_bytes=7)
    said = held.events[-1]
    assert isinstance(said, ev.SessionRepaired) and (said.set_aside_bytes, said.calls) == (7, [])
    log = whole()
    began = next(event.seq for event in log.events if type(event) is ev.ToolStarted)
    second = next(event.seq for event in log.events if type(event) is ev.TurnStart and event.turn == 2)
    left = [*range(began + 1), *range(second, len(log))]  # the rest of the first turn is lost
    torn = Session.load("s", [log.events[n] for n in left], [log.lines[n] for n in left], dict(TYPES))
    repair(torn)
    said = next(event for event in torn.events if type(event) is ev.SessionRepaired)
    codes = {"c1.1.1": "NOT_STARTED", "c1.1.2": "OUTCOME_UNKNOWN"}
    assert {call["call_id"]: call["code"] for call in said.calls} == codes and said.set_aside_bytes is None


def test_L3_append_needs_no_loop_and_does_no_io():
    """Synchronous, and callable where no event loop runs."""
    held = whole()
    closed(held, ev.Reason("disposed"))
    with pytest.raises(Exception, match=r".+"):
        anyio.current_time()
    check_agrees(held)


# --- L4 -----------------------------------------------------------------------------------------------------


def test_L4_every_observer_is_called_whatever_the_one_before_raised():
    held = session()
    faults: list[str] = []
    seen: list[str] = []
    held.on_fault = lambda of, plugin, exc, event: faults.append(type(exc).__name__)
    for exc in (ValueError("x"), SystemExit(1), GeneratorExit(), KeyboardInterrupt(), MemoryError()):

        def fails(event: Any, exc: BaseException = exc) -> None:
            raise exc

        held.observe(fails)
    stop = held.observe(lambda event: seen.append(event.type))
    with pytest.raises(KeyboardInterrupt):
        held.append(ev.InboxAccepted(id="i1", kind="queued", content=HELLO, source=USER))
    assert seen == ["inbox/accepted"] and faults == ["ValueError", "SystemExit", "GeneratorExit", "MemoryError"]
    stop()
    with pytest.raises(KeyboardInterrupt):
        held.append(ev.InboxDiscarded(id="i1", reason="x"))
    assert seen == ["inbox/accepted"]
    check_agrees(held)


def test_L4_appends_of_observers_come_in_order_right_behind_their_event():
    held = session()
    deferred: list[Any] = []

    def answers(event: Any) -> None:
        if event.type == "x/ask":
            deferred.extend(held.append_free("x/answer", {"n": n}) for n in range(3))
            assert all(one.event is None for one in deferred) and held.notifying

    held.observe(answers)
    held.append_free("x/ask", {})
    held.append_free("x/after", {})
    assert [e.type for e in held.events[1:]] == ["x/ask", "x/answer", "x/answer", "x/answer", "x/after"]
    assert [one.event.fields["n"] for one in deferred] == [0, 1, 2]


@pytest.mark.checkrein_oracle_off(reason="an observer appends what no rule allows")
@pytest.mark.parametrize("how", ["illegal", "not encodable"])
def test_L4_a_bad_append_of_an_observer_is_a_fault_and_the_others_go_on(how):
    held = session()
    faults: list[str] = []
    held.on_fault = lambda of, plugin, exc, event: faults.append(f"{plugin} {type(exc).__name__}")

    def appends(event: Any) -> None:
        if event.type == "x/ask":
            held.author = "bad"
            if how == "illegal":
                held.append(ev.StepEnd(turn=1, step=1))
            else:
                held.append(ev.PromptPart(id="a" * 16, kind="system", content="\ud800"))
            held.author = None
            held.append_free("x/good", {})

    held.observe(appends)
    held.append_free("x/ask", {})
    assert held.events[-1].type == "x/good"
    assert faults == ["bad InvariantViolation" if how == "illegal" else "bad RefusedAtAppend"]
    check_agrees(held)


def test_L4_an_interrupt_of_an_observer_does_not_lose_what_it_appended():
    held = session()

    def appends(event: Any) -> None:
        if event.type == "x/ask":
            held.append_free("x/answer", {})
            raise KeyboardInterrupt

    held.observe(appends)
    with pytest.raises(KeyboardInterrupt):
        held.append_free("x/ask", {})
    assert [e.type for e in held.events[1:]] == ["x/ask", "x/answer"]


def test_L4_observers_that_answer_their_own_answers_stop_at_the_eighth_and_it_is_said_once():
    held = session()
    faults: list[str] = []
    held.on_fault = lambda of, plugin, exc, event: faults.append(str(exc))
    held.observe(lambda event: held.append_free("x/again", {}))
    held.append_free("x/ask", {})
    assert [e.type for e in held.events[1:]] == ["x/ask", *["x/again"] * 8]
    assert len(faults) == 1 and "8 times" in faults[0]
