"""What hooks cost, kept and read: what cannot be is left aside with a line, and no run is disturbed (H7)."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from checkrein import Harness, __version__, hookimpl, tool
from checkrein.agents import AgentSpec
from checkrein.cli import accounts, main
from checkrein.cli.accounts import keep_run, last_run
from checkrein.cli.plugins import hook_rows
from checkrein.memory_store import MemoryStore
from checkrein.testing import ScriptedModel, call
from checkrein.testing.store_kit import sample_lines
from checkrein_persistence import FileOps, JsonlStore

ACCOUNT = {"plugin": "p", "hook": "h", "function": "h", "calls": 1, "time_s": 0.5, "changes": 0, "faults": 0}
RUN = {"version": __version__, "session": "s", "time": 1_700_000_000_000, "accounts": [ACCOUNT]}


def run_with(**members) -> bytes:
    return json.dumps({**RUN, **members}).encode()


def account_with(**members) -> bytes:
    return run_with(accounts=[{**ACCOUNT, **members}])


@pytest.fixture
def store(tmp_path, monkeypatch) -> JsonlStore:
    """A store with a session, where the command looks for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    made = JsonlStore(tmp_path / ".checkrein")
    made.create("s", sample_lines(2)).close()
    return made


def hooks(*args: str) -> str:
    done = CliRunner().invoke(main, ["plugins", "--hooks", *args])
    assert done.exit_code == 0 and not done.stderr, done.output
    return done.stdout


class Both:
    """In one hook a guard and, around it, a wrapper."""

    name = "both"

    @hookimpl
    def tools_guard(self, call):
        return None

    @hookimpl(wrapper=True, specname="tools_guard")
    def around(self):
        return (yield)

    @hookimpl
    def agent_status(self):
        raise ValueError("odd")


@tool
def act() -> str:
    """Act."""
    return "acted"


def test_what_was_kept_is_read_again(run, store):
    """All of it, of wrappers too, and apart from what their plugin has in the same hook."""

    async def main():
        model = ScriptedModel([call("act"), call("act")], "done")
        harness = Harness(providers=[model], tools=[act], plugins=[Both()], store=store, found=())
        harness.specs = [AgentSpec(id="main", model="scripted:x")]
        async with harness:
            (await harness.agents["main"].run("go")).check()
        keep_run(harness, "s")
        return harness

    harness = run(main)
    kept, line = last_run(store)
    assert (kept.version, kept.session) == (__version__, "s") and "session s, until 2" in line
    told = {(each.plugin, each.hook, each.function): each for each in kept.accounts}
    for impl in harness.hooks.accounts():
        each = told[impl.plugin, impl.hook, impl.function]
        assert all(getattr(each, name) == getattr(impl, name) for name in ("calls", "time_s", "changes", "faults"))
    guard, wrapper = told["both", "tools_guard", "tools_guard"], told["both", "tools_guard", "around"]
    assert len(told) == len(harness.hooks.accounts()) and guard.time_s != wrapper.time_s
    assert (guard.calls, wrapper.calls, told["both", "agent_status", "agent_status"].faults) == (2, 2, 3)
    rows = {row["hook"]: row for row in hook_rows(harness.plugins, accounts=kept.accounts)}
    for kind, each in (("implementations", guard), ("wrappers", wrapper)):
        assert [one["time_s"] for one in rows["tools_guard"][kind]] == [each.time_s]


DAMAGED = {
    "empty": b"",
    "torn": run_with()[:-7],
    "another shape": b"[1, 2]",
    "not UTF-8": run_with().replace(b'"s"', b'"\xff"'),
    "nested": b'{"x":' + b"[" * 100_000,
    "a count below 0": account_with(calls=-1),
    "a count nobody can have": account_with(faults=10**30),
    "a time nobody can have": account_with(time_s=1e300),
    "no number": account_with(time_s="long"),
    "no time": run_with(time=-(10**40)),
    "huge": run_with(session="s" * accounts.MOST_BYTES),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_what_is_damaged_is_left_aside_with_one_line(store, data):
    (store.folder / "hooks.json").write_bytes(data)
    out = hooks()
    assert out.splitlines()[-1].startswith("no times and faults: what the last run left is damaged (")
    assert len(out.splitlines()[-1]) < 400 and "tools_guard" in out and " ms" not in out
    assert json.loads(hooks("--json"))["run"] is None


def test_what_another_version_left_is_left_aside(store):
    store.put_accounts(run_with(version="9.9\x1b[2J"))
    assert "is of checkrein 9.9\\x1b[2J, this is" in hooks().splitlines()[-1]


def test_a_strangers_words_do_not_drive_the_terminal(store):
    store.put_accounts(run_with(session="\x1b]0;owned\x07\u202e", time=2**53))
    assert not set(hooks()) & {"\x1b", "\x07", "\u202e"}


def test_what_is_no_file_is_left_aside(store):
    (store.folder / "hooks.json").mkdir()
    assert "expected a file" in hooks().splitlines()[-1]
    if hasattr(os, "mkfifo"):
        (store.folder / "hooks.json").rmdir()
        os.mkfifo(store.folder / "hooks.json")
        assert "expected a file" in hooks().splitlines()[-1]


def test_nothing_was_left_yet(store):
    assert hooks().splitlines()[-1] == "nothing has run here yet: no times and faults"
    document = json.loads(hooks("--json"))
    assert (document["run"], document["counted"]) == (None, "nothing has run here yet: no times and faults")
    assert all(set(each) == {"plugin"} for row in document["hooks"] for each in row["implementations"])


class Full(FileOps):
    """Nothing can be written any more."""

    def write(self, fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")


class Odd(JsonlStore):
    """A store that raises what it should not."""

    def put_accounts(self, data: bytes) -> None:
        raise ZeroDivisionError


def test_a_store_that_cannot_keep_it_is_let_be(store):
    keep_run(Harness(store=store, found=()), "s")
    before = (store.folder / "hooks.json").read_bytes()
    for other in (JsonlStore(store.folder, ops=Full()), Odd(store.folder)):
        keep_run(Harness(store=other, found=()), "t")
    assert (store.folder / "hooks.json").read_bytes() == before


def test_what_would_be_too_much_is_not_kept(store):
    keep_run(Harness(store=store, found=()), "s" * accounts.MOST_BYTES)
    assert store.accounts(1) is None


def test_a_store_in_memory_keeps_nothing():
    store = MemoryStore()
    keep_run(Harness(store=store, found=()), "s")
    assert last_run(store) == (None, "no times and faults: the store 'memory' keeps none")
