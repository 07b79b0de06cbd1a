"""`checkrein sessions`: listing and showing, in-process, over a store of real sessions."""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import anyio
import pytest
from click.testing import CliRunner

from checkrein import Agent, tool
from checkrein.cli.sessions import sessions
from checkrein.testing import ScriptedModel, call, text, thinking, usage
from checkrein_persistence import JsonlStore
from checkrein_persistence import Plugin as Persistence


@tool(read_only=True)
def look(n: int) -> str:
    """Look at a number."""
    return f"seen {n}"


@pytest.fixture
def stored(tmp_path, monkeypatch) -> Path:
    """The log of a session of two turns, in the current folder."""

    async def talk():
        model = ScriptedModel(
            [thinking("hm"), text("Let me."), call("look", {"n": 3})], [text("It is 3."), usage(input=7)]
        )
        model.add("Bye.")
        store = JsonlStore(".checkrein")
        async with Agent(model, tools=[look], plugins=[Persistence], store=store) as agent:
            await agent.run("what is it?")
            await agent.run("thanks\x1b[2J")
            return store.locate(agent.session.id)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Path(anyio.run(talk))


def invoke(*args):
    done = CliRunner().invoke(sessions, args, catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def test_list(stored):
    code, out, _ = invoke("list")
    assert (code, len(out.splitlines())) == (0, 1)
    assert out.startswith(stored.parent.name) and "what is it?" in out
    code, out, _ = invoke("list", "--json")
    row = json.loads(out)
    assert (row["id"], row["agent"], row["title"], row["problem"]) == (stored.parent.name, "main", "what is it?", None)


def test_show_is_the_conversation(stored):
    code, out, _ = invoke("show", stored.parent.name[:-1])
    assert code == 0
    told = [line for line in out.splitlines() if not line.startswith(("session", "log", "---"))]
    took = told[4]
    assert took.startswith("  result of look") and took.endswith("seen 3")
    assert told == [
        "you: what is it?",
        "thinking: hm",
        "model: Let me.",
        'call look {"n":3}',
        took,
        "model: It is 3.",
        "turn 1 completed",
        "you: thanks\\x1b[2J",
        "model: Bye.",
        "turn 2 completed",
        "7 tokens in, 0 out",
    ]


def test_names_in_a_strangers_sessions_cannot_drive_the_terminal(stored):
    folder = stored.parent.parent / "evil\x1b[2J"
    folder.mkdir()
    (folder / "log.jsonl").write_bytes(b"")
    code, out, _ = invoke("list")
    assert (code, "\x1b" in out, "evil\\x1b[2J" in out) == (0, False, True)
    first, *others = [line.rpartition(b',"crc":')[0] for line in stored.read_bytes().splitlines()]
    lines = [first.replace(b'"agent":"main"', b'"agent":"evil\\u001b[2J"'), *others]
    stored.write_bytes(b"".join(b'%s,"crc":"%08x"}\n' % (line, crc32(line)) for line in lines))
    code, out, _ = invoke("show", stored.parent.name)
    assert (code, "\x1b" in out, "agent evil\\x1b[2J" in out) == (0, False, True)


def test_show_json_is_the_log(stored):
    code, out, _ = invoke("show", stored.parent.name, "--json")
    assert (code, out.encode()) == (0, stored.read_bytes())


def test_R1_damage_is_shown_and_never_stops_a_listing(stored):
    lines = stored.read_bytes().splitlines(keepends=True)
    stored.write_bytes(b"".join([*lines[:3], b"garbage\n", *lines[4:], b'{"type":"turn/st']))
    other = stored.parent.parent / "20200101-empty"
    other.mkdir()
    (other / "log.jsonl").write_bytes(b"")
    code, out, _ = invoke("list")
    assert (code, len(out.splitlines())) == (0, 2)
    code, out, err = invoke("show", stored.parent.name)
    assert code == 9
    assert "model: It is 3." in out and "torn" in out and "damaged" in err
    code, _, err = invoke("show", "20200101-empty")
    assert (code, "damaged" in err) == (9, True)


def test_a_listing_obeys_no_folders_name(stored):
    stored.parent.rename(stored.parent.with_name("\x1b[2J"))
    code, out, _ = invoke("list")
    assert code == 0 and out.startswith("\\x1b[2J  ")


def test_show_of_a_running_or_killed_session_says_so(stored):
    lines = stored.read_bytes().splitlines(keepends=True)
    stored.write_bytes(b"".join(lines[:8]))
    code, out, _ = invoke("show", stored.parent.name)
    assert (code, out.splitlines()[-1]) == (0, "turn 1 is open: it runs now, or was interrupted")
