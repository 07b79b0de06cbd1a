"""Long sessions: older events are read back from the store, and nothing but memory tells the difference.

Each test opens a log a page at a time, pages of a few lines, beside the same log in memory. What a live session lets
go, and what memory that takes, is test_letting_go.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from comparing import damaged, differences, differing, put
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein import Agent, Harness, hookimpl, tool
from checkrein import events as ev
from checkrein.codec import encode, seal
from checkrein.errors import StoreError
from checkrein.log import Pages
from checkrein.recovery import Recovered, recover, reopen
from checkrein.replay import replay
from checkrein.session import Session
from checkrein.sessions import fork, repair_stored
from checkrein.testing import ScriptedModel, call
from checkrein_invariants.checking import check_lines
from checkrein_invariants.strategies import logs
from checkrein_persistence import FileOps, JsonlStore, Plugin

PLAIN: dict[str, Any] = {"long_bytes": 10**12}
COLD: dict[str, Any] = {"long_bytes": 0, "page_bytes": 700}
SWEEP = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def both(folder: Path) -> tuple[Recovered, Recovered]:
    """The log as it is found in memory, and a page at a time."""
    return tuple(recover(JsonlStore(folder, **how).read("s"), {}) for how in (PLAIN, COLD))  # type: ignore[return-value]


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


def test_R1_only_late_events_need_the_whole_log_in_memory(tmp_path: Path) -> None:
    row = [seal(encode(ev.FreeEvent("sample/row", seq, 0, {"text": "x" * 90}))) for seq in range(60)]
    torn, junk = row[7][:50], b"junk"
    for lines, paged in (
        ([*row[:30], *row[20:45], row[3], *row[45:]], True),  # two writers, or a write that was struck
        ([row[9], *row[5:30], *row[40:]], False),
        ([*row[:20], *row[25:], row[22]], False),
        ([*row[:20], torn, *row[25:], junk, row[25], row[2]], True),
        ([row[0], seal(encode(ev.FreeEvent("sample/row", 2**60, 0, {}))), *row], True),
    ):
        put(tmp_path, b"".join(line + b"\n" for line in lines))
        plain, cold = both(tmp_path)
        assert differences(plain, cold) == []
        assert isinstance(cold.lines, Pages) == paged


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


# --- where it is read from -----------------------------------------------------------------------------


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
    session_id = written(JsonlStore(".checkrein"))
    found = recover(JsonlStore(".checkrein", **COLD).read(session_id))
    monkeypatch.chdir("/")
    assert len(list(found.events)) == len(found.lines)
