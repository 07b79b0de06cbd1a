"""`checkrein crashtest`: real processes, killed with SIGKILL, and the lives after them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from checkrein.cli.crashtest import CrashtestError, Row, crashtest, run_crashtest
from checkrein.errors import ConfigError
from checkrein.testing.lives import load_target

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills with SIGKILL")

AGENT = """
from checkrein import Harness, tool
from checkrein.testing import ScriptedModel, call
from checkrein_persistence import FileOps, JsonlStore, Plugin

@tool
async def pay(amount: int) -> str:
    "Pay."
    return f"paid {amount}"

@tool(read_only=True)
def look(n: int) -> str:
    "Look."
    return f"saw {n}"

class Liar(FileOps):
    "A disk that says it has taken the start of a call, and has not."
    def write(self, fd, data):
        return len(data) if b'"tool/start"' in data else super().write(fd, data)

def harness(folder, ops=FileOps()):
    model = ScriptedModel([call("pay", {"amount": 1}), call("look", {"n": 1})], "done", repeat=True)
    return Harness(
        tools=[pay, look], providers=[model], plugins=[Plugin()], store=JsonlStore(folder / ".checkrein", ops=ops),
        workspace=folder, found=(), overrides={"model": "scripted:x"},
    )

def careless(folder):
    return harness(folder, Liar())

def broken(folder):
    raise OSError("no such agent")

def forgetful(folder):
    return Harness(providers=[ScriptedModel("x")], found=(), overrides={"model": "scripted:x"}, workspace=folder)
"""


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    return path


def test_R2_an_agent_killed_at_its_points_resumes_and_nothing_is_lost_or_twice(agent, tmp_path, kills):
    rows = list(run_crashtest(str(agent), ["one"], tmp_path / "lives", kills and min(kills, 5)))
    assert len(rows) >= 5
    assert all(row.ok for row in rows), [row for row in rows if not row.ok]
    assert rows[0].point == "session/created" and rows[-1].point == "turn/end"
    killed = sorted(path.name for path in (tmp_path / "lives").iterdir())
    assert killed[0].startswith("kill-") and killed[-1] == "whole"


def test_X6_a_store_that_lies_is_found_out(agent, tmp_path):
    rows = list(run_crashtest(f"{agent}:careless", ["one"], tmp_path / "lives", 4))
    assert any("start of c1.1.1" in row.lost for row in rows if not row.ok), rows


def test_the_command_prints_a_table_and_its_exit_code(agent, tmp_path):
    done = CliRunner().invoke(crashtest, [str(agent), "--kills", "2", "--json", "--keep", str(tmp_path / "kept")])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["ok"] for row in rows] == [True, True] and "2 kills: all resumed" in done.stderr
    assert (tmp_path / "kept" / "whole" / "points.json").exists()
    done = CliRunner().invoke(crashtest, [f"{agent}:careless", "--kills", "4"])
    assert done.exit_code == 8 and "start of c1.1.1" in done.stdout and "killed after" in done.stdout


def test_a_config_file_is_a_target(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    config = tmp_path / "checkrein.toml"
    config.write_text(
        dedent("""
            model = "scripted:x"
            [plugins.scripted]
            turns = ["hello", "again", "and again"]
        """)
    )
    rows = list(run_crashtest(str(config), ["hi"], tmp_path / "lives", 2))
    assert [row.ok for row in rows] == [True] * 2, rows
    assert not (tmp_path / ".checkrein" / "sessions").exists(), "the project's own sessions are left alone"


@pytest.mark.parametrize(("name", "words"), [("broken", "no such agent"), ("forgetful", "outlives the process")])
def test_an_agent_that_fails_unharmed_is_no_test(agent, tmp_path, name, words):
    with pytest.raises(CrashtestError, match=words):
        list(run_crashtest(f"{agent}:{name}", ["one"], tmp_path / "lives", 1))


def test_lives_that_were_kept_are_not_overwritten(agent, tmp_path):
    (tmp_path / "kept" / "whole").mkdir(parents=True)
    with pytest.raises(CrashtestError, match="keep them elsewhere"):
        list(run_crashtest(str(agent), ["one"], tmp_path / "kept", 1))


@pytest.mark.parametrize("target", ["nowhere.py", "no_such_module_at_all", "json:nothing"])
def test_a_target_that_is_none_says_what_was_expected(target):
    with pytest.raises(ConfigError, match="expected a"):
        load_target(target)
    done = CliRunner().invoke(crashtest, [target])
    assert isinstance(done.exception, ConfigError) and "Traceback" not in str(done.exception)  # exit code 3


def test_rows_say_whether_they_are_good():
    assert Row(1, "x", "turn 2 completed").ok
    assert not Row(1, "x").ok and not Row(1, "x", "turn 2 completed", lost=["input i1"]).ok
