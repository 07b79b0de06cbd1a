"""Snapshots beside logs: with one, a log opens as it does without, whatever became of either (R1, R2, decision 0011).

What a snapshot carries is tests/harness/session/test_snapshot.py; what a failing disk or a crash leaves of one is
test_snapshot_files.py.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from comparing import damaged, differing, facts, put
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein import events as ev
from checkrein.codec import decode, decode_all, encode, seal
from checkrein.eventtypes import Balance, EventType
from checkrein.recovery import Recovered, parse_log, recover, reopen
from checkrein.rules import fold_all
from checkrein.session import Session, projections
from checkrein.sessions import repair_stored
from checkrein.snapshot import encoded
from checkrein_invariants.strategies import logs
from checkrein_persistence import FileOps, JsonlStore
from checkrein_persistence.snapshots import Beginning, read_snapshot, write_snapshot

SMALL: dict[str, Any] = {"page_bytes": 700}
SWEEP = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
EVERYTHING = (Path(__file__).parents[2] / "data/logs/everything.jsonl").read_bytes().splitlines()
RESTED = 49  # so many of its events are before a turn, and nothing is open


def raw(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def snapped(folder: Path, lines: Sequence[bytes], then: bytes = b"") -> bytes:
    """A log with a snapshot of these lines, and some bytes behind; returns the snapshot's bytes."""
    put(folder, raw(lines))
    found, writer = reopen(JsonlStore(folder, **SMALL), "s", {})
    data = encoded(found.state or projections({}))
    assert data is not None
    writer.keep(data)  # type: ignore[attr-defined]
    writer.close()
    put(folder, raw(lines) + then)
    return snapshot_of(folder).read_bytes()


def snapshot_of(folder: Path) -> Path:
    return folder / "sessions/s/snapshot"


def opened(folder: Path, types: dict[str, EventType] | None = None) -> Recovered:
    found, writer = reopen(JsonlStore(folder, **SMALL), "s", types if types is not None else {})
    writer.close()
    return found


def compared(folder: Path, types: dict[str, EventType] | None = None) -> int:
    """Open a log with its snapshot and without; both are the same. Returns how many events the snapshot spared."""
    kept = snapshot_of(folder).read_bytes() if snapshot_of(folder).exists() else None
    found = opened(folder, types)
    snapshot_of(folder).unlink(missing_ok=True)
    plain = opened(folder, types)
    assert plain.known == 0
    for name in ("events", "lines", "gaps", "set_aside", "skipped_bytes", "read_only", "plain"):
        assert getattr(found, name) == getattr(plain, name), name
    a, b = (Session.load("s", each.events, each.lines, types, each.state) for each in (plain, found))
    assert facts(a.state) == facts(b.state)
    if len(a) < 80:
        assert differing(Session.load("s", list(plain.events), list(plain.lines), types), b) == []
    if kept is not None:
        snapshot_of(folder).write_bytes(kept)
    return found.known


def without_time(lines: Sequence[bytes]) -> list[Any]:
    events = [decode(line) for line in lines]
    return [(event.type, event.seq, {n: v for n, v in facts_of(event).items() if n != "time"}) for event in events]


def facts_of(event: Any) -> dict[str, Any]:
    names = getattr(event, "__struct_fields__", None) or event.__slots__
    return {name: getattr(event, name) for name in names}


def repaired_alike(folder: Path) -> None:
    """A resume appends the same, with and without a snapshot, and nothing when it is done again (R2)."""
    other = folder.with_name("other")
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(folder, other)
    snapshot_of(other).unlink(missing_ok=True)
    made = [repair_stored(JsonlStore(place, **SMALL), "s") for place in (folder, other)]
    logs = [(place / "sessions/s/log.jsonl").read_bytes() for place in (folder, other)]
    assert without_time(recover(parse_log(logs[0])).lines) == without_time(recover(parse_log(logs[1])).lines)
    assert [event.type for event in made[0]] == [event.type for event in made[1]]
    assert repair_stored(JsonlStore(folder, **SMALL), "s") == []
    compared(folder)


# --- what is behind it ---------------------------------------------------------------------------------


def rests(events: Sequence[ev.AnyEvent]) -> Iterator[int]:
    state = projections({})
    for count, event in enumerate(events, 1):
        fold_all(state, [event])
        if encoded(state) is not None:
            yield count


@given(log=logs(), data=st.data())
@SWEEP
def test_R1_R2_a_log_opens_as_it_does_without(tmp_path: Path, log: Any, data: st.DataObject) -> None:
    lines = [seal(encode(event)) for event in log.events]
    place = data.draw(st.sampled_from(list(rests(log.events))))
    snapped(tmp_path / "log", lines[:place], raw(lines[place:]))
    assert compared(tmp_path / "log") == place
    for _ in range(2):
        kept = damaged([*lines[place:], *data.draw(st.lists(st.sampled_from(lines), max_size=2))], data)
        snapped(tmp_path / "log", lines[:place], kept)
        known = compared(tmp_path / "log")
        assert known in (0, place)  # none if events stand behind later ones: then all of them are sorted
        repaired_alike(tmp_path / "log")


