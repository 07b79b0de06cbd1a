"""kill -9 of a real process (R2-R4, X6): nothing acknowledged is lost, no effect is begun twice, every session goes on.

By default some dozen kills; `--kills=full` kills at every file operation, before, within and behind it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest

from checkrein import Harness
from checkrein import events as ev
from checkrein.recovery import recover
from checkrein.store import StoredLog
from checkrein.testing import ScriptedModel
from checkrein_invariants.checking import check_lines
from checkrein_persistence import JsonlStore, Plugin

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks each life from one warm process")

WORKER = Path(__file__).with_name("kill_worker.py")
ALL_OPERATIONS = 400  # more than a life has; the sweep ends with the first life that is not killed


def lives(folder: Path, *args: object) -> tuple[int, int]:
    """Run the worker; returns how many lives were killed, and how many there were."""
    done = subprocess.run(
        [sys.executable, str(WORKER), str(folder), *map(str, args)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    killed, total = map(int, done.stdout.split())
    return killed, total


def judge(folder: Path) -> str:
    """Resume what is left of a life and go on; returns where it died."""
    told = (folder / "told").read_text().split("\n") if (folder / "told").exists() else []
    effects = Counter((folder / "effects").read_text().split()) if (folder / "effects").exists() else Counter()
    assert all(count == 1 for count in effects.values()), f"an effect came twice: {effects}"
    store = JsonlStore(folder / ".checkrein")
    sessions = list(store.list())
    told_session = any(line.startswith(("input ", "done ")) for line in told)
    if not sessions:
        assert not told_session and not effects, "an acknowledged session is gone"
        return "before the session"
    (info,) = sessions
    found = recover(store.read(info.id))
    assert not found.gaps and not found.skipped_bytes
    inputs = {event.id for event in found.events if isinstance(event, ev.InboxAccepted)}
    ended = {event.turn for event in found.events if isinstance(event, ev.TurnEnd)}
    started = sum(isinstance(event, ev.ToolStarted) for event in found.events)
    for line in told:
        word, _, value = line.partition(" ")
        assert word != "input" or value in inputs, f"the acknowledged input {value} is lost"
        assert word != "done" or int(value) in ended, f"the acknowledged end of turn {value} is lost"
    assert started >= len(effects), "an effect without its tool/start in the log (X6)"

    async def go_on() -> StoredLog:
        harness = Harness(
            providers=[ScriptedModel("going on", "and on", "and on", repeat=True)],
            plugins=[Plugin()],
            store=store,
            workspace=folder,
            found=(),
            overrides={"model": "scripted:x"},
        )
        async with harness:
            agent = await harness.resume(info.id)
            (await agent.run("go on")).check()
            return store.read(info.id)

    log = anyio.run(go_on)
    after = recover(log)
    assert after.lines[: len(found.lines)] == found.lines, "history was rewritten"
    checked = check_lines(str(folder), log.lines, torn=log.torn, deep=True)
    assert checked is not None and checked.ok(), [f.message for f in checked.found] if checked else "empty"
    assert (Path(folder) / "effects").read_text().split() == list(effects.elements()) if effects else True
    return type(found.events[-1]).__name__


def test_R4_killed_at_file_operations_nothing_acknowledged_is_lost(tmp_path: Path, kills: int | None) -> None:
    step = 1 if kills is None else max(1, 72 // kills)
    killed, total = lives(tmp_path, f"1:{ALL_OPERATIONS}:{step}")
    places = Counter(judge(folder) for folder in sorted(tmp_path.iterdir()))
    print(f"{killed} of {total} lives killed at a file operation: {dict(places)}")
    assert killed >= 8


def test_case_D11_killed_at_random_moments_no_effect_comes_twice(tmp_path: Path, kills: int | None) -> None:
    killed, total = lives(tmp_path, "random", 500 if kills is None else kills, 4)
    places = Counter(judge(folder) for folder in sorted(tmp_path.iterdir()))
    print(f"{killed} of {total} lives killed from outside: {dict(places)}")
    assert total
