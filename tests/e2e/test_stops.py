"""C8: whatever stops an agent from outside, wherever, the next request is sound and nothing is lost or done twice.

Each case of stops.py is played by the real command line or a program; `--slow` plays the whole matrix. The table in
docs/reliability.md is `EXPECTED`, written anew by `python tests/e2e/test_stops.py`.
"""

from __future__ import annotations

import ast
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from stops import ANSWER, CHAT_STOPS, PLACES, PROGRAM_STOPS, PROMPT, Case, Played, all_cases, chosen_cases, played
from stops_plugin import STEERING

pytest.importorskip("termios", reason="needs signals and a pseudo-terminal")

DOC = Path(__file__).parents[2] / "docs" / "reliability.md"
START, END = "<!-- by tests/e2e/test_stops.py -->\n", "<!-- end of stops -->"
AT_ONCE = 3
PROMPT_S = 10.0

PLACE_WORDS = {
    "request": "before the request is answered",
    "stream": "in mid stream",
    "tool": "in an async tool",
    "thread": "in a tool's thread",
    "approval": "while an approval is shown",
    "flush request": "in the flush before a request",
    "flush call": "in the flush before a call",
    "flush turn_end": "in the flush behind the turn",
    "between": "between two steps",
}
STOP_WORDS = {
    "SIGINT": "cancelled (signal)",
    "SIGTERM": "cancelled (signal)",
    "SIGINT twice": "cancelled (signal)",
    "SIGKILL": "interrupted",
    "Ctrl-C": "cancelled (user)",
    "timeout": "cancelled (task)",
    "sibling": "cancelled (task)",
    "task_cancel": "cancelled (task)",
    "ctrl_c": "cancelled (task)",
}
CALLS = {
    "tool": "OUTCOME_UNKNOWN",
    "thread": "OUTCOME_UNKNOWN",
    "approval": "NOT_STARTED",
    "tools_execute": "NOT_STARTED",
    "tools_guard": "NOT_STARTED",
    "flush call": "OUTCOME_UNKNOWN",
    "turn_continuation": "its result",
    "flush turn_end": "its result",
    "between": "its result",
}
"""What the model is told of the call; at the other places there is none."""


def expected(case: Case) -> tuple[str, str]:
    """How the stopped turn ends, and what the model is told of its call."""
    call = CALLS.get(case.place, "no call")
    if case.place == "flush turn_end":
        return "completed", call
    if case.place == "between" and case.stop == "SIGKILL":
        call = "OUTCOME_UNKNOWN"  # the result would have been written before the next request
    if case == Case(case.place, "ctrl_c", "trio"):  # asyncio makes Ctrl-C a cancelled task, trio raises it in one
        return "cancelled (signal)", call
    return STOP_WORDS[case.stop], call


def exit_codes(case: Case) -> tuple[int, ...]:
    """The codes a stopped process may end with."""
    if case.stop == "SIGKILL":
        return (-9,)
    if case.front in ("asyncio", "trio"):
        return (-2,) if case.stop == "ctrl_c" else (0,)
    if case.stop == "Ctrl-C":
        return (0,)
    # Behind its end a turn cannot be cancelled (C4): one signal leaves it completed, the second one ends the wait.
    return (0,) if case.place == "flush turn_end" and case.stop != "SIGINT twice" else (130,)


CHOSEN = chosen_cases()
CASES = [pytest.param(case, id=str(case), marks=() if case in CHOSEN else pytest.mark.slow) for case in all_cases()]


@pytest.fixture(scope="module")
def plays(request, tmp_path_factory, new_cli) -> Iterator[dict[Case, Future[Played]]]:
    """The selected cases, a few of them played at once."""
    items = [item for item in request.session.items if item.path == request.path and "case" in _params(item)]
    slow = request.config.getoption("--slow")
    cases = [_params(item)["case"] for item in items if slow or "slow" not in item.keywords]

    folder = tmp_path_factory.mktemp("stops")

    def play(case: Case) -> Played:
        (folder / str(case)).mkdir()
        with new_cli(folder / str(case)) as cli:
            return played(case, cli)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {case: pool.submit(play, case) for case in cases}