def test_R1_R2_cut_anywhere_behind_it(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    behind = raw(EVERYTHING[RESTED:])
    for end in range(0, len(behind), 41 if request.config.getoption("--slow") else 109):
        snapped(tmp_path / "log", EVERYTHING[:RESTED], behind[:end])
        assert compared(tmp_path / "log") == RESTED
        if not end % 5:
            repaired_alike(tmp_path / "log")


def test_R1_late_doubled_lost_and_glued_lines_behind_it(tmp_path: Path) -> None:
    row = [seal(encode(ev.FreeEvent("sample/row", seq, 0, {"text": "x" * 90}))) for seq in range(60)]
    gap = seal(encode(ev.LogGap(61, 0, after=40, before=45, skipped_bytes=0)))
    for behind, known in (
        ([*row[20:30], *row[3:9], *row[30:]], 20),  # two writers, or a write that was struck
        ([*row[20:30], *row[33:], row[31]], 0),
        ([*row[25:]], 20),
        ([*row[20:30], row[30] + row[31], b"junk" + row[32], row[34][:40], *row[35:]], 20),
        ([*row[20:41], *row[45:60], gap], 20),
        ([*row[20:], b"", b"\x00" * 100], 20),
    ):
        snapped(tmp_path / "log", row[:20], raw(behind))
        assert compared(tmp_path / "log") == known
        repaired_alike(tmp_path / "log")


# --- what it stands for is not there -------------------------------------------------------------------


def bits(size: int, request: pytest.FixtureRequest) -> list[int]:
    """All bits of so many bytes with --slow, else some of them."""
    every = range(size * 8)
    return list(every) if request.config.getoption("--slow") else random.Random(1).sample(every, min(len(every), 400))


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def test_R1_every_flipped_bit_of_the_log_is_found(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    lines = EVERYTHING[:10]
    snapped(tmp_path / "log", lines[:2], raw(lines[2:]))
    log, kept = raw(lines), snapshot_of(tmp_path / "log").read_bytes()
    for bit in bits(len(raw(lines[:2])), request):
        put(tmp_path / "log", flipped(log, bit))
        assert compared(tmp_path / "log") == 0
    put(tmp_path / "log", log)
    assert compared(tmp_path / "log") == 2 and snapshot_of(tmp_path / "log").read_bytes() == kept


def test_every_flipped_bit_of_a_snapshot_is_found(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kept = snapped(tmp_path / "log", EVERYTHING[:2], raw(EVERYTHING[2:10]))
    store = JsonlStore(tmp_path / "log", **SMALL)
    for bit in bits(len(kept), request):
        snapshot_of(tmp_path / "log").write_bytes(flipped(kept, bit))
        stored, writer = store.open("s")
        writer.close()
        assert stored.snapshot is None, bit
    assert compared(tmp_path / "log") == 0


def test_a_snapshot_cut_or_grown_anywhere_is_found(tmp_path: Path) -> None:
    kept = snapped(tmp_path / "log", EVERYTHING[:2], raw(EVERYTHING[2:10]))
    store = JsonlStore(tmp_path / "log", **SMALL)
    for wrong in (*(kept[:end] for end in range(len(kept))), kept + b"\x00", kept + kept, b"\x00" + kept):
        snapshot_of(tmp_path / "log").write_bytes(wrong)
        stored, writer = store.open("s")
        writer.close()
        assert stored.snapshot is None, len(wrong)
    snapshot_of(tmp_path / "log").write_bytes(kept)
    assert compared(tmp_path / "log") == 2


def test_a_snapshot_of_another_log_is_not_used(tmp_path: Path) -> None:
    row = [seal(encode(ev.FreeEvent("sample/row", seq, 0, {"text": "x"}))) for seq in range(40)]
    other = [seal(encode(ev.FreeEvent("sample/row", seq, 0, {"text": "y"}))) for seq in range(40)]
    snapped(tmp_path / "log", row[:30])
    for log in (other, row[:29], row[:30], row, [*other[:1], *row[1:]], [*row[:29], other[29]], row[1:], [], [b""]):
        put(tmp_path / "log", raw(log))
        assert compared(tmp_path / "log") == (30 if log[:30] == row[:30] else 0)
    put(tmp_path / "log", raw(row)[:-1])
    assert compared(tmp_path / "log") == 30
    put(tmp_path / "log", raw(row[:30])[:-1])
    assert compared(tmp_path / "log") == 0, "its last newline is missing: what it stood for is not there as it was"


def test_one_that_counts_other_lines_than_there_are_is_not_used(tmp_path: Path) -> None:
    """What a strike between the counts of a write could leave: bytes that fit, and other lines in them."""
    snapped(tmp_path / "log", EVERYTHING[:RESTED])
    log = (tmp_path / "log/sessions/s/log.jsonl").absolute()
    found = read_snapshot(FileOps(), log)
    assert found is not None
    beginning, data = found
    *pieces, last = beginning.pieces
    more = [*pieces, last._replace(lines=last.lines + 1)]
    for wrong in ({"lines": RESTED - 1}, {"lines": RESTED + 1}, {"pieces": more}, {"pieces": pieces}, {"pieces": []}):
        write_snapshot(FileOps(), log, beginning._replace(**wrong), data)  # type: ignore[arg-type]
        assert compared(tmp_path / "log") == 0, "its pieces are not all of it"
    short = encoded(recover(parse_log(raw(EVERYTHING[:1])), {}).state or projections({}))
    write_snapshot(FileOps(), log, beginning, short or b"")
    assert compared(tmp_path / "log") == 0, "it says itself how many events it is of"
    write_snapshot(FileOps(), log, Beginning(*beginning), data)
    assert compared(tmp_path / "log") == RESTED


def test_other_event_types_fold_the_log_again(tmp_path: Path) -> None:
    pair = {"lease/open": EventType("lease/open", balance=Balance("lease/open", "lease/close", "lease"))}
    snapped(tmp_path / "log", EVERYTHING[:RESTED], raw(EVERYTHING[RESTED:]))
    assert compared(tmp_path / "log", pair) == 0
    assert compared(tmp_path / "log", {}) == RESTED


def test_who_only_reads_gets_none(tmp_path: Path) -> None:
    snapped(tmp_path / "log", EVERYTHING[:RESTED], raw(EVERYTHING[RESTED:]))
    store = JsonlStore(tmp_path / "log", **SMALL)
    with_one = store.read("s"), list(store.list())
    assert with_one[0].snapshot is None and recover(with_one[0], {}).known == 0
    (tmp_path / "log/index.json").unlink()
    snapshot_of(tmp_path / "log").unlink()
    assert (store.read("s"), list(store.list())) == with_one


# --- logs that have none -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", ["gap", "named gap", "gap foretold", "junk", "doubled", "glued", "late", "newer", "open turn"]
)
@pytest.mark.parametrize("how", [{}, {"long_bytes": 0, "page_bytes": 9_000}], ids=["in memory", "in pages"])
def test_R1_no_snapshot_is_made_of_it(wrong: str, how: dict[str, Any], tmp_path: Path) -> None:
    row = [seal(encode(ev.FreeEvent("sample/row", seq, 0, {"text": "x"}))) for seq in range(1_200)]
    created = ev.SessionCreated(0, 0, format=ev.FORMAT + (wrong == "newer"), session="s", agent="main")
    row[0] = seal(encode(created))
    if wrong == "gap":
        del row[7]
    elif wrong == "named gap":
        row[9:12] = [seal(encode(ev.LogGap(11, 0, after=8, before=11, skipped_bytes=0)))]
    elif wrong == "gap foretold":
        row[9] = seal(encode(ev.LogGap(9, 0, after=1_300, before=1_310, skipped_bytes=0)))
    elif wrong == "junk":
        row.insert(5, b"junk")
    elif wrong == "doubled":
        row.insert(5, row[4])
    elif wrong == "glued":
        row[5:8] = [row[5] + row[6], b"", row[7]]  # as many lines as events, and as many bytes
    elif wrong == "late":
        row[3], row[4] = row[4], row[3]
    elif wrong == "open turn":
        row[-1] = seal(encode(ev.TurnStart(1_199, 0, turn=1, trigger={})))
    put(tmp_path, raw(row))
    store = JsonlStore(tmp_path, **how)
    if wrong == "newer":
        with pytest.raises(Exception, match="newer checkrein"):
            reopen(store, "s", {})
    else:
        found, writer = reopen(store, "s", {})
        session = Session.load("s", found.events, found.lines, {}, found.state)
        session.writer = writer
        session.release()
        assert len(found.events) > 1_100
    assert not snapshot_of(tmp_path).exists()


def test_the_same_log_without_a_wrong_has_one(tmp_path: Path) -> None:
    row = [seal(encode(ev.FreeEvent("sample/row", seq, 0, {"text": "x"}))) for seq in range(1_200)]
    put(tmp_path, raw(row))
    assert opened(tmp_path).known == 0 and snapshot_of(tmp_path).exists()
    found = opened(tmp_path)
    assert found.known == 1_200 and decode_all(row) == found.events
