"""Snapshots of projections: what they carry is what the fold gives, and no other fold's is believed (L1).

How a store binds one to the bytes of a log is tests/plugins/persistence/test_snapshots.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sessionkit import TYPES, dump, steps
from sessionkit import session as begun

import checkrein
from checkrein import events as ev
from checkrein import snapshot
from checkrein.closing import repair
from checkrein.codec import decode_all
from checkrein.derive import History
from checkrein.eventtypes import Balance, EventType
from checkrein.messages import USER, TextBlock
from checkrein.rules import FOLD, fold_all
from checkrein.session import projections
from checkrein.snapshot import AtRest, HistoryAtRest, at_rest, encoded, keep, restored
from checkrein.state import State
from checkrein_invariants.strategies import logs

EVERYTHING = Path(__file__).parents[2] / "data/logs/everything.jsonl"
FOLDED = (3, "6d9f9a69")  # FOLD, and what it makes of every beginning of that log


def folded(events: Sequence[ev.AnyEvent], types: dict[str, EventType] = TYPES) -> State:
    state = projections(types)
    fold_all(state, events)
    return state


def facts(state: State) -> Any:
    """All members, private ones too, with the order of those that have one; without what the types give."""
    members = {name: dump(item) for name, item in state.members().items() if name not in ("types", "closes")}
    return members, list(state.pending), list(state.history._ids)


def carried_at_each_rest(events: Sequence[ev.AnyEvent]) -> int:
    """Check each place where a snapshot can be taken; returns how many there are."""
    whole = facts(folded(events))
    places = 0
    for count in range(len(events) + 1):
        state = folded(events[:count])
        data = encoded(state)
        assert (data is not None) == at_rest(state)
        if data is None:
            continue
        places += 1
        kept = restored(data, projections(TYPES))
        assert kept is not None and facts(kept) == facts(state), count
        fold_all(kept, events[count:])
        assert facts(kept) == whole, count
    return places


# --- what is carried -----------------------------------------------------------------------------------


def test_every_member_is_carried_or_empty_at_rest_or_made_anew() -> None:
    for parts, kind in (
        ((AtRest.__struct_fields__, snapshot.OPEN, ("types", "closes"), ("history", "pending")), State),
        ((HistoryAtRest.__struct_fields__, snapshot.OWED), History),
    ):
        named = [name for part in parts for name in part]
        assert sorted(named) == sorted(kind.__slots__), f"say in snapshot.py what becomes of a new member of {kind}"  # type: ignore[attr-defined]


def test_L1_at_each_rest_of_a_log_with_everything_in_it() -> None:
    held = begun()
    for step in steps(held):
        step()
    repair(held)
    assert carried_at_each_rest(held.events) >= 12
    assert carried_at_each_rest(decode_all(list(held.lines))) >= 12
    assert carried_at_each_rest(decode_all(EVERYTHING.read_bytes().splitlines())) >= 10


@given(log=logs())
@settings(max_examples=60)
def test_L1_at_each_rest_of_any_log(log: Any) -> None:
    assert carried_at_each_rest(log.events) >= 1


def test_what_plain_json_can_hold_comes_back_as_the_log_gives_it() -> None:
    held = begun()
    content = {
        "n": 2**70,
        "x": 1e300,
        "whole": 1.0,
        "t": "\u2028\x00\U0001f600",
        "deep": [[{"": None}]],
        "pair": (1, 2),
    }
    held.append(ev.PromptPart(id="p", kind="tool", content=content))
    held.append(
        ev.InboxAccepted(id="i7", kind="context", content=[TextBlock("x", "m")], source=USER, options={"a": [1]})
    )
    held.append(ev.InboxAccepted(id="i2", kind="queued", content=[], source=USER, own_turn=True))
    data = encoded(held.state)
    kept = restored(data or b"", projections(TYPES))
    assert kept is not None and facts(kept) == facts(folded(decode_all(list(held.lines))))
    assert list(kept.pending) == ["i7", "i2"] and kept.inputs == held.state.inputs


def test_L1_the_fold_is_the_one_its_number_says() -> None:
    events = decode_all(EVERYTHING.read_bytes().splitlines())
    digest = 0
    for count in range(len(events) + 1):
        digest = crc32(repr(facts(folded(events[:count]))).encode(), digest)
    assert (FOLD, f"{digest:08x}") == FOLDED, (
        "this log folds to another state than before: raise checkrein.rules.FOLD, so that no snapshot of the older "
        "fold is believed, and write both values here"
    )


# --- what is not carried -------------------------------------------------------------------------------


def test_nothing_is_taken_while_anything_is_open() -> None:
    held = begun()
    seen: set[str] = set()
    for step in steps(held):
        step()
        state, history = held.state, held.state.history
        seen |= {name for name in snapshot.OPEN if getattr(state, name)}
        seen |= {name for name in snapshot.OWED if getattr(history, name)}
        assert (encoded(state) is None) == bool(state.turn_open or state.open_pairs or state.compactions)
    assert seen >= {*snapshot.OPEN, *snapshot.OWED} - {"_held", "_got"}
    for owner, names in ((State, snapshot.OPEN), (History, snapshot.OWED)):
        for name in names:
            state = folded(held.events[:1])
            assert at_rest(state)
            setattr(state if owner is State else state.history, name, {"x": 1})
            assert not at_rest(state) and encoded(state) is None, name


PAIR = {"job/open": EventType("job/open", balance=Balance("job/open", "job/close", "job"))}
FREE = [ev.FreeEvent("job/open", 1, 0, {"job": "j"}), ev.FreeEvent("job/close", 2, 0, {"job": "j"})]
OTHERS: dict[str, dict[str, EventType]] = {
    "none": {},
    "key": {"job/open": EventType("job/open", balance=Balance("job/open", "job/close", "id"))},
    "closes": {"job/open": EventType("job/open", balance=Balance("job/open", "job/end", "job"))},
    "opens": {"job/open": EventType("job/open", balance=Balance("job/begin", "job/close", "job"))},
    "name": {"job/begin": EventType("job/begin", balance=Balance("job/open", "job/close", "job"))},
    "more": {**PAIR, "x/y": EventType("x/y", balance=Balance("x/y", "x/z", "k"))},
}


def forged(data: bytes | None, **made_by: Any) -> bytes:
    """A snapshot that says something else of what made it."""
    said, *rest = msgspec.json.decode(data or b"")
    fold = msgspec.structs.replace(msgspec.convert(said, snapshot.Fold), **made_by)
    return msgspec.json.encode([fold, *rest])


def test_no_other_fold_is_believed() -> None:
    first = begun().events
    data = encoded(folded([*first, *FREE], PAIR))
    assert data is not None and restored(data, projections(PAIR)) is not None
    assert restored(data, projections({**PAIR, "note/seen": EventType("note/seen", model_visible=True)})) is not None
    for name, types in OTHERS.items():
        assert restored(data, projections(types)) is None, name
    for other in (
        {"number": FOLD + 1},
        {"number": FOLD - 1},
        {"format": ev.FORMAT + 1},
        {"version": f"{checkrein.__version__}.1"},
    ):
        assert restored(forged(data, **other), projections(PAIR)) is None, other
    assert restored(forged(data), projections(PAIR)) is not None


def test_what_the_guard_is_for() -> None:
    """Did a snapshot not say what made it, each of these would be believed, and would not be what the log says."""
    events = [*begun().events, FREE[0]]
    untold = encoded(folded(events, {}))  # made by one who did not know that these are pairs: none is open
    assert restored(untold or b"", projections(PAIR)) is None
    rules = [("job/open", "job/open", "job/close", "job")]
    believed = restored(forged(untold, pairs=rules), projections(PAIR))
    assert believed is not None and not believed.open_pairs and folded(events, PAIR).open_pairs
    older = folded(events, {})
    older.turn = 7  # made by a fold that counted otherwise
    old = forged(encoded(older), number=FOLD - 1)
    assert restored(old, projections({})) is None
    believed = restored(forged(old, number=FOLD), projections({}))
    assert believed is not None and believed.turn == 7 != folded(events, {}).turn


def test_types_that_changed_while_the_session_lived_leave_no_snapshot() -> None:
    types = dict(PAIR)
    state = folded([*begun().events, *FREE], types)
    assert encoded(state) is not None
    del types["job/open"]
    assert encoded(state) is None
    types.update(OTHERS["key"])
    assert encoded(state) is None


@given(
    data=st.binary(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists).map(msgspec.json.encode)
)
def test_what_is_no_snapshot_is_none(data: bytes) -> None:
    assert restored(data, projections(TYPES)) is None


def test_a_snapshot_cut_anywhere_is_none() -> None:
    data = encoded(folded(begun().events)) or b""
    for end in range(len(data)):
        assert restored(data[:end], projections(TYPES)) is None


# --- when it is taken ----------------------------------------------------------------------------------


@dataclass
class Shelf:
    """A writer that only counts, and raises what it is told to."""

    taken: int
    covered: int | None = 0
    raises: BaseException | None = None
    kept: list[bytes] = field(default_factory=list)

    def append(self, lines: Sequence[bytes]) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def keep(self, data: bytes) -> None:
        if self.raises is not None:
            raise self.raises
        self.kept.append(data)
        self.covered = self.taken


def long_state(count: int) -> State:
    return folded([*begun().events, *(ev.FreeEvent("x/row", seq, 0, {}) for seq in range(1, count))])


def test_it_is_taken_when_the_log_is_long_enough_and_has_grown_enough() -> None:
    for count, covered, worth in (
        (999, 0, False),
        (1_000, 0, True),
        (1_000, None, False),
        (1_999, 1_000, False),
        (2_000, 1_000, True),
        (64_000, 62_001, False),
        (64_000, 62_000, True),
    ):
        shelf = Shelf(taken=count, covered=covered)
        keep(long_state(count), shelf, count)
        assert bool(shelf.kept) == worth, (count, covered)
    behind = Shelf(taken=1_999)
    keep(long_state(2_000), behind, 2_000)
    gaps = Shelf(taken=1_999)
    keep(long_state(2_000), gaps, 1_999)
    assert not behind.kept and not gaps.kept, "it stands for what was taken, and for every seq"


@pytest.mark.parametrize("failure", [OSError(28, "full"), RuntimeError("x"), MemoryError(), RecursionError()])
def test_what_fails_in_it_disturbs_nobody(failure: BaseException) -> None:
    shelf = Shelf(taken=1_000, raises=failure)
    keep(long_state(1_000), shelf, 1_000)
    assert shelf.covered == 0 and not shelf.kept


def test_an_interrupt_in_it_goes_on_and_the_writer_is_closed() -> None:
    closed = []

    class Door(Shelf):
        def close(self) -> None:
            closed.append(True)

    held = begun()
    for _ in range(1_000):
        held.append_free("x/row", {})
    held.writer = Door(taken=len(held), raises=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        held.release()
    assert closed == [True] and held.writer is None
    held.release()
    assert closed == [True]
