"""The approver of the terminal: real pseudo-terminals, both event loops."""

from __future__ import annotations

import io
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from checkrein.agents import Approval
from checkrein.cli.approve import Terminal, TerminalApprover, terminal_approver
from checkrein.visible import excerpt, visible

AGENT: Any = SimpleNamespace(id="main")
backends = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def approval(summary: str = "write_file\npath: a", rule: str | None = "write_file(path=a)") -> Approval:
    return Approval("a1", "c1.1.1", "write_file", {"path": "a"}, summary, rule)


@pytest.fixture
def terminal() -> Iterator[tuple[int, Terminal]]:
    person, computer = pty.openpty()
    ours = Terminal(computer, owned=True)
    yield person, ours
    ours.close()
    try:
        os.close(person)
    except OSError:  # the test has hung up
        pass


async def ask(person: int, ours: Terminal, out: io.StringIO, typed: list[str], question: Approval) -> str:
    """Decide, with each line typed only after the question for it was shown."""
    answer = ""

    async def decide() -> None:
        nonlocal answer
        answer = await TerminalApprover(ours, out).decide(AGENT, question)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(decide)
        for count, line in enumerate(typed, 1):
            while out.getvalue().count("]o: ") < count:
                await anyio.sleep(0)
            os.write(person, line.encode())
    return answer


@backends
@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["y\n"], "allowed_once"),
        (["YES\n"], "allowed_once"),
        (["a\n"], "allowed_rule"),
        (["n\n"], "denied"),
        (["\n"], "denied"),
        (["\x04"], "denied"),
        (["what?\n", "y\n"], "allowed_once"),
        (["?\n", "?\n", "?\n"], "denied"),
    ],
)
def test_answers(terminal: tuple[int, Terminal], backend: str, typed: list[str], answer: str) -> None:
    assert anyio.run(ask, *terminal, io.StringIO(), typed, approval(), backend=backend) == answer


@backends
def test_always_is_offered_with_its_rule_only(terminal: tuple[int, Terminal], backend: str) -> None:
    out = io.StringIO()
    assert anyio.run(ask, *terminal, out, ["y\n"], approval(), backend=backend) == "allowed_once"
    assert "always would remember: write_file(path=a)" in out.getvalue()
    out = io.StringIO()
    assert anyio.run(ask, *terminal, out, ["a\n", "n\n"], approval(rule=None), backend=backend) == "denied"
    assert "always" not in out.getvalue()


@backends
def test_C1_cancelling_ends_the_wait_and_takes_nothing(terminal: tuple[int, Terminal], backend: str) -> None:
    person, ours = terminal

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(TerminalApprover(ours, io.StringIO()).decide, AGENT, approval())
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        os.write(person, b"next\n")
        assert await ours.read_line() == "next\n"

    anyio.run(main, backend=backend)


@backends
def test_what_was_typed_before_is_no_answer(terminal: tuple[int, Terminal], backend: str) -> None:
    person, ours = terminal
    os.write(person, b"y\n")
    assert anyio.run(ask, person, ours, io.StringIO(), ["n\n"], approval(), backend=backend) == "denied"


@backends
def test_questions_wait_for_each_other(terminal: tuple[int, Terminal], backend: str) -> None:
    person, ours = terminal
    out = io.StringIO()
    answers: list[str] = []

    async def main() -> None:
        approver = TerminalApprover(ours, out)

        async def decide() -> None:
            answers.append(await approver.decide(AGENT, approval()))

        async with anyio.create_task_group() as group:
            for count, line in enumerate([b"y\n", b"n\n"], 1):
                group.start_soon(decide)
                group.start_soon(decide) if count == 1 else None
                while out.getvalue().count("]o: ") < count:
                    await anyio.sleep(0)
                assert out.getvalue().count("]o: ") == count
                os.write(person, line)
            while len(answers) < 2:
                await anyio.sleep(0)
            group.cancel_scope.cancel()

    anyio.run(main, backend=backend)
    assert answers == ["allowed_once", "denied"]


