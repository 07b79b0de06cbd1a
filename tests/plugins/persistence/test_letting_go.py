"""What a live session leaves to its store, what it does not, and what memory long sessions take.

`--slow` writes and opens a session of 1,000,000 events and prints what that takes.
"""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from checkrein import events as ev
from checkrein.codec import encode, seal
from checkrein.flushing import Flusher
from checkrein.log import Pages
from checkrein.memory_store import MemoryStore
from checkrein.recovery import recover, reopen
from checkrein.session import Session
from checkrein.sessions import fork
from checkrein.store import flush
from checkrein_persistence import JsonlStore

PLAIN: dict[str, Any] = {"long_bytes": 10**12}
PAGED: dict[str, Any] = {"long_bytes": 0, "page_bytes": 65_536}


def grown(store: Any, count: int = 40) -> Session:
    session = Session("s")
    session.append(ev.SessionCreated(format=ev.FORMAT, session="s", agent="main"))
    session.writer = store.create("s", session.lines)
    grow(session, count)
    return session


def grow(session: Session, count: int) -> None:
    for _ in range(count):
        session.append_free("sample/row", {"text": f"row {len(session)} ☃"})
    assert session.writer is not None
    flush(session.writer, session.lines)


def test_only_what_the_store_gives_back_is_let_go(tmp_path: Path) -> None:
    session = grown(JsonlStore(tmp_path))
    before = list(session.events)
    log = tmp_path / "sessions/s/log.jsonl"
    right = log.read_bytes()
    first = right.splitlines(keepends=True)[0]
    for wrong in (right.replace(b"row 7", b"row 8"), right[: len(right) // 2], b"", first + right):
        log.write_bytes(wrong)
        session.let_go(keep=3, long=0)
        assert isinstance(session.events, list) and session.events == before
    log.write_bytes(right)
    session.append_free("sample/row", {"text": "not taken"})
    session.let_go(keep=0, long=0)
    session.let_go(keep=0, long=10_000)
    assert session.writer is not None
    session.writer.close()


def test_what_no_store_can_give_back_stays(tmp_path: Path) -> None:
    for store in (MemoryStore(), JsonlStore(tmp_path)):
        session = grown(store)
        if isinstance(store, JsonlStore):
            Path(store.locate("s")).unlink()
        session.let_go(keep=0, long=0)
        assert isinstance(session.events, list) and len(session) == 41
        assert session.writer is not None
        session.writer.close()
    alone = Session("alone")
    alone.append_free("sample/row", {})
    alone.let_go(keep=0, long=0)
    assert isinstance(alone.events, list)


def test_an_open_turn_stays_in_memory(tmp_path: Path) -> None:
    session = grown(JsonlStore(tmp_path))
    session.append(ev.TurnStart(turn=1, trigger={"kind": "continuation", "ids": []}))
    grow(session, 5)
    session.let_go(keep=0, long=0)
    assert isinstance(session.events, list)
    session.append(ev.TurnEnd(turn=1, reason=ev.Reason("completed"), steps=0))
    grow(session, 0)
    session.let_go(keep=0, long=0)
    assert isinstance(session.events, Pages) and session.events.recent[0].type == "turn/start"
    assert session.writer is not None
    session.writer.close()


def test_a_log_without_its_last_newline_can_be_let_go(tmp_path: Path) -> None:
    grown(JsonlStore(tmp_path)).writer.close()  # type: ignore[union-attr]
    log = tmp_path / "sessions/s/log.jsonl"
    log.write_bytes(log.read_bytes()[:-1])
    for how in (PLAIN, PAGED):
        found, writer = reopen(JsonlStore(tmp_path, **how), "s", {})
        session = Session.load("s", found.events, found.lines, {}, found.state)
        session.writer = writer
        grow(session, 20)
        whole = list(session.lines)
        session.let_go(keep=2, long=0)
        assert isinstance(session.events, Pages) and len(session.events.recent) == 2
        assert list(session.lines) == whole == log.read_bytes().splitlines()
        writer.close()
        log.write_bytes(log.read_bytes()[:-1])


# --- memory and time -----------------------------------------------------------------------------------


def peak_of(act: Any) -> int:
    """The bytes Python holds at most while `act` runs."""
    tracemalloc.start()
    try:
        kept = act()
        return tracemalloc.get_traced_memory()[1] if kept is not None else 0
    finally:
        tracemalloc.stop()


def test_memory_grows_with_the_projections_and_not_with_the_log(tmp_path: Path) -> None:
    peaks: dict[tuple[str, int], int] = {}
    for count in (2_000, 20_000):
        JsonlStore(tmp_path / str(count)).create("s", rows(count)).close()
        for name, how in (("plain", PLAIN), ("cold", PAGED)):

            def opened(how: Any = how, count: int = count) -> Session:
                found = recover(JsonlStore(tmp_path / str(count), **how).read("s"), {})
                return Session.load("s", found.events, found.lines, {}, found.state)

            peaks[name, count] = peak_of(opened)
    print({key: f"{peak:,}" for key, peak in peaks.items()})
    assert peaks["plain", 20_000] > 8 * peaks["plain", 2_000]
    assert peaks["cold", 20_000] < 1.5 * peaks["cold", 2_000]


def test_a_fork_takes_no_more_memory_than_opening(tmp_path: Path) -> None:
    peaks = []
    for count in (6_000, 24_000):
        store = JsonlStore(tmp_path / str(count), **PAGED)
        store.create("s", rows(count)).close()
        peaks.append(peak_of(lambda store=store: fork(store, "s", 0, new_id="copy")))
        assert len(store.read("copy").lines) == count + 1
    print("peaks of a fork", [f"{peak:,}" for peak in peaks])
    assert peaks[1] < 1.5 * peaks[0]


def rows(count: int) -> list[bytes]:
    return [seal(encode(ev.FreeEvent("sample/row", seq, 0, {"text": f"row {seq} " * 5}))) for seq in range(count)]


def test_a_live_session_holds_its_newest_events_only(tmp_path: Path) -> None:
    peaks = []
    for count in (4, 40):
        store = JsonlStore(tmp_path / str(count), page_bytes=16_384)

        def live(store: JsonlStore = store, count: int = count) -> Session:
            session, flusher = grown(store, 0), Flusher(frozenset())
            for _ in range(count):
                grow(session, 500)
                flusher.session_flush(session, "turn_end")
                session.writer.sync()  # type: ignore[union-attr]
                session.let_go(keep=100, long=400)
            session.writer.close()  # type: ignore[union-attr]
            assert len(session) == 1 + 500 * count
            return session

        peaks.append(peak_of(live))
    print("peaks", [f"{peak:,}" for peak in peaks])
    assert peaks[1] < 1.5 * peaks[0]


HELD = """
import resource, sys, time
from checkrein.flushing import Flusher
from checkrein.messages import USER, TextBlock
from checkrein import events as ev
from checkrein.recovery import recover
from checkrein.session import Session
from checkrein_persistence import JsonlStore
def held(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 1e6
before, begin, cpu = held(), time.perf_counter(), time.process_time()
def say(what): print(f"{len(session):,} events {what} in {time.perf_counter() - begin:.2f} s "
    f"({time.process_time() - cpu:.2f} s CPU), {before:.0f} MB before, {held():.0f} MB behind")
store = JsonlStore(sys.argv[1])
"""
WRITE = """
session, flusher = Session("s"), Flusher(frozenset())
append = session.append
append(ev.SessionCreated(format=ev.FORMAT, session="s", agent="main"))
session.writer = store.create("s", session.lines)
for turn in range(1, 111_112):
    said = [TextBlock(f"message {turn}")]
    taken = append(ev.InboxAccepted(id=session.next_input(), kind="queued", content=said, source=USER))
    append(ev.TurnStart(turn=turn, trigger={"kind": "input", "ids": [taken.id]}))
    append(ev.UserInput(turn=turn, id=taken.id, content=said, source=USER))
    append(ev.StepStart(turn=turn, step=1))
    append(ev.RequestStart(turn=turn, step=1, attempt=1, header=1, messages=1, digest="0" * 64))
    append(ev.RequestEnd(turn=turn, step=1, attempt=1, outcome="ok", finish_reason="stop"))
    append(ev.AssistantAnswer(turn=turn, step=1, content=[TextBlock(f"answer {turn}")]))
    append(ev.StepEnd(turn=turn, step=1))
    append(ev.TurnEnd(turn=turn, reason=ev.Reason("completed"), steps=1))
    flusher.session_flush(session, "turn_end")
    if not turn % 10_000:
        session.writer.sync()
say("written")
"""
OPEN = """
found = recover(store.read("s"), {})
session = Session.load("s", found.events, found.lines, {}, found.state)
say("opened")
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_a_million_events_are_held_and_opened(tmp_path: Path) -> None:
    for script in (WRITE, OPEN):
        done = subprocess.run(
            [sys.executable, "-c", HELD + script, str(tmp_path)], capture_output=True, text=True, check=True
        )
        print(done.stdout)
        assert done.stdout.startswith("1,000,000 events")
