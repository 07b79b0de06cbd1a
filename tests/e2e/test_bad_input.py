"""Bad input through the real command line: an error a user understands, the right exit code, nothing lost."""

from __future__ import annotations

import json

import pytest

from checkrein.codec import seal
from checkrein.testing import StrictChatServer

FREE = '[plugins.permissions]\nmode = "allow"\n'
IMPORTLESS = "raise OSError('the disk of this plugin is on fire')\n"
HINTLESS = """
from checkrein import hookimpl, tool

class Weather: ...

@tool
def forecast(place: Weather) -> str:
    "What the weather will be."

class Plugin: ...
"""


def fails(done, code, *words):
    """One line on standard error, nothing on standard output."""
    assert (done.code, done.out) == (code, ""), done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err, done.err


def test_broken_toml(cli):
    cli.config('model = "scripted:x"\n[plugins.scripted\n')
    fails(cli.run("run", "hi"), 3, "checkrein.toml", "line 2", "syntax error")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[plugins.scriptet]\n", ("'scriptet'", "did you mean 'scripted'", "plugins.scriptet")),
        ("modle = 'x'\n", ("modle", "did you mean 'model'")),
        ("[[agents]]\nid = 'a'\n[[agents]]\nid = 'a'\n", ("agents[1].id", "agents[0]")),
        ("[[agents]]\nid = ''\n", ("agents[0].id",)),
        ("[[agents]]\nid = 'a'\nmax_steps = 'ten'\n", ("agents[0].max_steps", "expected")),
        ("model = 'opnai:gpt'\n", ("'opnai:gpt'", "did you mean 'openai'")),
        ("[session]\nstore = 'jsonk'\n", ("session.store", "did you mean 'jsonl'")),
        ("[plugins.permissions]\ndeny = ['write(']\n", ("permissions", "deny[0]")),
    ],
)
def test_config_that_cannot_work(cli, config, words):
    cli.config(config)
    fails(cli.run("run", "hi"), 3, str(cli.folder / "checkrein.toml"), *words)
    assert not (cli.folder / ".checkrein").exists()


def test_config_file_that_is_not_there(cli):
    fails(cli.run("run", "--config", "nowhere.toml", "hi"), 3, "nowhere.toml")


def test_H5_plugin_that_fails_to_import_is_skipped_and_reported(cli):
    cli.install("burning", IMPORTLESS)
    cli.script('"answer"')
    done = cli.run("run", "hi")
    assert (done.code, done.out) == (0, "answer\n")
    assert "plugin 'burning' (e2e-burning 1.0) is skipped: OSError: the disk of this plugin is on fire" in done.err
    assert cli.run("--help").code == 0  # H01


def test_H5_plugin_that_the_config_names_must_import(cli):
    cli.install("burning", IMPORTLESS)
    cli.script('"answer"', more="[plugins.burning]")
    fails(cli.run("run", "hi"), 3, "burning", "e2e-burning 1.0", "on fire", "--no-plugin burning")
    assert cli.run("run", "--no-plugin", "burning", "hi").code == 0


def test_tool_whose_hints_cannot_become_a_schema(cli):
    cli.install("hintless", HINTLESS)
    cli.script('"answer"', more="[plugins.hintless]")
    fails(cli.run("run", "hi"), 3, "hintless", "forecast", "place")


def test_model_without_a_key(cli):
    cli.config('model = "openai:gpt-5-mini"\n')
    done = cli.run("run", "hi")
    fails(done, 4, "OPENAI_API_KEY", "openai:gpt-5-mini")
    assert len(done.err.splitlines()) == 1


def test_auto_with_a_config_file_and_no_usable_provider(cli):
    cli.config("")
    done = cli.run("run", "hi")
    fails(done, 4, "no provider is usable", "OPENAI_API_KEY")
    assert len(done.err.splitlines()) == 1


def test_without_a_store_the_session_is_checked_in_memory_and_said_to_be_gone(cli):
    cli.script('"answer"')
    done = cli.run("run", "--no-plugin", "persistence", "hi")
    assert (done.code, done.out) == (0, "answer\n")
    assert "in memory, gone now" in done.err and "oracle: balanced" in done.err


def test_prompt_of_10_mb(cli):
    cli.script('"read it all"')
    done = cli.run("run", stdin=b"x" * 10_000_000)
    assert (done.code, done.out) == (0, "read it all\n")
    assert len(cli.events()[1]["content"][0]["text"]) == 10_000_000


def test_M8_arguments_that_are_no_object(cli):
    cli.script('{ calls = [{ name = "write_note", raw = "[1, 2]" }] }', '"I see."', more=FREE)
    done = cli.run("run", "go")
    assert (done.code, done.out) == (0, "I see.\n")
    assert "failed INVALID_ARGUMENTS of write_note" in done.err
    assert not (cli.folder / "note.txt").exists()


def test_L9_lone_surrogates_in_a_tools_output_and_in_a_stream(cli):
    cli.config('model = "openai:gpt-test"\n' + FREE)
    with StrictChatServer({"calls": [{"name": "dirty"}]}, {"text": "half \ud83d pair"}) as server:
        cli.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "test"}
        done = cli.run("run", "go")
    assert (done.code, done.out) == (0, "half \ufffd pair\n"), done.err
    assert server.refusals == []
    cleaned = {event["type"]: event["cleaned"] for event in cli.events() if "cleaned" in event}
    assert cleaned == {"tool/result": 1, "assistant/message": 1}


# --- logs ---------------------------------------------------------------------------------------------


def line(**fields):
    return seal(json.dumps(fields, separators=(",", ":")).encode()) + b"\n"


def test_L5_log_with_unknown_events_is_continued_and_they_are_kept(cli):
    cli.script('"first"')
    cli.run("run", "one")
    log = cli.logs[0]
    number = len(cli.events())
    strange = line(type="telepathy/thought", seq=number, time=1, turn=1, content={"deep": [1, None]})
    log.write_bytes(log.read_bytes() + strange)
    done = cli.run("run", "--continue", "two")
    assert (done.code, done.out) == (0, "first\n"), done.err
    assert "oracle: balanced" in done.err
    assert strange in log.read_bytes()


def test_R1_log_of_a_newer_version_can_be_read_and_is_not_continued(cli):
    cli.script('"first"')
    cli.run("run", "one")
    log = cli.logs[0]
    lines = log.read_bytes().splitlines(keepends=True)
    created = json.loads(lines[0])
    del created["crc"]
    log.write_bytes(b"".join([line(**{**created, "format": 99}), *lines[1:]]))
    before = log.read_bytes()
    fails(cli.run("run", "--continue", "two"), 9, "newer checkrein")
    shown = cli.run("sessions", "show", log.parent.name)
    assert "model: first" in shown.out and "newer version" in shown.out
    assert log.read_bytes() == before


def test_R1_damaged_session_is_listed_shown_and_continued(cli):
    cli.script('"first"', "{ text = 'x' }")
    cli.run("run", "one")
    cli.run("run", "another")
    log = cli.logs[0]
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:4], b"#" * len(lines[4]) + b"\n", *lines[5:]]))
    listing = cli.run("sessions", "list")
    assert (listing.code, len(listing.out.splitlines())) == (0, 2)
    assert "cannot be read" in listing.out
    shown = cli.run("sessions", "show", log.parent.name)
    assert shown.code == 9 and "you: one" in shown.out
    done = cli.run("run", "--resume", log.parent.name, "two")
    assert done.code == 0, done.err
    assert cli.run("check", str(log)).code == 0
