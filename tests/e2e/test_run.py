"""`checkrein run` as a user has it: what is where, and every exit code (docs/cli.md)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

ANSWER = '{ thinking = "let me see", text = "Looking.", calls = [{ name = "write_note", arguments = { text = "x" } }] }'
ALLOW = '[plugins.permissions]\nmode = "allow"'


def ask(cli, *args, stdin=None):
    return cli.run("run", *args, stdin=stdin)


def test_the_answer_alone_is_on_stdout_and_progress_on_stderr(cli):
    cli.script(ANSWER, '"It is written."', more=ALLOW)
    done = ask(cli, "write a note")
    assert (done.code, done.out) == (0, "It is written.\n")
    for words in ("thinking: let me see", "model: Looking.", 'call write_note {"text":"x"}', "result of write_note"):
        assert words in done.err
    assert str(cli.logs[0].relative_to(cli.folder)) in done.err
    assert "oracle: balanced" in done.err
    assert (cli.folder / "note.txt").read_text() == "x"


def test_json_streams_every_event_and_delta(cli):
    cli.script(ANSWER, '{ text = "It is written.", pieces = 3 }', more=ALLOW)
    done = ask(cli, "--json", "write a note")
    lines = done.lines
    stored = cli.logs[0].read_text().splitlines()
    assert [line for line in done.out.splitlines() if not line.startswith('{"type":"delta/')] == stored
    deltas = [line for line in lines if line["type"] == "delta/text" and line["step"] == 2]
    assert (len(deltas), "".join(delta["text"] for delta in deltas)) == (3, "It is written.")
    kinds = [line["type"] for line in lines]
    assert kinds.index("request/start") < kinds.index("delta/thinking") < kinds.index("assistant/thinking")
    assert done.code == 0


CHATTY = """
from checkrein import hookimpl, tool

print("imported")

@tool
def greet() -> str:
    \"\"\"Greet.\"\"\"
    print("called")
    return "hello"

class Plugin:
    @hookimpl
    def register_tools(self):
        print("asked")
        return [greet]
