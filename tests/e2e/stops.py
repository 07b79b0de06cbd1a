"""The stops of test_stops.py: a case is played in processes of its own, and what it left behind is looked at.

The process is stopped at a place of its first turn, in one of the ways a user, a system or a program does it. Then
the command line goes on with the session, against a server that refuses an unbalanced history. Everything is
synchronised by lines on standard error, a byte on standard input and the server's holds; nothing waits for time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stops_plugin

from checkrein.testing import Hold, StrictChatServer
from checkrein_invariants.checking import check_bytes

HERE = Path(__file__).parent
PROMPT = "Work, please."
AGAIN = "And now?"
ANSWER = "It goes on."

ASYNC_PLACES = ("tool", "agent_request", "step_result", "tools_execute", "tools_guard", "turn_continuation")
FLUSHES = ("flush request", "flush call", "flush turn_end")
PLACES = ("request", "stream", "tool", "thread", "approval", *ASYNC_PLACES[1:], *FLUSHES, "between")
SIGNALS = ("SIGINT", "SIGTERM", "SIGKILL", "SIGINT twice")
PROGRAM_PLACES = ("request", "stream", "tool", "thread", "approval", "tools_guard", "flush call", "between")
PROGRAM_STOPS = ("timeout", "sibling", "task_cancel", "ctrl_c")
CHAT_STOPS = ("Ctrl-C", "SIGTERM", "SIGKILL")


@dataclass(frozen=True)
class Case:
    """A stop at a place, of `checkrein run` or `chat`, or of a program on asyncio or trio."""

    place: str
    stop: str
    front: str = "run"

    def __str__(self) -> str:
        return "-".join((self.front, self.stop, self.place)).replace(" ", "_")

    @property
    def deaf(self) -> bool:
        """Whether the place hears no cancellation: only then has a second signal something left to do."""
        return self.stop == "SIGINT twice" and (self.place in ASYNC_PLACES or self.place in FLUSHES)

    @property
    def steered(self) -> bool:
        """Whether steering is waiting when the stop comes."""
        return self.place in ASYNC_PLACES

    @property
    def program(self) -> bool:
        """Whether it is a program that uses the library."""
        return self.front in ("asyncio", "trio")

    @property
    def inside(self) -> bool:
        """Whether the program stops itself, instead of being stopped by a signal."""
        return self.program and self.stop != "ctrl_c"

    @property
    def tool(self) -> str:
        """The tool the model calls."""
        return "work_in_thread" if self.place == "thread" else "work"


@dataclass(frozen=True)
class Played:
    """What a stop left behind."""

    code: int
    took_s: float
    output: str
    going_on: tuple[int, str, str]
    events: list[dict[str, Any]]
    requests: list[dict[str, Any]]
    refusals: list[Any]
    effects: Counter[str]
    findings: list[Any]

    @property
    def reason(self) -> str:
        """How the first turn ended: the kind, and who ended it."""
        reason = next(event["reason"] for event in self.events if event["type"] == "turn/end")
        cause = reason.get("cause", {}).get("kind")
        return f"{reason['kind']} ({cause})" if cause else str(reason["kind"])

    @property
    def call(self) -> str:
        """What the model was told of the first turn's call."""
        for event in self.events:
            if event["type"] == "tool/result" and event["turn"] == 1:
                return event["error"]["code"] if event["is_error"] else "its result"
        return "no call"


def played(case: Case, cli: Any) -> Played:
    """Play a case to its end in the command line's folder."""
    cli.install("stops", (HERE / "stops_plugin.py").read_text("utf-8"))
    configure(cli, case)
    first = {"text": "Let me see.", "pieces": 2, "calls": [{"name": case.tool}]}
    wait_at = {"request": "start", "stream": "middle"}.get(case.place)
    hold = Hold({**first, "wait_at": wait_at}) if wait_at else first
    with StrictChatServer(hold, ANSWER, {"text": ANSWER, "calls": []}) as server:
        cli.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "test"}
        code, took_s, output = stopped(case, cli, hold)
        refusals = list(server.refusals)
    configure(cli, None)
    (log,) = cli.logs
    which = ("--continue",) if case.front != "trio" else ("--resume", log.parent.name)
    with StrictChatServer({"calls": [{"name": case.tool}]}, *[ANSWER] * 3) as server:
        cli.env |= {"OPENAI_BASE_URL": server.url}
        done = cli.run("run", *which, AGAIN)
    marks = cli.folder / stops_plugin.EFFECTS
    checked = check_bytes(log.name, log.read_bytes(), deep=True)
    return Played(
        code,
        took_s,
        output,
        (done.code, done.out, done.err),
        cli.events(),
        server.requests,
        refusals + server.refusals,
        Counter(marks.read_text().split() if marks.exists() else ()),
        [checked] if checked is None else checked.found,
    )