def _params(item: Any) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.mark.parametrize("case", CASES)
def test_C8_stopped_from_outside_and_gone_on(case, plays):
    left = plays[case].result()
    assert (left.code in exit_codes(case), (left.reason, left.call)) == (True, expected(case)), left
    assert left.took_s < PROMPT_S
    assert left.refusals == []
    assert left.findings == []
    code, out, err = left.going_on
    assert (code, out) == (0, f"{ANSWER}\n"), err
    assert "oracle: balanced" in err
    if case.inside:
        assert left.output == f"{ANSWER}\n", left.output  # the same agent went on
    asked = [message["content"] for message in left.requests[-1]["messages"] if message["role"] == "user"]
    assert PROMPT in asked[0]
    assert any(STEERING in text for text in asked) is case.steered  # nothing that was typed is lost
    assert max(left.effects.values()) == 1  # an effect comes once a call
    stopped_calls = sum(call.startswith("c1.") for call in left.effects)
    assert stopped_calls == (CALLS.get(case.place) in ("OUTCOME_UNKNOWN", "its result") and case.place != "flush call")
    assert len(left.effects) == stopped_calls + 1  # the call of the next turn ran


# --- the table of the documentation -----------------------------------------------------------------------------


def table() -> str:
    """What `expected` says, as it stands in docs/reliability.md."""
    rows = [
        "| stopped | SIGINT, SIGTERM, or one of them twice | SIGKILL | by the program | the model reads of the call |\n"
    ]
    rows.append("|---|---|---|---|---|\n")
    cases = all_cases()
    for place in PLACES:
        politely, killed = (expected(Case(place, stop)) for stop in ("SIGINT", "SIGKILL"))
        program = [expected(case) for case in cases if (case.place, case.stop) == (place, "timeout")] or [("",)]
        word = PLACE_WORDS.get(place, f"in the hook `{place}`")
        call = politely[1] if politely[1] == killed[1] else f"{politely[1]}; killed: {killed[1]}"
        rows.append(f"| {word} | {politely[0]} | {killed[0]} | {program[0][0]} | {call} |\n")
    return "".join(rows)


def test_the_table_of_the_documentation():
    """Written anew by `python tests/e2e/test_stops.py`."""
    text = DOC.read_text("utf-8")
    assert text[text.index(START) + len(START) : text.index(END)] == table()


def test_every_stop_and_place_is_played_without_slow():
    assert {case.place for case in CHOSEN} == set(PLACES)
    stops = {case.stop for case in CHOSEN}
    assert stops == {*STOP_WORDS} - {*CHAT_STOPS} | {"SIGTERM", "SIGKILL"}
    assert {case.stop for case in CHOSEN if case.front == "trio"} <= {*PROGRAM_STOPS}


# --- C9 ------------------------------------------------------------------------------------------------------------


ENDLESS = """
import os
from checkrein import Harness, tool
from checkrein.testing import ScriptedModel, call
from checkrein_persistence import JsonlStore, Plugin

@tool
def endless() -> str:
    "Begin, and never end."
    os.write(os.open("alive", os.O_WRONLY), b".")
    while True:
        os.read(os.pipe()[0], 1)

def harness(folder):
    return Harness(
        tools=[endless], providers=[ScriptedModel(call("endless"))], plugins=[Plugin()],
        store=JsonlStore(folder / ".checkrein"), workspace=folder, found=(), overrides={"model": "scripted:x"},
    )
"""


def test_C9_lives_of_a_crashtest_die_with_it(cli):
    """Killed with SIGKILL, it leaves neither its worker nor a life that hangs: a pipe both held is at its end."""
    (cli.folder / "agent.py").write_text(ENDLESS)
    os.mkfifo(cli.folder / "alive")
    alive = os.open(cli.folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
    process = cli.start("crashtest", "agent.py", stderr=subprocess.DEVNULL)
    try:
        assert select.select([alive], [], [], 30)[0] and os.read(alive, 1) == b"."
        process.kill()
        assert select.select([alive], [], [], 30)[0] and os.read(alive, 1) == b""  # nobody holds the other end
    finally:
        os.close(alive)


MODULES = {"subprocess", "multiprocessing", "pty"}
FUNCTIONS = {"fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen", "open_process", "run_process"}


def test_C9_no_part_of_an_agent_starts_a_process():
    """So no child can outlive the harness; whoever adds the first one has to keep C9."""
    root = Path(__file__).parents[2]
    folders = [root / name for name in ("harness", "agent_loop", "plugins", "invariants")]
    files = {path.relative_to(folder).as_posix(): path for folder in folders for path in folder.rglob("*.py")}
    found = {name for name, path in files.items() if _starts_a_process(path)}
    assert found <= {"checkrein/cli/crashtest.py", "checkrein/testing/lives.py"}  # which kill processes for a living


def _starts_a_process(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import) and {alias.name.partition(".")[0] for alias in node.names} & MODULES:
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            return True
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("os", "anyio", "trio") and node.attr in FUNCTIONS:
                return True
    return False


if __name__ == "__main__":
    page = DOC.read_text("utf-8")
    head, tail = page[: page.index(START) + len(START)], page[page.index(END) :]
    DOC.write_text(head + table() + tail, "utf-8")
    sys.stdout.write(f"written: {DOC}\n")
