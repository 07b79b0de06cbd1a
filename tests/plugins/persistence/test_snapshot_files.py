"""Snapshots on a disk that fails, tears and forgets, and in a session's life: only the time it takes to open tells.

What is opened is compared in test_snapshots.py.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from comparing import facts, put

from checkrein import Harness
from checkrein import events as ev
from checkrein.codec import encode, seal
from checkrein.flushing import Flusher
from checkrein.log import Pages
from checkrein.messages import USER, TextBlock
from checkrein.recovery import recover, reopen
from checkrein.session import Session, projections
from checkrein.snapshot import encoded
from checkrein.store import StoredLog, flush
from checkrein.testing import ScriptedModel
from checkrein.testing.crash_states import RecordingOps, crash_states
from checkrein.testing.file_faults import ERRORS, Fault, FaultyOps
from checkrein_persistence import FileOps, JsonlStore, JsonlWriter, Plugin

ROWS = [seal(encode(ev.FreeEvent("sample/row", seq, 0, {"text": f"row {seq}"}))) for seq in range(60)]


class Hasty(FileOps):
    """Syncs nothing, so that some hundred lives take seconds."""

    def fsync(self, fd: int) -> None: ...

    def fsync_dir(self, path: Path) -> None: ...


def of(lines: list[bytes]) -> bytes:
    """The snapshot of some lines."""
    return encoded(recover(StoredLog(lines), {}).state or projections({})) or b""


def known(folder: Path, lines: list[bytes]) -> int:
    """Open a log, find these lines in it, and say how many of them a snapshot spared."""
    found, writer = reopen(JsonlStore(folder, ops=Hasty()), "s", {})
    writer.close()
    assert list(found.lines) == lines
    plain = recover(JsonlStore(folder).read("s"), {})
    assert facts(found.state) == facts(plain.state) and found.events == plain.events
    return found.known


# --- the writer knows what the log holds ---------------------------------------------------------------


def test_R3_it_stands_for_what_was_written_also_behind_a_torn_tail_and_a_lost_newline(tmp_path: Path) -> None:
    for end in (b"", ROWS[20][:25], b"\n", b"\n" + ROWS[20][:1]):
        shutil.rmtree(tmp_path / "log", ignore_errors=True)
        put(tmp_path / "log", b"\n".join(ROWS[:20]) + end)
        store = JsonlStore(tmp_path / "log")
        found, writer = reopen(store, "s", {})
        assert isinstance(writer, JsonlWriter)
        if end != b"\n":
            with pytest.raises(Exception, match="whole line"):
                writer.keep(of(ROWS[:20]))
        flush(writer, [*found.lines, *ROWS[20:23]])
        writer.append(ROWS[23:25])
        writer.keep(of(ROWS[:25]))
        assert writer.covered == 25
        writer.append(ROWS[25:30])
        writer.close()
        with pytest.raises(OSError, match="closed"):
            writer.keep(b"")
        assert known(tmp_path / "log", ROWS[:30]) == 25


@pytest.mark.parametrize("short", [False, True])
def test_R3_it_stands_for_what_was_written_when_an_append_was_taken_back(short: bool, tmp_path: Path) -> None:
    counting = FaultyOps(Hasty())
    _appends(tmp_path / "counted", counting)
    spared = []
    for at in range(len(counting.names)):
        for lasting in (False, True):
            folder = tmp_path / f"{at}{lasting}"
            ops = FaultyOps(Hasty(), Fault(at, errno.ENOSPC, lasting=lasting, short=short))
            _appends(folder, ops)
            spared.append(known(folder, ROWS[:12]))
    assert set(spared) <= {0, 8} and spared.count(8) > len(spared) // 2


@pytest.mark.parametrize("first, steps", [(1, 1), (1, 3), (1, 59), (40, 1), (3, 20), (59, 1)])
def test_the_pages_of_a_snapshot_are_bounded_and_counted_while_writing(first: int, steps: int, tmp_path: Path) -> None:
    ops = FaultyOps(Hasty())
    page_bytes = 4 * len(ROWS[0])
    store = JsonlStore(tmp_path / "log", ops=ops, page_bytes=page_bytes)  # type: ignore[arg-type]
    writer = store.create("s", ROWS[:first])
    for upto in range(first + steps, len(ROWS) + 1, steps):
        flush(writer, ROWS[:upto])
    count, before = writer.taken, ops.names.count("read")
    writer.keep(of(ROWS[:count]))
    if max(first, steps) <= 3:
        assert ops.names.count("read") == before, "nobody has to count"
    writer.close()
    stored, writer = store.open("s")
    writer.close()
    assert stored.snapshot is not None and stored.snapshot.count == count and isinstance(stored.lines, Pages)
    assert list(stored.lines) == ROWS[:count]
    assert all(sum(map(len, page.read())) + page.length <= 2 * page_bytes for page in stored.lines.pages)


def _appends(folder: Path, ops: FaultyOps) -> None:
    """A session's life that ends well whatever fails, with a snapshot of 8 of its lines if that could be written."""

    def act(fn: Any, *args: Any) -> Any:
        while True:
            try:
                return fn(*args)
            except Exception:
                ops.heal()

    store = JsonlStore(folder, ops=ops)  # type: ignore[arg-type]
    writer: JsonlWriter = act(store.create, "s", ROWS[:3])
    for upto in (4, 6, 8):
        act(lambda upto=upto: flush(writer, ROWS[:upto]))
    try:
        writer.keep(of(ROWS[:8]))
    except OSError:
        ops.heal()
    act(lambda: flush(writer, ROWS[:12]))
    act(writer.sync)
    writer.close()


