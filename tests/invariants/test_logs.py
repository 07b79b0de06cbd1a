"""The oracle over drawn logs: it accepts every right one, and one event less is noticed or is a right log too."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein.codec import decode, encode, seal
from checkrein.events import AnyEvent
from checkrein_invariants import LogBuilder, Oracle, check_events, rules
from checkrein_invariants.builder import renumber
from checkrein_invariants.deep import EVERY, Deep
from checkrein_invariants.rules import Report
from checkrein_invariants.samples import with_true_requests
from checkrein_invariants.strategies import logs

FAST = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True)

# One event less of these leaves a right log, or one that only tells less: what it says is not owed.
OPTIONAL = {
    "session/created",
    "user/message",  # the second of two inputs is still pending
    "steering/message",
    "context/message",
    "assistant/thinking",
    "assistant/partial",
    "tool/start",  # of a call that failed
    "request/header",  # the one before goes on
    "inbox/discarded",
    "inbox/accepted",
    "compaction/summary",
}


@FAST
@given(logs())
def test_every_right_log_is_accepted(log: LogBuilder) -> None:
    assert check_events(log.events) == []


@FAST
@given(logs())
def test_L5_what_the_codec_wrote_is_judged_the_same(log: LogBuilder) -> None:
    assert check_events([decode(seal(encode(event))) for event in log.events]) == []


@FAST
@given(logs())
def test_every_prefix_is_a_right_live_log(log: LogBuilder) -> None:
    oracle = Oracle()
    for event in log.events:
        oracle.feed(event)
        assert oracle.violations == []


@FAST
@given(logs())
def test_T2_a_prefix_with_an_open_turn_is_no_right_end(log: LogBuilder) -> None:
    oracle = Oracle()
    for i, event in enumerate(log.events):
        oracle.feed(event)
        found = {violation.rule for violation in check_events(log.events[: i + 1])}
        assert ("O2" in found) == bool(oracle.open_turn)
        assert found <= {"O2", "O3", "O7", "O10", "O20", "O21"}


@FAST
@given(logs(max_turns=2), st.data())
def test_one_event_less_is_noticed(log: LogBuilder, data: st.DataObject) -> None:
    if len(log.events) < 2:
        return
    gone = data.draw(st.sampled_from(log.events))
    left = renumber([event for event in log.events if event is not gone])
    assert check_events(left) or gone.type in OPTIONAL


@FAST
@given(logs(max_turns=2), st.data())
def test_O1_a_hole_in_the_numbers_is_noticed(log: LogBuilder, data: st.DataObject) -> None:
    if len(log.events) < 2:
        return
    gone = data.draw(st.sampled_from(log.events[:-1]))
    found = check_events([event for event in log.events if event is not gone], open_ok=True)
    assert [violation.rule for violation in found][:1] == ["O1"]


@FAST
@given(logs(max_turns=2), st.data())
def test_O1_R1_a_hole_that_a_gap_names_is_right(log: LogBuilder, data: st.DataObject) -> None:
    """Whatever stretch is lost: what is left is judged as far as it can be, and nothing is invented."""
    from checkrein.events import LogGap

    if len(log.events) < 3:
        return
    first = data.draw(st.integers(1, len(log.events) - 2))
    last = data.draw(st.integers(first, len(log.events) - 2))
    seq = len(log.events)
    gap = LogGap(seq=seq, time=0, after=first - 1, before=last + 1, skipped_bytes=1)
    found = check_events([*log.events[:first], *log.events[last + 1 :], gap], open_ok=True)
    assert [violation for violation in found if violation.severity == "error"] == []


def test_L5_unknown_types_and_words_are_no_violation() -> None:
    log = LogBuilder()
    log.free("later/thing", turn=7, step=3, call_id="c9.9.9")
    log.start_turn()
    log.free("turn/paused", turn=1)
    log.start_step()
    log.start_request()
    log.end_request()
    log.free(
        "assistant/message",
        turn=1,
        step=1,
        content=[{"type": "hologram", "x": 1}, {"type": "tool_call", "call_id": "c1.1.1", "name": "t", "arguments": 5}],
    )
    log.free("tool/call", turn=1, step=1, call_id="c1.1.1", name=["odd"])
    log.free("tool/result", turn=1, step=1, call_id="c1.1.1", content="text of a later version")
    log.end_step()
    log.free("turn/end", turn=1, steps=1, reason={"kind": "hibernated", "cause": 7})
    assert check_events(log.events) == []


def test_L5_the_structure_of_unknown_words_still_counts() -> None:
    log = LogBuilder()
    log.start_turn()
    log.start_step()
    log.free("turn/end", turn=1, steps=1, reason={"kind": "hibernated"})
    assert {violation.rule for violation in check_events(log.events)} == {"O3"}


def test_T7_numbering_goes_on_over_a_resume() -> None:
    from checkrein.events import SessionResumed

    log = LogBuilder().simple_turn()
    log.add(SessionResumed, version="1")
    log.simple_turn()
    assert check_events(log.events) == []
    log.turn = 0
    log.simple_turn()
    assert {violation.rule for violation in check_events(log.events)} == {"O4"}


def test_R5_a_fork_goes_on_from_its_parents_events() -> None:
    from checkrein.events import SessionCreated

    log = LogBuilder().simple_turn()
    log.add(SessionCreated, format=1, session="s2", agent="main", origin={"kind": "fork", "session": "s1", "seq": 3})
    log.simple_turn()
    assert check_events(log.events) == []


def test_R2_calls_answered_by_a_repair_are_right() -> None:
    from checkrein.events import SessionRepaired, StepEnd

    log = LogBuilder()
    log.start_turn()
    log.start_step()
    log.start_request()
    log.end_request()
    log.answer("", [("write", "{}")])
    log.add(StepEnd, turn=1, step=1)  # a stranger's loop left it
    log.end_turn("cancelled")
    assert {violation.rule for violation in check_events(log.events)} == {"O7"}
    entry = {"turn": 1, "step": 1, "call_id": "c1.1.1", "code": "NOT_STARTED"}
    log.add(SessionRepaired, calls=[entry])
    assert check_events(log.events) == []
    log.add(SessionRepaired, calls=[entry])
    assert {violation.rule for violation in check_events(log.events)} == {"O7"}


def test_violations_are_bounded() -> None:
    from checkrein_invariants.rules import MAX_VIOLATIONS

    log = LogBuilder()
    for _ in range(MAX_VIOLATIONS + 50):
        log.partial()
    oracle = Oracle()
    for event in log.events:
        oracle.feed(event)
    assert len(oracle.violations) == MAX_VIOLATIONS
    assert oracle.report.dropped == 50


def deep(events: list[AnyEvent], when: str = EVERY) -> list[str]:
    report = Report()
    derived = Deep(report, when=when)
    for event in events:
        report.seq = event.seq
        derived.feed(event)
    derived.finish()
    return [str(violation) for violation in report.violations]


@FAST
@given(logs())
def test_O15_O16_the_history_of_every_prefix_is_valid_and_every_request_can_be_rebuilt(log: LogBuilder) -> None:
    assert deep(with_true_requests(log).events) == []


@FAST
@given(logs(), st.data())
def test_L8_the_history_of_any_part_of_a_log_is_valid(log: LogBuilder, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(log.events), max_size=len(log.events)))
    events = [event for event, keep in zip(log.events, kept, strict=True) if keep]
    found = deep(events)
    assert [text for text in found if text.startswith("O15") and "does not hold" not in text] == []


@FAST
@given(logs(), st.data())
def test_L8_the_history_of_any_order_of_a_log_is_valid(log: LogBuilder, data: st.DataObject) -> None:
    events = renumber(data.draw(st.permutations(log.events)))
    assert [text for text in deep(events) if text.startswith("O15") and "does not hold" not in text] == []


STEPS = st.lists(st.tuples(st.sampled_from(("add", "hold", "settle")), st.integers(0, 3)), max_size=30)


@given(STEPS, st.integers(1, 4))
def test_the_count_is_that_of_the_violations_so_far(steps: list[tuple[str, int]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "MAX_VIOLATIONS", most)
        report = Report()
        for n, (what, key) in enumerate(steps):
            if what == "add":
                report.add("O1", f"violation {n}")
            elif what == "hold":
                report.hold(key, "O1", f"violation {n}")
            else:
                report.settle(key)
            assert report.count == len(report.violations) + report.dropped