"""


def test_what_plugins_and_tools_print_is_not_the_output(cli):
    """A reader of the JSON Lines, or of a JSON object, must get nothing else."""
    cli.install("chatty", CHATTY)
    cli.script('{ calls = [{ name = "greet", arguments = {} }] }', '"done"', more=ALLOW)
    done = ask(cli, "--json", "go")
    assert (done.code, done.lines[0]["type"]) == (0, "session/created")
    assert "imported" in done.err and "asked" in done.err and "called" in done.err
    assert ask(cli, "again").out == "done\n"
    for command in (("plugins", "--load", "--json"), ("plugins", "--hooks", "--json"), ("config", "schema")):
        done = cli.run(*command)
        assert done.code == 0 and json.loads(done.out), done
        assert "imported" in done.err
    assert "imported" not in cli.run("config", "check").out


def test_L9_prompt_from_stdin_and_surrogates_in_argv(cli):
    cli.script('"answer"')
    assert ask(cli, stdin="grüße\n".encode()).out == "answer\n"
    assert cli.events()[1]["content"][0]["text"] == "grüße\n"
    done = ask(cli, "--continue", b"lone \xff half")
    assert (done.code, done.out) == (0, "answer\n")
    accepted = [event for event in cli.events() if event["type"] == "inbox/accepted"]
    assert accepted[1]["content"][0]["text"] == "lone \ufffd half"
    assert accepted[1]["cleaned"] == 1


@pytest.mark.parametrize(
    ("turn", "more", "code", "words"),
    [
        ('{ error = { code = "SERVER_ERROR", message = "it burns", retryable = false } }', "", 5, "it burns"),
        ('{ error = { code = "INVALID_CREDENTIAL", message = "bad key", retryable = false } }', "", 4, "bad key"),
        ('{ text = "half an", torn = true }', "", 1, "interrupted"),
        ('{ text = "too lo", finish = "max_tokens" }', "", 1, "max_tokens"),
        ('{ calls = [{ name = "dirty" }] }', "[[agents]]\nid = 'main'\nmax_steps = 1", 7, "step_limit after 1 steps"),
    ],
)
def test_T4_exit_code_by_turn_reason(cli, turn, more, code, words):
    cli.script(turn, more=more)
    done = ask(cli, "--no-plugin", "retry", "go")
    assert (done.code, done.out) == (code, ""), done.err
    assert words in done.err
    assert "oracle: balanced" in done.err


def test_M9_a_retry_is_told_and_nothing_of_the_failed_attempt_is_in_the_answer(cli):
    cli.script('{ text = "half an", torn = true }', '"whole"')
    done = ask(cli, "go")
    assert (done.code, done.out) == (0, "whole\n"), done.err
    assert "cut off, no answer: half an" in done.err and "attempt 2" in done.err


def test_max_steps_is_a_limit_of_this_turn(cli):
    cli.script('{ calls = [{ name = "dirty" }], repeat = true }')
    done = ask(cli, "--max-steps", "2", "go")
    assert (done.code, done.out) == (7, "")
    assert [event["steps"] for event in cli.events() if event["type"] == "turn/end"] == [2]


def test_usage_errors_are_2(cli):
    cli.script('"x"')
    for args in ((), ("a", "b"), ("--resume", "nope", "x"), ("--continue", "x"), ("--agent", "mian", "x"), ("  ",)):
        done = ask(cli, *args)
        assert (done.code, done.out) == (2, ""), (args, done.err)
    assert "did you mean 'main'" in ask(cli, "--agent", "mian", "x").err
    assert cli.logs == []


def test_resume_by_the_beginning_of_an_id(cli):
    cli.script('"x"')
    ask(cli, "one")
    session = cli.logs[0].parent.name
    assert ask(cli, "--resume", session[:-2], "two").code == 0
    assert [event["turn"] for event in cli.events() if event["type"] == "turn/end"] == [1, 2]


def test_a_reader_that_leaves_cancels_the_turn_quietly(cli):
    cli.script('{ calls = [{ name = "slow" }] }')
    process = cli.start("run", "--json", "go", stdout=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read().decode()
    assert (process.wait(), "Traceback" in err, "BrokenPipe" in err) == (130, False, False), err
    assert cli.events()[-1]["reason"]["cause"]["reason"] == "nobody takes the output"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_told_and_1(cli):
    cli.script('"answer"')
    with Path("/dev/full").open("wb") as full:
        process = cli.start("run", "hi", stdout=full)
        err = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 1
    assert "standard output cannot be written: No space left on device" in err and "Traceback" not in err
    assert cli.events()[-1]["reason"] == {"kind": "completed"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "args",
    [
        *(["--help"], ["--version"], ["run", "--help"], ["plugins"], ["config", "show"], ["config", "schema"]),
        *(["sessions", "list"], ["sessions", "show"], ["sessions", "search", "hi"], ["check"]),
    ],
    ids=" ".join,
)
def test_each_command_whose_output_cannot_be_written_says_so_and_fails(cli, args):
    cli.script('"answer"')
    assert ask(cli, "hi").code == 0
    (log,) = cli.folder.glob(".checkrein/sessions/*/log.jsonl")
    named = {"sessions show": [log.parent.name], "check": [str(log)]}.get(" ".join(args), [])
    with Path("/dev/full").open("wb") as full:
        process = cli.start(*args, *named, stdout=full)
        err = process.communicate(timeout=60)[1].decode()
    assert (process.returncode, err.count("standard output cannot be written: No space left on device")) == (1, 1), err
    assert "Traceback" not in err and "internal" not in err


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize(("args", "reason"), [((), "completed"), (("--json",), "cancelled")])
def test_closed_output_is_told_and_no_success(cli, args, reason):
    cli.script('"answer"')
    shell = ("sh", "-c", 'exec "$@" >&-', "sh", *cli.command)
    process = cli.start("run", *args, "hi", command=shell)
    err = process.communicate(timeout=60)[1].decode()
    assert process.returncode == {"completed": 1, "cancelled": 130}[reason], err
    assert "standard output cannot be written: it is closed" in err and "Traceback" not in err
    assert cli.events()[-1]["reason"]["kind"] == reason


def test_D10_an_agent_nobody_talks_to_leaves_no_session(cli):
    cli.script('"x"', more="[[agents]]\nid = 'one'\n[[agents]]\nid = 'two'")
    assert ask(cli, "--agent", "two", "hi").code == 0
    assert [event["agent"] for event in cli.events() if event["type"] == "session/created"] == ["two"]
    assert ask(cli, "--continue", "and again").code == 0
    assert [event["turn"] for event in cli.events() if event["type"] == "turn/end"] == [1, 2]


def test_a_terminal_that_is_gone_does_not_change_the_exit_code(cli):
    cli.script('{ calls = [{ name = "slow" }] }')
    cli.command = ("sh", "-c", """trap '' HUP; exec "$@" """, "sh", *cli.command)
    terminal = cli.pty("run", "hi")
    terminal.expect("slow has begun")
    os.close(cli.terminals.pop())
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(60) == 130
    assert cli.events()[-1]["reason"]["cause"]["kind"] == "signal"


def test_a_dumb_terminal_gets_no_colour(cli):
    cli.env["NO_COLOR"] = ""
    for term in ("xterm", "dumb"):
        cli.env["TERM"] = term
        cli.script('"fine"')
        terminal = cli.pty("run", "hi")
        terminal.expect("fine")
        assert terminal.end() == 0
        assert ("\x1b[2m" in terminal.seen) is (term == "xterm")


def test_the_terminal_streams_and_shows_no_control_characters(cli):
    cli.script(r'{ text = "red \u001b[31m, turn \u202e", pieces = 2 }')
    terminal = cli.pty("run", "hi")
    terminal.expect("red \\x1b[31m, turn \\u202e")
    assert terminal.end() == 0
    assert "\x1b" not in terminal.seen