@backends
def test_a_terminal_that_hangs_up_denies(backend: str) -> None:
    person, computer = pty.openpty()
    ours = Terminal(computer, owned=True)
    os.close(person)
    assert anyio.run(TerminalApprover(ours, io.StringIO()).decide, AGENT, approval(), backend=backend) == "denied"
    ours.close()


HOSTILE = "\x1b]0;title\x07\x1b[2K\rmay ls run?\u202egnp\u2066\u200b\u00ad\U000e0041\u2028"
HOSTILE += "\u3164\u2800\ufe0f\u00a0\x9b1m\u061c"


@backends
def test_hostile_text_reaches_the_screen_as_plain_characters(terminal: tuple[int, Terminal], backend: str) -> None:
    out = io.StringIO()
    question = Approval("a1", "c1.1.1", HOSTILE, {}, "line\n" + HOSTILE, "rule" + HOSTILE)
    anyio.run(ask, *terminal, out, ["n\n"], question, backend=backend)
    shown = out.getvalue()
    assert all(char == "\n" or 0x20 <= ord(char) < 0x7F for char in shown)
    assert "\\x1b[2K\\r" in shown and "\\u202e" in shown and "\\U000e0041" in shown


def test_visible_leaves_ordinary_text_alone() -> None:
    text = "Grüße, 漢字, مرحبا, é, 😀 and `code`"
    assert visible(text) == text
    assert visible("a\nb", keep="\n") == "a\nb" and visible("a\nb") == "a\\nb"


def test_every_control_and_format_character_is_seen() -> None:
    import unicodedata

    for code in range(0x110000):
        char = chr(code)
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert visible(char).isascii() and visible(char).isprintable()


def test_excerpt_keeps_head_and_tail() -> None:
    text = "a" * 500 + "b" * 500 + "; rm -rf /"
    got = excerpt(text, 100)
    assert got.startswith("aaa") and got.endswith("; rm -rf /") and "more characters" in got and len(got) < 140
    assert excerpt("short", 100) == "short"


# --- which terminal ---------------------------------------------------------------------------------

CHILD = """
import fcntl, sys, termios
fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0)
import anyio
from types import SimpleNamespace
from checkrein.agents import Approval
from checkrein.cli.approve import terminal_approver
approver = terminal_approver()
if approver is None:
    print("none")
else:
    print(anyio.run(approver.decide, SimpleNamespace(id="main"), Approval("a1", "c", "t", {}, "s", None)))
    approver.close()
"""


def in_a_terminal(stdin_is_terminal: bool, stderr_is_terminal: bool, typed: bytes) -> tuple[str, str]:
    """Run the child with a controlling terminal; return what it printed and what the person saw."""
    person, computer = pty.openpty()
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(computer)],
            stdin=computer if stdin_is_terminal else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=computer if stderr_is_terminal else subprocess.DEVNULL,
            pass_fds=[computer],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        seen, deadline = b"", time.monotonic() + 30
        while child.poll() is None and time.monotonic() < deadline:
            if select.select([person], [], [], 0.02)[0]:
                seen += os.read(person, 4_096)
                if typed and b"]o: " in seen:
                    os.write(person, typed)
                    typed = b""
        out, _ = child.communicate(timeout=30)
        return out.decode().strip(), seen.decode()
    finally:
        os.close(person)
        os.close(computer)


def test_asks_on_standard_input_if_it_is_a_terminal() -> None:
    answer, seen = in_a_terminal(True, True, b"y\n")
    assert answer == "allowed_once" and "may t run?" in seen


def test_asks_on_the_controlling_terminal_if_standard_input_is_not_one() -> None:
    assert in_a_terminal(False, True, b"y\n")[0] == "allowed_once"


def test_no_approver_where_the_question_would_not_be_seen() -> None:
    assert in_a_terminal(True, False, b"")[0] == "none"


def test_no_approver_without_a_terminal() -> None:
    code = "from checkrein.cli.approve import terminal_approver; print(terminal_approver())"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, env=env
    )
    assert done.stdout.decode().strip() == "None"


def test_no_approver_under_closed_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert terminal_approver() is None
