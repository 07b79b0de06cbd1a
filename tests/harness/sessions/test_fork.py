"""R5, R2: forking, going back, repairing, searching and reconciling, over real stores."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

import checkrein.reconcile as reconcile_module
from checkrein import Agent, Harness, tool
from checkrein import events as ev
from checkrein.calls import Outcome
from checkrein.cli.sessions import sessions as command
from checkrein.errors import SessionNotFound, StoreError
from checkrein.memory_store import MemoryStore
from checkrein.messages import content_text
from checkrein.recovery import recover
from checkrein.sessions import EXCERPT_CHARS, fork, repair_stored, rewind, search
from checkrein.testing import ScriptedModel, call
from checkrein_invariants.checking import check_lines
from checkrein_persistence import JsonlStore
from checkrein_persistence import Plugin as Persistence


@tool
async def pay(amount: int) -> str:
    """Pay, later than all calls of the step have begun."""
    for _ in range(20):
        await anyio.sleep(0)
    return f"paid {amount}"


@tool(read_only=True)
async def dump() -> str:
    """A long output."""
    return "".join(f"row {n}\n" for n in range(40_000))


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Any:
    """Real time: the store's own threads are at work, which virtual time cannot see."""
    return lambda fn: anyio.run(fn, backend=request.param)


@pytest.fixture(params=["memory", "jsonl"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else JsonlStore(tmp_path / ".checkrein")


def talk(run: Any, store: Any, *turns: Any, says: Any = ("one", "two", "three"), pending: bool = False) -> str:
    """Write a session of some turns; returns its id."""

    async def main() -> str:
        async with Agent(ScriptedModel(*turns), tools=[pay, dump], plugins=[Persistence()], store=store) as agent:
            for words in says:
                await agent.run(words)
            if pending:
                agent.inject("by the way")
                await agent.dispose()
            return agent.session.id

    return run(main)


def go_on(run: Any, store: Any, session_id: str, *turns: Any, tools: Any = (pay, dump)) -> Any:
    """Resume a session and run a turn; returns its result and the agent's events."""

    async def main() -> Any:
        model = ScriptedModel(*turns)
        options: dict[str, Any] = {"found": (), "overrides": {"model": "scripted:x"}}
        async with Harness(tools=tools, plugins=[Persistence()], providers=[model], store=store, **options) as harness:
            agent = await harness.resume(session_id)
            result = await agent.run("go on")
            return result, list(agent.session.events), model

    return run(main)


def healthy(store: Any, session_id: str) -> None:
    log = store.read(session_id)
    checked = check_lines(session_id, log.lines, torn=log.torn, deep=True)
    assert checked is not None and checked.ok(), [f.message for f in checked.found] if checked else "empty"


TURNS = (call("pay", {"amount": 1}), "a1", "a2", "a3")


@pytest.mark.parametrize("turn", [0, 1, 2, 3, None])
def test_R5_a_fork_copies_up_to_a_turn_and_goes_on(run, store, turn):
    parent = talk(run, store, *TURNS)
    before = list(store.read(parent).lines)
    copy = fork(store, parent, turn)
    assert copy != parent and store.read(parent).lines == before
    last = 3 if turn is None else turn
    lines = store.read(copy).lines
    shared = next(n for n, line in enumerate(lines) if n >= len(before) or line != before[n])
    events = recover(store.read(copy)).events
    assert sum(type(e) is ev.TurnEnd for e in events) == last
    created = events[shared]
    assert type(created) is ev.SessionCreated
    assert (created.session, created.agent, created.origin) == (
        copy,
        "main",
        {"kind": "fork", "session": parent, "seq": shared - 1},
    )
    healthy(store, copy)
    result, events, model = go_on(run, store, copy, "and on")
    assert (result.turn, result.text) == (last + 1, "and on"), "numbering goes on (T7)"
    said = [content_text(m.content) for m in model.requests[0].messages if type(m).__name__ == "UserMessage"]
    assert said == [*["one", "two", "three"][:last], "go on"]
    ids = [e.id for e in events if type(e) is ev.InboxAccepted]
    assert len(set(ids)) == len(ids)
    healthy(store, copy)
    assert store.read(parent).lines == before


def test_R5_pending_input_stays_the_parents(run, store):
    parent = talk(run, store, *TURNS, pending=True)
    copy = fork(store, parent)
    events = recover(store.read(copy)).events
    assert not any(type(e) is ev.InboxDiscarded for e in events), "it came behind the last turn's end: not copied"
    open_ = repair_stored(store, parent)
    assert open_ == []
    forks = recover(store.read(fork(store, parent, 3))).events
    assert [e.type for e in forks[-1:]] == ["session/created"]


def test_R5_input_pending_at_the_cut_is_discarded_in_the_copy(run, store):
    async def main() -> str:
        model = ScriptedModel("first", "second")
        async with Agent(model, plugins=[Persistence()], store=store, queue_mode="one") as agent:
            receipt = agent.send("one")
            agent.send("two")
            await receipt.result()
            await agent.idle()
            return agent.session.id

    parent = run(main)
    copy = fork(store, parent, 1)
    discarded = [e for e in recover(store.read(copy)).events if type(e) is ev.InboxDiscarded]
    assert [e.id for e in discarded] == ["i2"] and parent in discarded[0].reason
    result, events, _ = go_on(run, store, copy, "third")
    assert [e.id for e in events if type(e) is ev.UserInput] == ["i1", "i3"] and result.ok
    healthy(store, copy)


def test_R5_a_fork_of_a_fork_and_of_a_resumed_session(run, store):
    parent = talk(run, store, *TURNS)
    go_on(run, store, parent, "a4")
    child = fork(store, parent, 4)
    go_on(run, store, child, "a5")
    grandchild = fork(store, child, 5)
    result, events, _ = go_on(run, store, grandchild, "a6")
    assert result.turn == 6
    assert [e.session for e in events if type(e) is ev.SessionCreated] == [parent, child, grandchild]
    healthy(store, grandchild)


def test_R5_blobs_come_along(run, store):
    parent = talk(run, store, call("dump"), "done", says=["go"])
    copy = fork(store, parent)
    import re

    log = b"".join(store.read(copy).lines)
    names = {name.decode() for name in re.findall(rb"output_id=\\?\"([0-9a-f]{64})", log)}
    assert names
    for name in names:
        assert store.get_blob(copy, name) == store.get_blob(parent, name)


@pytest.mark.parametrize("turn", [4, 99])
def test_R5_a_turn_that_is_not_there_is_refused(run, store, turn):
    parent = talk(run, store, *TURNS)
    with pytest.raises(StoreError, match=f"1 to 3.*got turn {turn}"):
        fork(store, parent, turn)
    with pytest.raises(SessionNotFound):
        fork(store, "nobody")
    assert len(list(store.list())) == 1


def test_R5_rewind_leaves_turns_out(run, store):
    parent = talk(run, store, *TURNS)
    copy = rewind(store, parent)
    result, _, _ = go_on(run, store, copy, "other")
    assert result.turn == 3
    assert go_on(run, store, rewind(store, parent, 3), "anew")[0].turn == 1
    for turns in (0, 4):
        with pytest.raises(StoreError, match="1 to 3"):
            rewind(store, parent, turns)


def test_R1_a_damaged_parent_can_be_forked_and_its_gap_stays_named(run, tmp_path):
    store = JsonlStore(tmp_path / ".checkrein")
    parent = talk(run, store, *TURNS)
    path = Path(store.locate(parent))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], b"garbage\n", *lines[6:]]))
    copy = fork(store, parent, 2)
    gaps = [e for e in recover(store.read(copy)).events if type(e) is ev.LogGap]
    assert [(e.after, e.before) for e in gaps] == [(3, 6)] and not recover(store.read(copy)).gaps
    assert go_on(run, store, copy, "on")[0].turn == 3
    healthy(store, copy)