def test_R1_damage_while_the_session_was_open_is_not_believed(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    writer = store.create("s", ROWS[:10])
    log = Path(store.locate("s"))
    log.write_bytes(log.read_bytes().replace(b"row 4", b"row 5"))
    writer.append(ROWS[10:20])
    writer.keep(of(ROWS[:20]))
    writer.close()
    found, writer = reopen(store, "s", {})
    writer.close()
    assert found.known == 0 and [(gap.after, gap.before) for gap in found.gaps] == [(3, 5)]


# --- a session's life ----------------------------------------------------------------------------------


def lived(store: Any, turns: int = 120) -> Session:
    """A session of nine events a turn, whose writer has them all."""
    session = Session("s")
    append = session.append
    append(ev.SessionCreated(format=ev.FORMAT, session="s", agent="main"))
    session.writer = store.create("s", session.lines)
    grow(session, turns)
    return session


def grow(session: Session, turns: int) -> None:
    append, first = session.append, session.state.turn + 1
    for turn in range(first, first + turns):
        at = {"turn": turn, "step": 1}
        said = [TextBlock(f"message {turn}")]
        taken = append(ev.InboxAccepted(id=session.next_input(), kind="queued", content=said, source=USER))
        append(ev.TurnStart(turn=turn, trigger={"kind": "input", "ids": [taken.id]}))
        append(ev.UserInput(turn=turn, id=taken.id, content=said, source=USER))
        append(ev.StepStart(**at))
        append(ev.RequestStart(**at, attempt=1, header=0, messages=1, digest="0" * 64))
        append(ev.RequestEnd(**at, attempt=1, outcome="ok", finish_reason="stop"))
        append(ev.AssistantAnswer(**at, content=[TextBlock(f"answer {turn}")]))
        append(ev.StepEnd(**at))
        append(ev.TurnEnd(turn=turn, reason=ev.Reason("completed"), steps=1))
    assert session.writer is not None
    flush(session.writer, session.lines)


def opened(store: Any) -> tuple[Session, int]:
    found, writer = reopen(store, "s", {})
    session = Session.load("s", found.events, found.lines, {}, found.state)
    session.writer = writer
    return session, found.known


def test_R5_a_session_is_continued_from_its_snapshot_and_leaves_another(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    lived(store).release()
    for turns, known in ((3, 1_081), (130, 1_081), (1, 2_278), (0, 2_278)):
        session, spared = opened(store)
        assert spared == known
        grow(session, turns)
        before = session.since(0)
        assert not differing_from_the_log(store, session)
        session.release()
        assert recover(store.read("s")).events == before


def differing_from_the_log(store: JsonlStore, session: Session) -> bool:
    plain = recover(store.read("s"), {})
    return facts(plain.state) != facts(session.state) or plain.lines != list(session.lines)


def test_a_killed_sessions_next_opening_takes_one(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    lived(store).writer.close()  # type: ignore[union-attr]
    assert not (tmp_path / "sessions/s/snapshot").exists()
    for known in (0, 1_081):
        session, spared = opened(store)
        assert spared == known
        session.writer.close()  # type: ignore[union-attr]


def test_a_short_session_and_one_not_written_to_its_end_leave_none(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    session = lived(store)
    session.append_free("sample/row", {})
    session.release()
    assert not (tmp_path / "sessions/s/snapshot").exists()
    short = lived(JsonlStore(tmp_path / "short"), 100)
    short.release()
    assert not (tmp_path / "short/sessions/s/snapshot").exists()


def test_a_session_that_had_let_go_leaves_one(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, page_bytes=4_096)
    session = lived(store)
    session.let_go(keep=20, long=100)
    grow(session, 2)
    Flusher(frozenset()).session_flush(session, "turn_end")
    session.release()
    again, spared = opened(store)
    assert spared == len(again) == 1_099
    assert not differing_from_the_log(store, again)
    again.writer.close()  # type: ignore[union-attr]


def test_R5_an_agent_goes_on_the_same_with_and_without(tmp_path: Path) -> None:
    lived(JsonlStore(tmp_path / "a")).release()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b/sessions/s/snapshot").unlink()

    async def resumed(folder: Path) -> list[Any]:
        model = ScriptedModel("one", "two", record=True)
        options: dict[str, Any] = {"providers": [model], "plugins": [Plugin()], "found": ()}
        async with Harness(store=JsonlStore(folder), overrides={"model": "scripted:x"}, **options) as harness:
            agent = await harness.resume("s")
            for words in ("first", "second"):
                (await agent.run(words)).check()
            shown = [(event.type, event.seq) for event in agent.session.events]
            requests = [repr(request.messages) for request in model.requests]
        assert (folder / "sessions/s/snapshot").exists(), "opening or closing took one"
        return [shown, requests]

    with_one, without = (anyio.run(resumed, tmp_path / name) for name in "ab")
    assert with_one == without


# --- disks ---------------------------------------------------------------------------------------------


def test_R4_no_failing_operation_of_a_snapshot_disturbs_opening_or_closing(tmp_path: Path) -> None:
    lived(JsonlStore(tmp_path / "first")).writer.close()  # type: ignore[union-attr]

    def life(folder: Path, ops: FaultyOps) -> None:
        shutil.copytree(tmp_path / "first", folder)
        session, _ = opened(JsonlStore(folder, ops=ops))  # type: ignore[arg-type]
        session.writer.covered = 0  # type: ignore[union-attr]
        session.release()
        lines = list(recover(JsonlStore(folder).read("s")).lines)
        assert known(folder, lines) in (0, 1_081)
        assert known(folder, lines) == 1_081
        names = os.listdir(folder / "sessions/s")
        assert len([name for name in names if name.startswith(".snapshot.")]) <= 2
        shutil.rmtree(folder)

    counting = FaultyOps(Hasty())
    life(tmp_path / "counted", counting)
    first = next(place for place, name in enumerate(counting.names) if name == "rename") + 1  # behind the owner record
    reads = counting.names[first:].index("open")  # it was opened in one piece: nobody has counted its lines
    assert reads and counting.names[first:] == ["read"] * reads + ["open", "write", "rename"] * 2
    for at in range(first, len(counting.names)):
        for fault in (*(Fault(at, error) for error in ERRORS), Fault(at, lasting=True), Fault(at, short=True)):
            life(tmp_path / "life", FaultyOps(Hasty(), fault))


def test_R1_R4_every_crash_state_opens_with_whatever_is_left_of_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "recorded").mkdir()
    ops = RecordingOps(Hasty(), tmp_path / "recorded")
    store = JsonlStore(tmp_path / "recorded/log", ops=ops)  # type: ignore[arg-type]
    writer = store.create("s", ROWS[:4])
    for upto, synced in ((7, True), (10, False), (14, True)):
        flush(writer, ROWS[:upto])
        if synced:
            writer.sync()
            ops.mark(upto)
        writer.keep(of(ROWS[:upto]))
    flush(writer, ROWS[:16])
    writer.close()
    seen: set[int] = set()
    states = 0
    for state in crash_states(ops):
        root = tmp_path / "state"
        root.mkdir()
        state.write_to(root)
        if (root / "log/sessions/s/log.jsonl").exists():
            found, writer = reopen(JsonlStore(root / "log", ops=Hasty()), "s", {})
            writer.close()
            durable = state.note or 0
            assert list(found.lines[:durable]) == ROWS[:durable] and set(found.lines) <= set(ROWS), state.told
            seen.add(known(root / "log", list(found.lines)))
            states += 1
        shutil.rmtree(root)
    print(f"{states} crash states")
    assert states > 300 and seen == {0, 7, 10, 14}
