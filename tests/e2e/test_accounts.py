"""What hooks cost, as an operator sees it: after a run, in a chat, and where nothing can be kept (H1, H7)."""

from __future__ import annotations

import json
import os
import re
import stat

import pytest

PLUGIN = """
import time
from checkrein import hookimpl

class Plugin:
    @hookimpl
    def agent_request(self, request):
        time.sleep(0.005)
        return request.replace(settings={"n": 1})

    @hookimpl(wrapper=True)
    def turn_continuation(self):
        time.sleep(0.002)
        return (yield)

    @hookimpl
    def agent_status(self, status):
        raise ValueError("odd")
"""
HEAD = "hook   "
TWO_STEPS = ('{ calls = [{ name = "dirty" }] }', '"Done."')


@pytest.fixture
def slow_cli(cli):
    """With a plugin `lazy` that is slow in a hook and around another, and fails in a third."""
    cli.install("lazy", PLUGIN)
    return cli


def table(text: str) -> dict[str, str]:
    """The lines of the hooks' table, by the hook's name."""
    return {line.split()[0]: line for line in text.rpartition(HEAD)[2].splitlines() if line.strip()}


def counts(done, hook: str, kind: str = "implementations") -> dict:
    (row,) = [row for row in json.loads(done.out)["hooks"] if row["hook"] == hook]
    return {each.pop("plugin"): each for each in row[kind]}


def test_H7_a_run_leaves_what_its_hooks_cost_and_the_command_shows_it(slow_cli):
    cli = slow_cli
    cli.script(*TWO_STEPS)
    assert "nothing has run here yet" in cli.run("plugins", "--hooks").out
    assert cli.run("run", "go").out == "Done.\n"
    session = cli.logs[0].parent.name
    done = cli.run("plugins", "--hooks")
    assert (done.code, done.err) == (0, "")
    assert f"times and faults of the last run: session {session}, until 2" in done.out
    lines = table(done.out)
    assert re.search(r"> lazy \(2 x [\d.]+ = [\d.]+ ms\) ", lines["agent_request"])
    assert re.search(r" \[lazy \([^)]* ms\)\] > ", lines["turn_continuation"])
    assert "3 faults)" in lines["agent_status"]
    as_json = cli.run("plugins", "--hooks", "--json")
    lazy = counts(as_json, "agent_request")["lazy"]
    assert (lazy["calls"], lazy["changes"], lazy["faults"]) == (2, 2, 0) and 0.01 <= lazy["time_s"] < 1
    assert counts(as_json, "agent_status")["lazy"]["faults"] == 3
    assert counts(as_json, "turn_continuation", "wrappers")["lazy"]["time_s"] >= 0.002
    assert json.loads(as_json.out)["run"]["session"] == session
    left_out = cli.run("plugins", "--hooks", "--no-plugin", "lazy").out
    assert "lazy" not in left_out.rpartition(HEAD)[2] and "session" in left_out.splitlines()[-1]


def test_H7_the_file_is_private_replaced_by_the_next_run_and_missed_by_nobody(slow_cli):
    cli = slow_cli
    cli.script('"x"')
    kept = cli.folder / ".checkrein" / "hooks.json"
    for _ in range(2):
        assert cli.run("run", "go").code == 0
        assert json.loads(kept.read_bytes())["session"] == cli.logs[-1].parent.name
        if os.name != "nt":
            assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.unlink()
    assert cli.run("sessions", "list").code == 0
    assert "nothing has run here yet" in cli.run("plugins", "--hooks").out
    assert cli.run("run", "--continue", "again").code == 0 and kept.exists()


def test_H7_where_it_cannot_be_kept_the_run_is_the_same(cli):
    cli.script('"x"')
    folder = cli.folder / ".checkrein"
    (folder / "sessions").mkdir(parents=True)
    (folder / "hooks.json").mkdir()
    done = cli.run("run", "go")
    assert (done.code, done.out) == (0, "x\n") and "hooks" not in done.err and "balanced" in done.err
    assert sorted(path.name for path in folder.iterdir()) == [".gitignore", "hooks.json", "sessions"]
    assert "expected a file" in cli.run("plugins", "--hooks").out.splitlines()[-1]
    (folder / "hooks.json").rmdir()
    folder.chmod(0o500)
    try:
        if not os.access(folder, os.W_OK):  # root may write all the same
            assert cli.run("run", "go").code == 0 and not (folder / "hooks.json").exists()
    finally:
        folder.chmod(0o700)


def test_H7_what_is_not_stored_leaves_nothing(cli):
    cli.script('"x"', more='[session]\nstore = "memory"')
    assert cli.run("run", "go").out == "x\n" and not (cli.folder / ".checkrein").exists()
    assert cli.run("plugins", "--hooks").out.splitlines()[-1].endswith("the store 'memory' keeps none")
    cli.script('"x"')
    assert cli.run("chat", stdin=b"").code == 0 and not (cli.folder / ".checkrein").exists()


def test_H7_a_chat_in_which_nothing_was_said_keeps_the_last_run(cli):
    cli.script('"x"')
    cli.run("run", "go")
    before = (cli.folder / ".checkrein" / "hooks.json").read_bytes()
    assert cli.run("chat", "--continue", stdin=b"/hooks\n").code == 0
    assert (cli.folder / ".checkrein" / "hooks.json").read_bytes() == before


def test_H7_a_chat_shows_what_its_hooks_cost_so_far(slow_cli):
    cli = slow_cli
    cli.script(*TWO_STEPS)
    done = cli.run("chat", stdin=b"/hooks\ngo\n/hooks\n/help\n")
    assert (done.code, done.out) == (0, "Done.\n")
    before, after = map(table, done.err.split(HEAD)[1:])
    assert "lazy (not called)" in before["agent_request"]
    assert "lazy (2 x " in after["agent_request"] and "faults)" in after["agent_status"]
    assert "/hooks         each hook" in done.err
    kept = json.loads((cli.folder / ".checkrein" / "hooks.json").read_bytes())
    assert kept["session"] == cli.logs[0].parent.name
