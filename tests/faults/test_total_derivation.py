"""L8, R1, R2: whatever is missing of a log, it loads, its history is valid, and it can be repaired and continued.

pytest tests/faults/test_total_derivation.py --faults=full     # every run of events of every recording
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pytest
from figures import count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings import Recording, recordings

from checkrein.closing import repair
from checkrein.codec import decode, encode, seal
from checkrein.events import AnyEvent, FreeEvent, LogGap, Reason, TurnEnd, TurnStart
from checkrein.recovery import recover
from checkrein.session import Session
from checkrein.store import StoredLog
from checkrein_invariants import check_events, validate_history
from checkrein_invariants.builder import renumber
from checkrein_invariants.strategies import logs

pytestmark = pytest.mark.checkrein_oracle_off(reason="damaged logs without an agent; judged here")

SHUFFLES = 4


def fold(session: Session) -> dict[str, Any]:
    """Everything the state says, in a form that can be compared."""
    state = session.state
    plain = {name: value for name, value in state.members().items() if name not in ("types", "closes", "history")}
    for name in ("calls", "pending"):
        plain[name] = {key: [getattr(v, slot) for slot in v.__slots__] for key, v in plain[name].items()}
    history = state.history
    return {**plain, "messages": list(history.messages), "view": list(history.view())}


def differs(a: Session, b: Session) -> list[str]:
    """Which projections of two sessions differ."""
    one, other = fold(a), fold(b)
    return [name for name in one if one[name] != other[name]]


def problems(events: Sequence[AnyEvent], lines: Sequence[bytes], gaps: Sequence[Any] = ()) -> list[str]:
    """Load, derive, repair, repair again, go on: what is wrong on the way."""
    session = Session.load("damaged", events, lines)
    found = validate_history(session.state.history.view())
    for gap in gaps:
        session.append(LogGap(after=gap.after, before=gap.before, skipped_bytes=gap.skipped_bytes))
    repair(session)
    state = session.state
    if state.turn_open or state.step_open or state.due or state.approvals or state.compactions or state.orphans:
        found.append("something is open behind the repair")
    found += [f"repaired: {problem}" for problem in validate_history(state.history.view())]
    again = Session.load("again", session.events, session.lines)
    found += [f"the live fold of {name} is not the log's" for name in differs(session, again)]
    repair(again)
    if len(again) != len(session):
        found.append(f"repairing again added {[event.type for event in again.events[len(session) :]]}")
    turn = state.turn + 1
    session.append(TurnStart(turn=turn, trigger={"kind": "input", "ids": []}))
    session.append(TurnEnd(turn=turn, reason=Reason("completed"), steps=0))
    return found


def lost(recording: Recording, first: int, last: int) -> list[str]:
    """Problems when the lines from `first` to before `last` are lost, as a stored log is opened."""
    kept = [*recording.lines[:first], *recording.lines[last:]]
    found = recover(StoredLog(kept, b""))
    wrong = problems(found.events, found.lines, found.gaps)
    session = Session.load("judged", found.events, found.lines)
    for gap in found.gaps:
        session.append(LogGap(after=gap.after, before=gap.before, skipped_bytes=gap.skipped_bytes))
    repair(session)
    return wrong + [str(v) for v in check_events(session.events) if v.severity == "error"]


def runs(length: int, longest: int) -> Iterator[tuple[int, int]]:
    """Every run of events of at most `longest`."""
    for size in range(1, longest + 1):
        for first in range(length - size + 1):
            yield first, first + size


NAMES = [name for name, _ in groupby(recording.name for recording in recordings())]


def test_there_are_enough_recordings() -> None:
    assert len(recordings()) >= 20
    assert len(NAMES) == len(set(NAMES)) == len(recordings())


@pytest.mark.parametrize("at", range(len(recordings())), ids=NAMES)
def test_L8_R1_any_run_of_events_may_be_lost(at: int, faults: int | None) -> None:
    """Every single event, and every run of them: lost, as by damage to a file."""
    recording = recordings()[at]
    length = len(recording.lines)
    todo = list(runs(length, length))
    singles = length  # runs of one come first
    if faults is not None:
        rest = todo[singles:]
        todo = todo[:singles] + rest[:: max(1, len(rest) // faults)]
    bad = [(first, last, found) for first, last in todo if (found := lost(recording, first, last))]
    count("derivation: events and runs of events lost", len(todo))
    assert not bad, f"{len(bad)} of {len(todo)}: {bad[:3]}"


@pytest.mark.parametrize("at", range(len(recordings())), ids=NAMES)
def test_L8_shuffled_doubled_cut_and_renumbered(at: int, faults: int | None) -> None:
    """The same events in any order, twice, cut anywhere; with their numbers, and with contiguous ones."""
    recording = recordings()[at]
    order = random.Random(at)
    variants: list[list[AnyEvent]] = []
    for _ in range(SHUFFLES if faults is not None else 40):
        mixed = list(recording.events)
        order.shuffle(mixed)
        variants += [mixed, renumber(mixed)]
        at_ = order.randrange(len(mixed))
        variants.append(renumber([*recording.events[: at_ + 1], *recording.events[at_:]]))
        few = [event for event in recording.events if order.random() < 0.6]
        variants.append(renumber(few))
    variants += [list(recording.events) * 2, renumber(list(recording.events) * 2)]
    variants += [list(recording.events[:n]) for n in range(len(recording.events))]
    bad = []
    for events in variants:
        session = Session.load("odd", events, [b""] * len(events))
        if found := validate_history(session.state.history.view()):
            bad.append((found, [event.type for event in events]))
        if contiguous(events) and (found := problems(events, [seal(encode(event)) for event in events])):
            bad.append((found, [event.type for event in events]))
    count("derivation: shuffled, doubled and cut logs", len(variants))
    assert not bad, f"{len(bad)} of {len(variants)}: {bad[:2]}"


def contiguous(events: Sequence[AnyEvent]) -> bool:
    """Whether the numbers are as recovery leaves them."""
    return [event.seq for event in events] == list(range(len(events)))


@pytest.mark.parametrize("at", range(len(recordings())), ids=NAMES)
def test_L3_L5_the_live_fold_is_the_logs(at: int) -> None:
    """The recording folded anew, and read back from its bytes, gives the same state as when it was written."""
    recording = recordings()[at]
    decoded = [decode(line) for line in recording.lines]
    written = Session.load("a", recording.events, recording.lines)
    assert differs(written, Session.load("b", decoded, recording.lines)) == []
    live = Session("c")
    for event in recording.events:
        live.append(event)
    assert differs(written, live) == []
    assert live.lines == list(recording.lines)


SOUP = settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck))
MEMBERS = st.dictionaries(
    st.sampled_from(
        ["turn", "step", "call_id", "id", "content", "message", "reason", "kind", "name", "end", "attempt"]
    ),
    st.one_of(
        st.integers(-1, 3),
        st.sampled_from(["c1.1.1", "c1.1.2", "i1", "completed", "", "text"]),
        st.just([{"type": "text", "text": "x"}]),
        st.just([{"type": "tool_call", "call_id": "c1.1.1", "name": "t", "arguments": "{"}]),
        st.just({"role": "user", "content": "x"}),
        st.none(),
    ),
    max_size=6,
)
TYPES = sorted({event.type for recording in recordings() for event in recording.events})
FREE = st.builds(lambda kind, members: FreeEvent(kind, 0, 0, members), st.sampled_from(TYPES), MEMBERS)
KNOWN_EVENTS = st.sampled_from([event for recording in recordings() for event in recording.events])


@SOUP
@given(st.lists(st.one_of(KNOWN_EVENTS, KNOWN_EVENTS, FREE), max_size=40))
def test_L8_any_soup_of_events(soup: list[AnyEvent]) -> None:
    """Events of all logs, and of no log at all, in any order."""
    events = renumber(soup)
    lines = [seal(encode(event)) for event in events]
    count("derivation: soups of events")
    assert problems([decode(line) for line in lines], lines) == []


@SOUP
@given(logs(), st.data())
def test_L8_any_part_of_a_drawn_log(log: Any, data: st.DataObject) -> None:
    """Logs with what the scripts do not have: compaction, unknown words, plugins' own events."""
    kept = data.draw(st.lists(st.booleans(), min_size=len(log.events), max_size=len(log.events)))
    lines = [seal(encode(event)) for event, keep in zip(log.events, kept, strict=True) if keep]
    found = recover(StoredLog(lines, b""))
    count("derivation: soups of events")
    assert problems(found.events, found.lines, found.gaps) == []
