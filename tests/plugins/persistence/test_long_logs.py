"""Long sessions: older events are read back from the store, and nothing but memory tells the difference.

Each test opens a log a page at a time, pages of a few lines, beside the same log in memory. `--slow` opens a log of
1,000,000 events and prints what that takes.
"""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein import Agent, Harness, hookimpl, tool
from checkrein import events as ev
from checkrein.codec import encode, seal
from checkrein.errors import StoreError
from checkrein.flushing import Flusher
from checkrein.log import Pages
from checkrein.memory_store import MemoryStore
from checkrein.recovery import Recovered, recover, reopen
from checkrein.replay import replay
from checkrein.session import Session
from checkrein.sessions import fork, repair_stored
from checkrein.store import flush
from checkrein.testing import ScriptedModel, call
from checkrein_invariants.checking import check_lines
from checkrein_invariants.strategies import logs
from checkrein_persistence import FileOps, JsonlStore, Plugin

PLAIN: dict[str, Any] = {"long_bytes": 10**12}
COLD: dict[str, Any] = {"long_bytes": 0, "page_bytes": 700}
SWEEP = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def put(folder: Path, data: bytes) -> None:
    (folder / "sessions/s").mkdir(parents=True, exist_ok=True)
    (folder / "sessions/s/log.jsonl").write_bytes(data)


def both(folder: Path) -> tuple[Recovered, Recovered]:
    """The log as it is found in memory, and a page at a time."""
    return tuple(recover(JsonlStore(folder, **how).read("s"), {}) for how in (PLAIN, COLD))  # type: ignore[return-value]


def differences(plain: Recovered, cold: Recovered) -> list[str]:
    names = ("events", "lines", "gaps", "set_aside", "skipped_bytes", "read_only")
    found = [name for name in names if getattr(cold, name) != getattr(plain, name)]
    a = Session.load("s", plain.events, plain.lines, {}, plain.state)
    b = Session.load("s", cold.events, cold.lines, {}, cold.state)
    if cold.state is not None and encoded(Session.load("s", cold.events, cold.lines, {})) != encoded(b):
        found.append("the state made on the way is another one")
    return found + differing(a, b)


def encoded(session: Session) -> list[Any]:
    state = session.state
    return [state.turn, state.step, state.next_seq, state.ends, state.history.messages, state.history.seqs, state.usage]


