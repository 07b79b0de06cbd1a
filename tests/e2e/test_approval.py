"""A permission question: asked and answered at a terminal, and what becomes of it where nobody can be asked."""

from __future__ import annotations

import pytest

TURNS = ('{ calls = [{ name = "write_note", arguments = { text = "hi" } }] }', '"The note is done."')
QUESTION = "may write_note run?"


@pytest.mark.parametrize(("answer", "written", "outcome"), [("y", True, "allowed_once"), ("n", False, "denied")])
def test_asked_and_answered_at_a_terminal(cli, answer, written, outcome):
    cli.script(*TURNS)
    terminal = cli.pty("run", "write a note")
    terminal.expect(QUESTION)
    assert "text: hi" in terminal.expect("[n]o:")
    terminal.type(f"{answer}\n")
    terminal.expect("The note is done.")
    assert terminal.end() == 0
    assert (cli.folder / "note.txt").exists() is written
    decided = [event["outcome"] for event in cli.events() if event["type"] == "approval/decided"]
    assert decided == [outcome]
    assert "oracle: balanced" in terminal.seen


def test_without_a_terminal_it_is_denied_and_the_exit_code_is_6(cli):
    cli.script(*TURNS)
    done = cli.run("run", "write a note")
    assert (done.code, done.out) == (6, "The note is done.\n")
    assert "nobody is here to allow it" in done.err
    assert not (cli.folder / "note.txt").exists()
    results = [event for event in cli.events() if event["type"] == "tool/result"]
    assert [result["error"]["code"] for result in results] == ["DENIED"]


def test_A09_cancelled_while_the_question_is_open_closes_it_and_the_session_goes_on(cli):
    cli.script(*TURNS)
    terminal = cli.pty("run", "write a note")
    terminal.expect(QUESTION)
    terminal.type("\x03")
    assert terminal.end() == 130
    kinds = {event["type"]: event for event in cli.events()}
    assert kinds["approval/decided"]["outcome"] == "closed"
    assert kinds["tool/result"]["error"]["code"] == "NOT_STARTED"
    assert kinds["turn/end"]["reason"] == {"kind": "cancelled", "cause": {"kind": "signal"}}
    cli.script('"going on"')
    assert cli.run("run", "-c", "hi").out == "going on\n"