# --- repair -------------------------------------------------------------------------------------------


def cut_at(store: JsonlStore, session_id: str, keep: int) -> None:
    path = Path(store.locate(session_id))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:keep]) + lines[keep][: len(lines[keep]) // 2])


def test_R2_repair_closes_every_cut_and_the_second_time_adds_nothing(run, tmp_path):
    whole = talk(run, JsonlStore(tmp_path / "whole"), *TURNS, says=["one"])
    lines = JsonlStore(tmp_path / "whole").read(whole).lines
    for keep in range(1, len(lines)):
        store = JsonlStore(tmp_path / f"cut{keep}")
        store.create(whole, lines[:keep]).close()
        first = repair_stored(store, whole)
        assert repair_stored(store, whole) == []
        events = recover(store.read(whole)).events
        assert len(events) == keep + len(first)
        assert sum(type(e) is ev.TurnStart for e in events) == sum(type(e) is ev.TurnEnd for e in events)
        healthy(store, whole)


# --- reconcile ------------------------------------------------------------------------------------------


def begun(run: Any, tmp_path: Path, *calls: Any, keep_ends: bool = False) -> tuple[JsonlStore, str]:
    """A session whose process died while its first step's calls ran."""
    store = JsonlStore(tmp_path / ".checkrein")
    session_id = talk(run, store, list(calls), "done", says=["go"])
    lines = store.read(session_id).lines
    starts = [n for n, line in enumerate(lines) if line.startswith(b'{"type":"tool/start"')]
    (Path(store.locate(session_id))).write_bytes(b"".join(line + b"\n" for line in lines[: starts[len(calls) - 1] + 1]))
    return store, session_id


def settled(**options: Any) -> Any:
    asked: list[dict[str, Any]] = []

    def look(arguments: dict[str, Any]) -> Any:
        asked.append(arguments)
        answer = options["answer"]
        return answer(arguments) if callable(answer) else answer

    async def look_async(arguments: dict[str, Any]) -> Any:
        await anyio.sleep(0)
        return look(arguments)

    @tool(name="pay", reconcile=look_async if options.get("is_async") else look)
    async def payer(amount: int) -> str:
        """Pay."""
        raise AssertionError("an effectful call is never begun twice")

    return payer, asked


@pytest.mark.parametrize("is_async", [False, True])
def test_R2_a_tool_settles_what_a_crash_left_unknown(run, tmp_path, is_async):
    store, session_id = begun(run, tmp_path, call("pay", {"amount": 7}))
    payer, asked = settled(answer=Outcome.text("it was paid"), is_async=is_async)
    result, events, model = go_on(run, store, session_id, "good", tools=[payer])
    assert result.ok and asked == [{"amount": 7}]
    answer = next(e for e in events if type(e) is ev.ToolResulted)
    assert (content_text(answer.content), answer.is_error) == ("it was paid", False)
    assert next(e for e in events if type(e) is ev.TurnEnd).reason.kind == "interrupted"
    assert content_text(model.requests[0].messages[2].content) == "it was paid"
    healthy(store, session_id)


def test_R2_several_calls_are_settled_in_the_models_order(run, tmp_path):
    calls = [call("pay", {"amount": n}) for n in (1, 2, 3)]
    store, session_id = begun(run, tmp_path, *calls)
    payer, asked = settled(answer=lambda a: None if a["amount"] == 1 else Outcome.text(f"settled {a['amount']}"))
    _, events, _ = go_on(run, store, session_id, "good", tools=[payer])
    results = [(e.call_id, e.error.code if e.error else "ok") for e in events if type(e) is ev.ToolResulted]
    assert results == [("c1.1.1", "OUTCOME_UNKNOWN"), ("c1.1.2", "ok"), ("c1.1.3", "ok")] and len(asked) == 3
    healthy(store, session_id)


@pytest.mark.parametrize("how", ["none", "raises", "late", "gone"])
def test_R2_what_a_tool_cannot_settle_stays_unknown(run, tmp_path, how, monkeypatch):
    monkeypatch.setattr(reconcile_module, "RECONCILE_S", 0.05 if how == "late" else 30.0)
    store, session_id = begun(run, tmp_path, call("pay", {"amount": 7}))

    def answer(arguments: dict[str, Any]) -> Any:
        if how == "raises":
            raise OSError("no line")
        return anyio.sleep_forever() if how == "late" else None

    payer, _ = settled(answer=answer)
    _, events, _ = go_on(run, store, session_id, "good", tools=() if how == "gone" else [payer])
    assert [e.error.code for e in events if type(e) is ev.ToolResulted] == ["OUTCOME_UNKNOWN"]
    faults = [(e.plugin, e.hook) for e in events if type(e) is ev.PluginFaulted]
    assert faults == ([("pay", "reconcile")] if how in ("raises", "late") else [])
    healthy(store, session_id)


# --- search -----------------------------------------------------------------------------------------------


def test_search_finds_what_was_said_asked_and_returned(run, store):
    first = talk(run, store, call("pay", {"amount": 41}), "All is Paid,\nthank you.", says=["Pay the INVOICE please"])
    second = talk(run, store, "Nothing here.", says=["hello"])
    assert [(hit.session, hit.type, hit.turn) for hit in search(store, "invoice")] == [(first, "user/message", 1)]
    assert [hit.type for hit in search(store, "paid 41")] == ["tool/result"]
    assert [hit.excerpt for hit in search(store, "paid, thank")] == ["All is Paid, thank you."]
    assert [hit.type for hit in search(store, '"amount":41')] == ["assistant/message"]
    assert [hit.session for hit in search(store, "HELLO")] == [second]
    assert not list(search(store, "absent")) and len(list(search(store, "a", limit=2))) == 2
    with pytest.raises(ValueError, match="some text"):
        list(search(store, "  "))


@pytest.mark.parametrize("before", ["Straße. " * 100, "ß" * 120, "İ" * 400, "x" * 400])
def test_search_shows_what_it_found_however_many_letters_fold_to_more(run, store, before):
    talk(run, store, f"{before}FOUND{before}")
    (hit,) = search(store, "found")
    assert "FOUND" in hit.excerpt and len(hit.excerpt) == EXCERPT_CHARS + len("……")


def test_R1_a_search_goes_on_behind_a_long_session_that_is_removed_meanwhile(run, tmp_path):
    store = JsonlStore(tmp_path, long_bytes=1_000, page_bytes=500)
    older, newer = (talk(run, store, "here", "and here", says=["a", "b"]) for _ in range(2))
    hits = search(store, "here")
    first = next(hits)
    shutil.rmtree(tmp_path / "sessions" / first.session)
    assert {hit.session for hit in hits} == {older, newer} - {first.session}


# --- the commands -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[JsonlStore, str]:
    """The current folder, with a stored session of three turns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    store = JsonlStore(tmp_path / ".checkrein")
    return store, talk(run, store, *TURNS)


def invoke(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(command, args, catch_exceptions=False)
    return done.exit_code, done.stdout


def test_the_commands(folder):
    store, parent = folder
    code, out = invoke("fork", parent[:-1], "--turn", "1")
    assert code == 0 and sum(type(e) is ev.TurnEnd for e in recover(store.read(out.strip())).events) == 1
    code, out = invoke("rewind", parent, "--turns", "2")
    assert code == 0 and sum(type(e) is ev.TurnEnd for e in recover(store.read(out.strip())).events) == 1
    code, out = invoke("repair", parent)
    assert (code, out) == (0, f"session {parent}: nothing to repair\n")
    cut_at(store, parent, 8)
    code, out = invoke("repair", parent)
    assert code == 0 and "turn/end interrupted" in out
    code, out = invoke("search", "ONE")
    assert code == 0 and len(out.splitlines()) == 3 and "user/message" in out
    assert invoke("search", "absent")[0] == 1
    code, out = invoke("search", "one", "--json", "--limit", "1")
    assert code == 0 and out.startswith('{"session"')


def test_a_repair_the_disk_does_not_take_says_so(folder):
    store, parent = folder
    log = Path(store.locate(parent))
    log.write_bytes(log.read_bytes()[:-30])
    log.with_name("log.torn").mkdir()  # what is torn cannot be set aside
    with pytest.raises(StoreError, match=f"session {parent} is not repaired: .*Is a directory"):
        invoke("repair", parent)