def configure(cli: Any, case: Case | None) -> None:
    """Write the config: permissive but where an approval is wanted, the plugin at its place."""
    asked = case is not None and case.place == "approval"
    lines = ['model = "openai:gpt-test"', "[plugins.permissions]", f'mode = "{"ask" if asked else "allow"}"']
    if case is not None:
        # Where a flush is held behind the turn's end there is nothing left to cancel (C4): its deadline ends it.
        lines += ["[limits.hook_deadlines_s]", f"session_flush = {0.3 if case.place == 'flush turn_end' else 60}"]
        # Only the server knows when a request has arrived: a program that stops itself is told by a byte.
        place = "" if case.inside and case.place == "request" else case.place
        switches = {"deaf": case.deaf, "held": not case.inside, "steer": case.steered and case.front != "chat"}
        lines += ["[plugins.stops]", f'place = "{place}"']
        lines += [f"{name} = {json.dumps(value)}" for name, value in switches.items()]
    cli.config("\n".join(lines) + "\n")


def stopped(case: Case, cli: Any, hold: Any) -> tuple[int, float, str]:
    """Start the process, stop it at the place; return its exit code, the seconds from stop to end, and its output."""
    screen, process = started(case, cli)
    if not case.inside:
        screen.expect("here\n")
    if isinstance(hold, Hold) and not (case.inside and case.place == "stream"):
        assert hold.reached.wait(30)
    if case.place == "approval" and case.front == "run":
        screen.expect("[n]o:")
    if case.front == "chat":
        screen.type(f"{stops_plugin.STEERING}\n")
        screen.expect("steering\n")
    began = time.monotonic()
    if not case.inside:
        strike(case, screen, process)
    go_on(process)
    code = screen.end()
    took_s = time.monotonic() - began
    answer = process.stdout.read().decode() if process.stdout is not None else ""
    return code, took_s, answer + screen.seen


def strike(case: Case, screen: Any, process: subprocess.Popen[bytes]) -> None:
    """Send the signals, each when the handler of the one before has run."""
    if case.stop == "Ctrl-C":
        screen.type("\x03")
        screen.expect("turn 1 cancelled by user")
        screen.type("/quit\n")
        return
    for signum in signals(case):
        process.send_signal(signum)
        if signum != signal.SIGKILL and screen.sees("heard\n"):
            screen.expect("heard\n")


def go_on(process: subprocess.Popen[bytes]) -> None:
    """The byte that a place outside any await waits for."""
    if process.stdin is not None:
        try:
            os.write(process.stdin.fileno(), b".")
        except BrokenPipeError:
            pass  # it is gone


def signals(case: Case) -> list[int]:
    """The signals to send."""
    if case.stop in ("ctrl_c", "SIGINT"):
        return [signal.SIGINT]
    return [signal.SIGINT] * 2 if case.stop == "SIGINT twice" else [getattr(signal, case.stop)]


def started(case: Case, cli: Any) -> tuple[Any, subprocess.Popen[bytes]]:
    """The process, and its screen: a terminal where a person types, else its standard error."""
    if case.front == "chat":
        screen = cli.pty("chat")
        screen.expect("> ")
        screen.type(f"{PROMPT}\n")
        return screen, screen.process
    if case.front == "run" and case.place == "approval":
        screen = cli.pty("run", PROMPT)
        return screen, screen.process
    if case.front == "run":
        process = cli.start("run", PROMPT, stdin=subprocess.PIPE)
    else:
        told = ("told",) if case.inside and case.place == "request" else ()
        command = (sys.executable, str(HERE / "stops_program.py"))
        process = cli.start(case.stop, case.front, *told, command=command, stdin=subprocess.PIPE)
    assert process.stderr is not None
    return cli.screen(process.stderr.fileno(), process), process


def all_cases() -> list[Case]:
    """The whole matrix; Ctrl-C on asyncio and trio, where it differs, other stops of a program on both in turn."""
    cases = [Case(place, stop) for place in PLACES for stop in SIGNALS]
    cases += [Case("tool", stop, "chat") for stop in CHAT_STOPS]
    backends = ("asyncio", "trio")
    for n, place in enumerate(PROGRAM_PLACES):
        cases += [Case(place, "ctrl_c", backend) for backend in backends]
        cases += [Case(place, "timeout", backends[n % 2]), Case(place, "sibling", backends[(n + 1) % 2])]
        cases.append(Case(place, "task_cancel", "asyncio"))
    return cases


def chosen_cases() -> list[Case]:
    """What is played without --slow: each place once, each stop at least once."""
    cases = [Case(place, SIGNALS[n % len(SIGNALS)]) for n, place in enumerate(PLACES)]
    programs = [case for case in all_cases() if case.program]
    return [*cases, Case("tool", "SIGKILL", "chat"), *programs[::6]]
