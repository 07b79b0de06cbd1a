"""kill -9 of a real process (R2-R4, X6): nothing acknowledged is lost, no effect is begun twice, every session goes on.

By default every append, every file operation and 100 random moments; `--kills=full` makes it 10,000, `--kills=N`
at most N / 2 of each. The lives are kill_worker.py's; here each that was killed is resumed, judged and lived on.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import pytest

from checkrein import events as ev
from checkrein.recovery import Recovered, recover
from checkrein.store import StoredLog
from checkrein_invariants.checking import check_lines
from checkrein_persistence import JsonlStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks each life from one warm process")

WORKER = Path(__file__).with_name("kill_worker.py")
WAYS = {
    "appends": "behind an append",
    "operations": "before, within or behind a file operation",
    "moments": "at a random moment",
}
A_LIFE_HAS = {"appends": 50, "operations": 80}
ALL_PLACES = 1_000  # more than a life has
ALL_MOMENTS, A_PART = 10_000, 500  # in parts: none outlasts pytest's own watchdog
FRESH = 4  # lives of an interpreter of their own
SECONDS = 280


def worker(*args: object) -> list[str]:
    """The command that lives."""
    return [sys.executable, str(WORKER), *map(str, args)]


def lives(folder: Path, *args: object) -> int:
    """Live in a folder; returns how many lives were killed."""
    done = subprocess.run(worker(folder, *args), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def words(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def judge(folder: Path, figures: Counter[str]) -> str:
    """Resume what is left of a life and go on; returns behind which event it died."""
    told = 1 + max(map(int, words(folder / "told")), default=-1)
    effects = words(folder / "effects")
    store = JsonlStore(folder / ".checkrein")
    sessions = list(store.list())
    if not sessions:
        assert not told and not effects, f"expected the session of {folder}, it is gone"
        return "no session yet"
    (info,) = sessions
    found = recover(store.read(info.id))
    no_acknowledged_event_is_lost(found, told)
    begun = [event.call_id for event in found.events if isinstance(event, ev.ToolStarted)]
    shown = sum(isinstance(event, ev.RequestStart) for event in found.events)
    assert set(effects) <= set(begun), "a tool did its work without its tool/start in the log (X6)"
    assert len(words(folder / "shown")) <= shown, "the model saw a request that is not in the log (R4)"

    log = anyio.run(go_on, folder, info.id)
    after = recover(log)
    assert after.lines[: len(found.lines)] == found.lines, "history was rewritten"
    checked = check_lines(str(folder), log.lines, torn=log.torn, deep=True)
    assert checked is not None and checked.ok(), [f.message for f in checked.found] if checked else "empty"
    twice = [call_id for call_id, times in Counter(words(folder / "effects")).items() if times > 1]
    assert not twice, f"these calls did their work twice: {twice}"
    assert words(folder / "effects") == effects, "a call that was begun before the kill was begun again"
    figures["acknowledged events, none lost"] += told
    figures["effects, none twice"] += len(effects)
    figures["sessions resumed and continued, all of them"] += 1
    return type(found.events[-1]).__name__


def no_acknowledged_event_is_lost(found: Recovered, told: int) -> None:
    """The first `told` events are there; behind them nothing is missing in between."""
    assert not found.gaps and not found.skipped_bytes
    assert [event.seq for event in found.events] == list(range(len(found.events)))
    assert len(found.events) >= told, f"{told} events were acknowledged, {len(found.events)} are left"


async def go_on(folder: Path, session_id: str) -> StoredLog:
    """Resume in this process, with the same tools; take what is owed, and run one more turn."""
    from kill_worker import Diary, Keeper, harness_for

    async with harness_for(Diary(folder), "going on", plugins=[Keeper()]) as harness:
        agent = await harness.resume(session_id)
        agent.wake()
        await agent.idle()
        (await agent.run("go on")).check()
        assert not agent.pending
    return JsonlStore(folder / ".checkrein").read(session_id)


def killed_at(way: str, folder: Path, figures: Counter[str], *how: int) -> int:
    """Let lives be killed in a way, and judge them all; returns how many were."""
    killed = lives(folder, way, *how)
    figures[f"processes killed {WAYS[way]}"] += killed
    places: Counter[str] = Counter()
    for life in sorted(folder.iterdir()):
        places[judge(life, figures)] += 1
        shutil.rmtree(life)  # thousands of them
    print(f"{killed} killed {WAYS[way]}; died behind {dict(places)}")
    return killed


def half(kills: int | None, everything: int) -> int:
    return everything if kills is None else max(1, kills // 2)


@pytest.mark.parametrize("way", ["appends", "operations"])
def test_R4_killed_at_each_place_nothing_acknowledged_is_lost(
    tmp_path: Path, kills: int | None, figures: Counter[str], way: str
) -> None:
    count = half(kills, ALL_PLACES)
    assert killed_at(way, tmp_path, figures, count) >= min(count, A_LIFE_HAS[way]) * 0.9  # a thread's pace is its own


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "moments" in metafunc.fixturenames:
        count = half(metafunc.config.getoption("--kills"), ALL_MOMENTS)
        metafunc.parametrize("moments", [range(at, min(count, at + A_PART)) for at in range(0, count, A_PART)], ids=str)


def test_case_D11_killed_at_random_moments_no_effect_comes_twice(
    tmp_path: Path, figures: Counter[str], moments: range
) -> None:
    assert killed_at("moments", tmp_path, figures, len(moments), moments.start) >= len(moments)


def test_R2_a_fresh_interpreter_is_killed_too(tmp_path: Path, figures: Counter[str]) -> None:
    lasts_s = 0.0
    for n in range(1 + FRESH):
        folder = tmp_path / f"life-{n}"
        process = subprocess.Popen(worker(folder, "once"), stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"begins\n"
        begin = time.perf_counter()
        if lasts_s:
            select.select([], [], [], lasts_s * n / (FRESH + 1))
            process.kill()
            figures["processes of a fresh interpreter killed"] += 1
        process.communicate()
        lasts_s = lasts_s or time.perf_counter() - begin
        judge(folder, figures)


@pytest.mark.parametrize("word", ["inbox/accepted", "steering/message", "request/start", "tool/start", "turn/end"])
def test_a_disk_that_lies_is_found_out(tmp_path: Path, word: str) -> None:
    assert lives(tmp_path, "lying", f'"{word}"') == 1
    with pytest.raises(AssertionError):
        judge(tmp_path / "lying", Counter())


@pytest.mark.parametrize("gate", ["input", "request", "call", "turn_end"])
def test_R4_a_gate_that_is_forgotten_is_found_out(tmp_path: Path, gate: str) -> None:
    assert lives(tmp_path, "careless", 28, gate)
    with pytest.raises(AssertionError):
        for life in sorted(tmp_path.iterdir()):
            judge(life, Counter())
