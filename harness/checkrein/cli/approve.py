"""Asking a person at the terminal whether a call may run: the `Approver` of the command line.

Without a terminal there is no approver, and then nobody can be asked: `terminal_approver` returns
None and nothing is provided. What is shown was written by a model: every character is made visible.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

import anyio

from checkrein.visible import excerpt, visible

from .modes import is_terminal

if TYPE_CHECKING:
    from checkrein.agents import AgentLike, Approval

__all__ = ["Terminal", "TerminalApprover", "terminal_approver"]

MAX_SHOWN_CHARS = 10_000
MAX_LINE_BYTES = 4_096
MAX_TRIES = 3
POLL_S = 0.05
ANSWERS = {
    "y": "allowed_once",
    "yes": "allowed_once",
    "a": "allowed_rule",
    "always": "allowed_rule",
    "n": "denied",
    "no": "denied",
    "": "denied",
}


class TerminalApprover:
    """Asks one question at a time; implements `checkrein.agents.Approver`.

    Args:
        terminal: where answers are typed.
        out: where questions are shown; standard error if None.
    """

    def __init__(self, terminal: Terminal, out: TextIO | None = None) -> None:
        self._terminal = terminal
        self._out = out
        self._lock: anyio.Lock | None = None

    async def decide(self, agent: AgentLike, approval: Approval) -> str:
        """Ask and return `allowed_once`, `allowed_rule` or `denied`; the end of input denies.

        Cancelling ends the wait at once and takes nothing from the terminal.
        """
        if self._lock is None:
            self._lock = anyio.Lock()
        async with self._lock:
            # Typed before the question was seen, it is no answer to it.
            self._terminal.forget_input()
            self._show(self._question(agent.id, approval))
            for _ in range(MAX_TRIES):
                line = await self._terminal.read_line()
                if line is None:
                    self._show("\n")
                    return "denied"
                answer = ANSWERS.get(line.strip().casefold())
                if answer is not None and (answer != "allowed_rule" or approval.rule is not None):
                    return answer
                self._show(f"Please answer {self._choices(approval)}: ")
            self._show("denied\n")
            return "denied"

    def close(self) -> None:
        """Let go of the terminal."""
        self._terminal.close()

    def _question(self, agent_id: str, approval: Approval) -> str:
        summary = visible(excerpt(approval.summary, MAX_SHOWN_CHARS), keep="\n")
        lines = [f"{visible(agent_id)} asks: may {visible(approval.tool)} run?"]
        lines += [f"  {line}" for line in summary.splitlines()]
        if approval.rule is not None:
            lines.append(f"  always would remember: {visible(approval.rule)}")
        return "\n" + "\n".join(lines) + f"\n{self._choices(approval)}: "

    def _choices(self, approval: Approval) -> str:
        return "[y]es once, [a]lways, [n]o" if approval.rule is not None else "[y]es once, [n]o"

    def _show(self, text: str) -> None:
        out = self._out if self._out is not None else sys.stderr
        try:
            out.write(text)
        except UnicodeEncodeError:
            out.write(text.encode("ascii", "backslashreplace").decode())
        out.flush()


class Terminal:
    """A terminal to read lines from, without a thread, so that a cancelled wait leaves nothing behind.

    Args:
        fd: an open descriptor of a terminal.
        owned: whether to close it in the end.
    """

    def __init__(self, fd: int, *, owned: bool = False) -> None:
        self._fd = fd
        self._owned = owned

    def forget_input(self) -> None:
        """Drop what was typed and not yet read."""
        if sys.platform == "win32":
            import msvcrt

            while msvcrt.kbhit():
                msvcrt.getwch()
        else:
            import termios

            try:
                termios.tcflush(self._fd, termios.TCIFLUSH)
            except termios.error:  # the terminal is gone; the read will tell
                pass

    async def read_line(self) -> str | None:
        """Wait for a line; None at the end of input, or if the terminal is gone."""
        if sys.platform == "win32":
            return await _read_key()
        try:
            await _readable(self._fd)
            raw = os.read(self._fd, MAX_LINE_BYTES)
        except OSError:
            return None
        return raw.decode("utf-8", "replace") if raw else None

    def close(self) -> None:
        """Close the descriptor, if it is ours."""
        if self._owned:
            self._owned = False
            os.close(self._fd)


def terminal_approver(out: TextIO | None = None) -> TerminalApprover | None:
    """Return an approver if a person can be asked here, else None.

    It reads from standard input if that is a terminal, else from the controlling terminal, and only in
    the foreground: a background job that reads would be stopped. Questions nobody could see are not
    asked: standard error must be a terminal too, unless `out` is given.
    """
    if out is None and not is_terminal(sys.stderr):
        return None
    terminal = _open_terminal()
    return TerminalApprover(terminal, out) if terminal is not None else None


def _open_terminal() -> Terminal | None:
    if is_terminal(sys.stdin):
        return Terminal(sys.stdin.fileno()) if _in_foreground(sys.stdin.fileno()) else None
    if sys.platform == "win32":
        return None
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    if _in_foreground(fd):
        return Terminal(fd, owned=True)
    os.close(fd)
    return None


def _in_foreground(fd: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


async def _readable(fd: int) -> None:
    """Wait until a read returns at once; by polling where the event loop cannot watch a terminal (macOS)."""
    try:
        await anyio.wait_readable(fd)
    except OSError:
        import select

        while not select.select([fd], [], [], 0)[0]:  # noqa: ASYNC110 - the loop has just refused to watch it
            await anyio.sleep(POLL_S)


async def _read_key() -> str:
    """Wait for one key of the Windows console."""
    import importlib

    console = importlib.import_module("msvcrt")
    while not console.kbhit():  # noqa: ASYNC110 - the console has no event to wait for
        await anyio.sleep(POLL_S)
    return str(console.getwch())
