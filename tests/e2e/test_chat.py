"""`checkrein chat`, line by line, at a pseudo-terminal and from a pipe."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

termios = pytest.importorskip("termios", reason="needs a pseudo-terminal")

FREE = '[plugins.permissions]\nmode = "allow"\n'
SLOW = '{ calls = [{ name = "slow" }] }'


def kinds(cli, *wanted):
    return [event for event in cli.events() if event["type"] in wanted]


def test_a_conversation_with_commands(cli):
    cli.script('"Hello to you."', '"And again."')
    terminal = cli.pty("chat")
    terminal.expect("/help shows the commands")
    terminal.expect("> ")
    terminal.type("hello\n")
    terminal.expect("Hello to you.")
    terminal.expect("> ")
    terminal.type("/status\n")
    terminal.expect("model scripted:script")
    terminal.type("/nonsense\n")
    terminal.expect("got /nonsense")
    terminal.type("again\n")
    terminal.expect("And again.")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "oracle: balanced" in terminal.seen
    assert [event["turn"] for event in kinds(cli, "turn/end")] == [1, 2]


def test_ctrl_c_cancels_the_turn_and_not_the_program(cli):
    cli.script(SLOW, '"Still here."', more=FREE)
    terminal = cli.pty("chat")
    terminal.expect("> ")
    terminal.type("\x03")
    terminal.expect("nothing runs")
    terminal.type("go\n")
    terminal.expect("slow has begun")
    terminal.type("\x03")
    terminal.expect("turn 1 cancelled by user")
    terminal.type("hello?\n")
    terminal.expect("Still here.")
    terminal.type("/quit\n")
    assert terminal.end() == 0
    assert [event["reason"]["kind"] for event in kinds(cli, "turn/end")] == ["cancelled", "completed"]


def test_I1_enter_steers_a_running_turn_and_queues_behind_a_mark(cli):
    go = cli.folder / "go"
    held = f'{{ calls = [{{ name = "dirty" }}], wait_file = "{go}" }}'
    cli.script(held, '"Steered."', '"Queued."', more=FREE)
    terminal = cli.pty("chat")
    terminal.expect("> ")
    terminal.type("go\n")
    terminal.type("look left\n")
    terminal.expect("steering")
    terminal.type("> later\n")
    terminal.expect("queued for a turn of its own")
    go.touch()
    terminal.expect("Steered.")
    terminal.expect("Queued.")
    terminal.type("/quit\n")
    assert terminal.end() == 0
    taken = [(e["type"], e["turn"], e["content"][0]["text"]) for e in kinds(cli, "user/message", "steering/message")]
    assert taken == [("user/message", 1, "go"), ("steering/message", 1, "look left"), ("user/message", 2, "later")]


def test_I8_a_line_answers_the_approval_that_waits_and_does_not_steer(cli):
    cli.script('{ calls = [{ name = "write_note", arguments = { text = "hi" } }] }', '"Done."')
    terminal = cli.pty("chat")
    terminal.expect("> ")
    terminal.type("write\n")
    terminal.expect("[n]o:")
    terminal.type("y\n")
    terminal.expect("Done.")
    terminal.type("/quit\n")
    assert terminal.end() == 0
    assert [event["outcome"] for event in kinds(cli, "approval/decided")] == ["allowed_once"]
    assert len(kinds(cli, "inbox/accepted")) == 1


def test_a_question_that_nobody_would_see_is_not_asked(cli):
    cli.script('{ calls = [{ name = "write_note", arguments = { text = "hi" } }] }', '"Done."')
    cli.command = ("sh", "-c", 'exec "$@" 2>err.txt', "sh", *cli.command)
    terminal = cli.pty("chat")
    terminal.expect("> ")
    terminal.type("write\n")
    terminal.expect("Done.")
    terminal.type("/quit\n")
    assert terminal.end() == 0
    assert [event["outcome"] for event in kinds(cli, "approval/decided")] == ["closed"]
    assert not (cli.folder / "note.txt").exists()


@pytest.mark.parametrize(("closed", "shown", "code"), [(">&-", "it is closed", 1), ("2>&-", "one", 0)])
def test_with_an_output_closed_the_terminal_is_read_on(cli, closed, shown, code):
    cli.script('"one"')
    cli.command = ("sh", "-c", f'exec "$@" {closed}', "sh", *cli.command)
    terminal = cli.pty("chat")
    terminal.type("hi\n")
    terminal.expect(shown)
    terminal.type("/quit\n")
    assert terminal.end() == code, terminal.seen
    assert len(kinds(cli, "turn/end")) == 1


WAIT = '''
from checkrein import ToolContext, hookimpl, tool

@tool(read_only=True)
def wait(context: ToolContext) -> str:
    """Waits for whoever opens the pipe."""
    context.progress("wait has begun")
    return (context.workspace / "pipe").read_text() or "opened"

class Plugin:
    @hookimpl
    def register_tools(self):
        return [wait]
'''


def test_a_line_begun_before_the_question_is_no_answer(cli):
    cli.install("e2e_wait", WAIT)
    cli.script(
        '{ calls = [{ name = "wait" }] }',
        '{ calls = [{ name = "write_note", arguments = { text = "hi" } }] }',
        '"Done."',
    )
    os.mkfifo(cli.folder / "pipe")
    terminal = cli.pty("chat")
    terminal.expect("> ")
    terminal.type("go\n")
    terminal.expect("wait has begun")
    terminal.type("a")
    terminal.expect("a")  # the line has it
    (cli.folder / "pipe").write_text("")
    terminal.expect("[n]o:")
    terminal.type("\n")
    terminal.expect("steering")
    terminal.type("n\n")
    terminal.expect("Done.")
    terminal.type("/quit\n")
    assert terminal.end() == 0
    assert [event["outcome"] for event in kinds(cli, "approval/decided")] == ["denied"]
    assert not (cli.folder / "note.txt").exists()


def test_a_line_typed_ahead_answers_one_question_and_not_the_next(cli):
    calls = ", ".join(f'{{ name = "write_note", arguments = {{ text = "{word}" }} }}' for word in ("one", "two"))
    cli.script(f"{{ calls = [{calls}] }}", '"Done."')
    terminal = cli.pty("chat")
    terminal.expect("> ")
    terminal.type("write\n")
    terminal.expect("[n]o:")
    terminal.type("y\ny\n")  # twice, before the second question
    terminal.expect("[n]o:")
    terminal.type("n\n")
    terminal.expect("Done.")
    terminal.type("/quit\n")
    assert terminal.end() == 0
    assert [event["outcome"] for event in kinds(cli, "approval/decided")] == ["allowed_once", "denied"]


def test_L9_a_byte_that_is_no_text_does_not_end_the_conversation(cli):
    cli.env["PYTHONIOENCODING"] = "utf-8:strict"
    cli.script('"one"', '"two"')
    done = cli.run("chat", stdin=b"fir\xffst\nsecond\n")
    assert (done.code, done.out) == (0, "one\ntwo\n")
    assert kinds(cli, "user/message")[0]["content"][0]["text"] == "fir\ufffdst"


def test_closed_input_is_a_usage_error(cli):
    shell = ("sh", "-c", 'exec "$@" <&-', "sh", *cli.command)
    process = cli.start("chat", command=shell)
    err = process.communicate(timeout=60)[1].decode()
    assert (process.returncode, "it is closed" in err) == (2, True), err


def test_from_a_pipe_one_turn_after_the_other(cli):
    cli.script('"one"', '"two"')
    done = cli.run("chat", stdin=b"first\n\nsecond")
    assert (done.code, done.out) == (0, "one\ntwo\n")
    assert [event["turn"] for event in kinds(cli, "turn/end")] == [1, 2]


def test_answers_that_cannot_be_written_are_1(cli):
    cli.script('"one"', '"two"')
    shell = ("sh", "-c", 'exec "$@" >&-', "sh", *cli.command)
    process = cli.start("chat", command=shell, stdin=subprocess.PIPE)
    err = process.communicate(b"first\n", timeout=60)[1].decode()
    assert (process.returncode, "Traceback" in err) == (1, False), err
    assert "standard output cannot be written: it is closed" in err


def test_quit_with_an_open_question_ends_at_once_and_balanced(cli):
    cli.script('{ calls = [{ name = "write_note", arguments = { text = "hi" } }] }', '"Done."')
    terminal = cli.pty("chat")
    terminal.expect("> ")
    terminal.type("write\n")
    terminal.expect("[n]o:")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "oracle: balanced" in terminal.seen
    assert not (cli.folder / "note.txt").exists()
    assert kinds(cli, "turn/end")[0]["reason"]["kind"] in ("cancelled", "completed")


def test_C8_sigterm_ends_the_chat_and_gives_the_terminal_back(cli):
    cli.script(SLOW, more=FREE)
    terminal = cli.pty("chat")
    before = termios.tcgetattr(terminal.fd)[3] & (termios.ECHO | termios.ICANON)
    terminal.expect("> ")
    terminal.type("go\n")
    terminal.expect("slow has begun")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == 130
    assert termios.tcgetattr(terminal.fd)[3] & (termios.ECHO | termios.ICANON) == before
    assert kinds(cli, "turn/end")[0]["reason"] == {"kind": "cancelled", "cause": {"kind": "signal"}}
    assert "oracle: balanced" in terminal.seen