def differing(plain: Session, cold: Session) -> list[str]:
    """What can be read of two sessions that should be the same."""
    n = len(plain)
    found = [] if len(cold) == n else ["length"]
    found += [] if encoded(plain) == encoded(cold) else ["state"]
    found += [] if list(cold.lines) == list(plain.lines) and cold.events == plain.events else ["events"]
    cuts = (0, 1, 2, n // 3, n - 2, n - 1, n, n + 3, -1, -2, -n, -n - 1)
    for i in cuts:
        for j in cuts:
            for step in (None, 2, -1):
                part = slice(i, j, step)
                if cold.events[part] != plain.events[part] or cold.lines[part] != plain.lines[part]:
                    found.append(f"[{i}:{j}:{step}]")
        if -n <= i < n and (cold.events[i] != plain.events[i] or cold.line(i) != plain.line(i)):
            found.append(f"[{i}]")
    for seq in range(-1, plain.state.next_seq + 2):
        found += [] if cold.since(seq) == plain.since(seq) else [f"since({seq})"]
    for turn in range(plain.state.turn + 2):
        found += [] if cold.turn_events(turn) == plain.turn_events(turn) else [f"turn_events({turn})"]
    found += [] if list(reversed(cold.events)) == list(reversed(plain.events)) else ["reversed"]
    for wrong in (n, -n - 1):
        with pytest.raises(IndexError):
            cold.events[wrong]
    return found


# --- reading -------------------------------------------------------------------------------------------


@given(log=logs(), data=st.data())
@SWEEP
def test_R1_a_log_is_the_same_in_memory_and_a_page_at_a_time(tmp_path: Path, log: Any, data: st.DataObject) -> None:
    lines = [seal(encode(event)) for event in log.events]
    put(tmp_path, b"".join(line + b"\n" for line in lines))
    assert differences(*both(tmp_path)) == []
    for _ in range(3):
        put(tmp_path, damaged(lines, data))
        assert differences(*both(tmp_path)) == []


def damaged(lines: Sequence[bytes], data: st.DataObject) -> bytes:
    """Lines lost, doubled and swapped, a bit flipped, the end torn: each or none of it."""
    kept = list(lines)
    for _ in range(data.draw(st.integers(0, 3))):
        if not kept:
            break
        at = data.draw(st.integers(0, len(kept) - 1))
        way = data.draw(st.sampled_from(("lose", "double", "swap", "flip")))
        if way == "lose":
            del kept[at]
        elif way == "double":
            kept.insert(data.draw(st.integers(0, len(kept))), kept[at])
        elif way == "swap":
            kept[at], kept[-1] = kept[-1], kept[at]
        else:
            place = data.draw(st.integers(0, len(kept[at]) - 1))
            kept[at] = kept[at][:place] + bytes([kept[at][place] ^ 1]) + kept[at][place + 1 :]
    whole = b"".join(line + b"\n" for line in kept)
    return whole[: len(whole) - data.draw(st.sampled_from((0, 0, 1, 5, 30)))]


def test_R1_a_line_longer_than_a_page_and_an_empty_log(tmp_path: Path) -> None:
    texts = ("a", "x" * 5_000, "b", "c" * 700, "d")
    long = [seal(encode(ev.FreeEvent("sample/row", seq, 0, {"text": text}))) for seq, text in enumerate(texts)]
    for data in (b"", b"\n\n", b"junk", b"".join(line + b"\n" for line in long), b"\n".join(long)):
        put(tmp_path, data)
        assert differences(*both(tmp_path)) == []


def test_a_log_that_changes_under_its_reader_says_so(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, **COLD)
    session_id = written(JsonlStore(tmp_path))
    cold = recover(store.read(session_id))
    log = Path(store.locate(session_id))
    data = bytearray(log.read_bytes())
    for change in (data[:600], data.replace(b"first", b"other"), data.replace(b'"seq":1,', b'"seq":1\n')):
        log.write_bytes(change)
        with pytest.raises(StoreError, match=r"read again|open the session again"):
            list(cold.events)
    log.unlink()
    with pytest.raises(StoreError, match="cannot be read back"):
        cold.events[0]


# --- whole sessions ------------------------------------------------------------------------------------


@tool(read_only=True)
async def note(text: str) -> str:
    """Note something."""
    return f"noted {text}"


class LetsGo:
    """Leaves to the store whatever it can, at each turn's end."""

    @hookimpl(trylast=True)
    def session_flush(self, session: Session, gate: str) -> None:
        if gate == "turn_end":
            session.let_go(keep=2, long=0)


TWO_CALLS = [call("note", {"text": "a"}), call("note", {"text": "b"})]
TURNS = (TWO_CALLS, "one", [call("note", {"text": "c"})], "two", "three")
SAYS = ("first", "second", "third")


def written(store: Any, *, lets_go: bool = False, then: Any = None) -> str:
    """Play three turns; returns the session's id."""

    async def main() -> str:
        plugins = [Plugin(), *([LetsGo()] if lets_go else [])]
        async with Agent(ScriptedModel(*TURNS), tools=[note], plugins=plugins, store=store) as agent:
            for words in SAYS:
                result = await agent.run(words)
                assert result.events == agent.session.turn_events(result.turn)
            if then is not None:
                then(agent.session)
            return agent.session.id

    return anyio.run(main)


def resumed(store: Any, session_id: str, *, lets_go: bool = False) -> list[str]:
    """Go on with a session for two turns; returns its event types, and what the model read."""

    async def main() -> list[str]:
        model = ScriptedModel([call("note", {"text": "d"})], "four", "five", record=True)
        plugins = [Plugin(), *([LetsGo()] if lets_go else [])]
        async with Harness(
            providers=[model], tools=[note], plugins=plugins, store=store, found=(), overrides={"model": "scripted:x"}
        ) as harness:
            agent = await harness.resume(session_id)
            for words in ("fourth", "fifth"):
                (await agent.run(words)).check()
            shown = [event.type for event in agent.session.events]
            return [*shown, *(repr(request.messages) for request in model.requests)]

    return anyio.run(main)


def test_R5_resume_fork_repair_and_replay_do_the_same_from_pages(tmp_path: Path) -> None:
    plain, cold = JsonlStore(tmp_path, **PLAIN), JsonlStore(tmp_path, **COLD)
    session_id = written(plain)
    assert isinstance(cold.read(session_id).lines, Pages)
    for turn in (0, 1, 2, 3):
        made = [list(store.read(fork(store, session_id, turn)).lines) for store in (plain, cold)]
        assert made[0][: len(made[0]) - 3] == made[1][: len(made[0]) - 3] and len(made[0]) == len(made[1])
    report = anyio.run(replay, recover(cold.read(session_id)).events)
    assert report.equal, report.differences
    copies = [fork(plain, session_id), fork(plain, session_id)]
    assert resumed(plain, copies[0]) == resumed(cold, copies[1])
    checked = check_lines("s", cold.read(copies[1]).lines)
    assert checked is not None and checked.ok() and not checked.found
    open_turn = list(plain.read(session_id).lines)[:-4]
    for name, store in (("p", plain), ("c", cold)):
        store.create(name, open_turn).close()
        assert [event.type for event in repair_stored(store, name)][-1] == "turn/end"
        assert repair_stored(store, name) == []


def test_a_session_that_lets_go_after_each_turn_is_the_same(tmp_path: Path) -> None:
    seen: list[Session] = []
    ids = [written(JsonlStore(tmp_path / name, **COLD), lets_go=name == "b", then=seen.append) for name in "ab"]
    kept, gone = seen
    assert not isinstance(kept.events, Pages) and isinstance(gone.events, Pages)
    assert [event.type for event in gone.events] == [event.type for event in kept.events]
    last = gone.turn_events(3)
    assert last == gone.events.recent[-len(last) :], "the last turn stays in memory"
    assert len(gone.events.recent) == len(last) < len(gone)
    store = JsonlStore(tmp_path / "b", **PLAIN)
    found = recover(store.read(ids[1]))
    assert differing(Session.load("s", found.events, found.lines), gone) == []
    assert resumed(JsonlStore(tmp_path / "a", **PLAIN), ids[0]) == resumed(
        JsonlStore(tmp_path / "b", **COLD), ids[1], lets_go=True
    )


def test_a_stream_goes_on_when_its_session_has_let_go(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel(*TURNS)
        async with (
            Agent(model, tools=[note], plugins=[Plugin(), LetsGo()], store=JsonlStore(tmp_path, **COLD)) as agent,
            agent.harness.events() as feed,
        ):
            for words in SAYS:
                async with agent.stream(words) as turn:
                    types = [item.type async for item in turn if isinstance(item, ev.Event)]
                assert types[-1] == "step/end"
            logged = len(agent.session)
            seen = [await anext(feed) for _ in range(logged)]
            assert [item.seq for item in seen if item.seq >= 0] == sorted(item.seq for item in seen if item.seq >= 0)
            later = agent.harness.events(after={agent.session.id: 1})
            async with later:
                assert (await anext(later)).seq == 2

    anyio.run(main)


# --- what may not be let go ----------------------------------------------------------------------------


def grown(store: Any, count: int = 40) -> Session:
    session = Session("s")
    session.append(ev.SessionCreated, format=ev.FORMAT, session="s", agent="main")
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
    for store in (MemoryStore(), JsonlStore(tmp_path, ops=Blind())):
        session = grown(store)
        session.let_go(keep=0, long=0)
        assert isinstance(session.events, list) and len(session) == 41
        assert session.writer is not None
        session.writer.close()
    alone = Session("alone")
    alone.append_free("sample/row", {})
    alone.let_go(keep=0, long=0)
    assert isinstance(alone.events, list)


class Blind(FileOps):
    """A disk that can be read so many times, then only written."""

    def __init__(self, reads: int = 0) -> None:
        self.reads = reads

    def read(self, path: Path, offset: int = 0, size: int = -1) -> bytes:
        self.reads -= 1
        if self.reads < 0:
            raise OSError(5, "Input/output error")
        return super().read(path, offset, size)


def test_R3_a_long_log_that_cannot_be_read_to_its_end_is_not_left_locked(tmp_path: Path) -> None:
    written(JsonlStore(tmp_path))
    session_id = next(JsonlStore(tmp_path).list()).id
    for reads in range(12):
        with pytest.raises(StoreError, match="cannot be"):
            reopen(JsonlStore(tmp_path, ops=Blind(reads), **COLD), session_id)
    reopen(JsonlStore(tmp_path, **COLD), session_id)[1].close()


def test_a_relative_folder_is_found_from_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    grown(JsonlStore(".checkrein")).writer.close()  # type: ignore[union-attr]
    found = recover(JsonlStore(".checkrein", **COLD).read("s"))
    monkeypatch.chdir("/")
    assert len(list(found.events)) == 41


def test_an_open_turn_stays_in_memory(tmp_path: Path) -> None:
    session = grown(JsonlStore(tmp_path))
    session.append(ev.TurnStart, turn=1, trigger={"kind": "continuation", "ids": []})
    grow(session, 5)
    session.let_go(keep=0, long=0)
    assert isinstance(session.events, list)
    session.append(ev.TurnEnd, turn=1, reason=ev.Reason("completed"), steps=0)
    grow(session, 0)
    session.let_go(keep=0, long=0)
    assert isinstance(session.events, Pages) and session.events.recent[0].type == "turn/start"
    assert session.writer is not None
    session.writer.close()


def test_a_log_without_its_last_newline_can_be_let_go(tmp_path: Path) -> None:
    grown(JsonlStore(tmp_path)).writer.close()  # type: ignore[union-attr]
    log = tmp_path / "sessions/s/log.jsonl"
    log.write_bytes(log.read_bytes()[:-1])
    for how in (PLAIN, COLD):
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
        put(tmp_path, b"".join(row + b"\n" for row in rows(count)))
        for name, how in (("plain", PLAIN), ("cold", {"long_bytes": 0, "page_bytes": 65_536})):

            def opened(how: Any = how) -> Session:
                found = recover(JsonlStore(tmp_path, **how).read("s"), {})
                return Session.load("s", found.events, found.lines, {}, found.state)

            peaks[name, count] = peak_of(opened)
    print({key: f"{peak:,}" for key, peak in peaks.items()})
    assert peaks["plain", 20_000] > 8 * peaks["plain", 2_000]
    assert peaks["cold", 20_000] < 1.5 * peaks["cold", 2_000]


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
append(ev.SessionCreated, format=ev.FORMAT, session="s", agent="main")
session.writer = store.create("s", session.lines)
for turn in range(1, 111_112):
    said = [TextBlock(f"message {turn}")]
    taken = append(ev.InboxAccepted, id=session.next_input(), kind="queued", content=said, source=USER)
    append(ev.TurnStart, turn=turn, trigger={"kind": "input", "ids": [taken.id]})
    append(ev.UserInput, turn=turn, id=taken.id, content=said, source=USER)
    append(ev.StepStart, turn=turn, step=1)
    append(ev.RequestStart, turn=turn, step=1, attempt=1, header=1, messages=1, digest="0" * 64)
    append(ev.RequestEnd, turn=turn, step=1, attempt=1, outcome="ok", finish_reason="stop")
    append(ev.AssistantAnswer, turn=turn, step=1, content=[TextBlock(f"answer {turn}")])
    append(ev.StepEnd, turn=turn, step=1)
    append(ev.TurnEnd, turn=turn, reason=ev.Reason("completed"), steps=1)
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
