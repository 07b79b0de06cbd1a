"""The pytest plugin in a test run of its own: what it fails, what it leaves alone, and what it costs (P3)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

AGENTS = '''
import anyio
import pytest
from checkrein import Agent, hookimpl, events as ev
from checkrein.testing import ScriptedModel


class Breaks:
    """Appends to the log what its rules do not allow, and the loop contains."""

    @hookimpl
    def session_event(self, session, event):
        if event.type == "step/end":
            session.append(ev.TurnEnd(turn=99, reason=ev.Reason("completed"), steps=0))


class Lies:
    """Appends what append cannot know to be wrong."""

    @hookimpl
    def session_event(self, session, event):
        if event.type == "step/end":
            session.append(ev.PluginFaulted(hook="x", error=ev.Fault("E", "m"), action="contained"))


def talk(*plugins):
    async def main():
        async with Agent(ScriptedModel("hello"), plugins=list(plugins)) as agent:
            assert (await agent.run("hi")).text == "hello"
    anyio.run(main)
'''

TESTS = {
    "test_good": "def test_good(): talk()",
    "test_contained": "def test_contained(): talk(Breaks())",
    "test_wrong": "def test_wrong(): talk(Lies())",
    "test_own_failure": "def test_own_failure(): talk(Lies()); assert False, 'mine'",
    "test_marked": "@pytest.mark.checkrein_oracle_off(reason='on purpose')\ndef test_marked(): talk(Breaks())",
    "test_no_reason": "@pytest.mark.checkrein_oracle_off\ndef test_no_reason(): talk()",
    "test_fixture": """
def test_fixture(checkrein_oracle):
    talk()
    (watch,) = checkrein_oracle.watches
    assert watch.session.events and checkrein_oracle.violations == []
""",
    "test_by_hand": """
def test_by_hand():
    from checkrein.session import Session
    session = Session("s")
    session.append(ev.TurnStart(turn=1, trigger={}))
    session.append(ev.TurnEnd(turn=1, reason=ev.Reason("completed"), steps=0))
""",
    "test_in_fixture": """
@pytest.fixture
def wrong():
    yield
    talk(Lies())

def test_in_fixture(wrong): pass
""",
    "test_left_open": """
def test_left_open():
    async def main():
        async with Agent(ScriptedModel("hello")) as agent:
            agent.session.append(ev.TurnStart(turn=1, trigger={}))  # behind the loop's back
    anyio.run(main)
""",
}


MANY = """
def test_many(checkrein_oracle):
    talk(Lies())
    for _ in range(210):
        talk()
    assert len(checkrein_oracle.watches) == 200
"""


def run_tests(folder: Path, *names: str, mode: str = "on", head: str = AGENTS) -> dict[str, str]:
    """Run these tests; returns each one's outcomes in short, and all output under `text`."""
    (folder / "test_it.py").write_text(head + "\n".join(TESTS.get(name, name) for name in names))
    (folder / "pytest.ini").write_text(
        f"[pytest]\ncheckrein_oracle = {mode}\nasyncio_default_fixture_loop_scope = function\n"
        "addopts = --strict-markers --strict-config\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-q", "-c", "pytest.ini", "test_it.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    out = {"text": done.stdout + done.stderr}
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" test_it.py::")
        if rest and word in ("PASSED", "FAILED", "ERROR"):
            name = rest.split()[0]
            out[name] = f"{out[name]}+{word}" if name in out else word
    return out


def test_a_run_with_every_kind_of_test(tmp_path: Path) -> None:
    out = run_tests(tmp_path, *TESTS)
    text = out["text"]
    assert {name: out.get(name) for name in TESTS} == {
        "test_good": "PASSED",
        "test_contained": "FAILED",
        "test_wrong": "FAILED",
        "test_own_failure": "ERROR+FAILED",  # its own failure first, then what the oracle has to say
        "test_marked": "PASSED",
        "test_no_reason": "ERROR",
        "test_fixture": "PASSED",
        "test_by_hand": "PASSED",
        "test_in_fixture": "PASSED+ERROR",
        "test_left_open": "PASSED+ERROR",
    }, text
    assert "contained at seq" in text and "O2" in text
    assert "O25" in text and "a fault in x without its author" in text
    assert "checkrein_oracle_off needs a reason" in text
    assert "turn 1 has no turn/end" in text
    assert "AssertionError: mine" in text


def test_a_sweep_holds_few_sessions_and_judges_all(tmp_path: Path) -> None:
    out = run_tests(tmp_path, MANY)
    assert out["test_many"] == "FAILED", out["text"]
    assert "O25" in out["text"]


def test_off_watches_nothing(tmp_path: Path) -> None:
    out = run_tests(tmp_path, "test_contained", "test_wrong", mode="off")
    assert (out["test_contained"], out["test_wrong"]) == ("PASSED", "PASSED"), out["text"]


def test_deep_derives_at_each_step(tmp_path: Path) -> None:
    out = run_tests(
        tmp_path,
        "test_good",
        "def test_deep(checkrein_oracle):\n    talk()\n    assert checkrein_oracle.watches[0]._deep is not None",
        mode="deep",
    )
    assert (out["test_good"], out["test_deep"]) == ("PASSED", "PASSED"), out["text"]


def test_another_word_is_a_usage_error(tmp_path: Path) -> None:
    assert "checkrein_oracle: expected on, off or deep, got 'maybe'" in run_tests(tmp_path, mode="maybe")["text"]


INNER = """
pytest_plugins = ["pytester"]

def test_around(pytester):
    pytester.makepyfile("def test_inner(): pass")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    talk(Lies())

def test_behind(): talk(Lies())
"""


def test_a_run_inside_of_a_test_leaves_the_oracle_where_it_was(tmp_path: Path) -> None:
    """Whoever tests a pytest plugin runs pytest in the process of the test; it must not end the outer run's watch."""
    out = run_tests(tmp_path, INNER)
    assert (out["test_around"], out["test_behind"]) == ("FAILED", "FAILED"), out["text"]


LASTING = """
from checkrein.testing import forever, hang

pytestmark = pytest.mark.anyio

@pytest.fixture(scope="module")
def anyio_backend(): return "asyncio"

class Sometimes(Lies):
    now = False

    @hookimpl
    def session_event(self, session, event):
        if Sometimes.now:
            super().session_event(session, event)

@pytest.fixture(scope="module")
async def agent(anyio_backend):
    async with Agent(ScriptedModel("one", "two", "three", hang(), "four"), plugins=[Sometimes()]) as agent:
        yield agent

async def test_first(agent):
    assert (await agent.run("hi")).text == "one"

async def test_second_breaks(agent):
    Sometimes.now = True
    assert (await agent.run("hi")).text == "two"

@pytest.mark.checkrein_oracle_off(reason="on purpose")
async def test_third_may(agent):
    assert (await agent.run("hi")).text == "three"
    Sometimes.now = False

async def test_fourth_leaves_a_turn_open(agent):
    agent.send("hi")
    await anyio.sleep(0.01)
    assert agent.status == "running"

async def test_fifth_ends_it(agent):
    agent.cancel()
    await agent.idle()

async def test_sixth_breaks_at_the_end(agent):
    agent.session.append(ev.TurnStart(turn=agent.session.state.turn + 1, trigger={}))
"""


def test_an_agent_of_a_module_is_watched_in_each_test_and_may_be_at_work_between_them(tmp_path: Path) -> None:
    out = run_tests(tmp_path, LASTING)
    text = out.pop("text")
    assert out == {
        "test_first": "PASSED",
        "test_second_breaks": "FAILED",
        "test_third_may": "PASSED",
        "test_fourth_leaves_a_turn_open": "PASSED",
        "test_fifth_ends_it": "PASSED",
        "test_sixth_breaks_at_the_end": "PASSED+ERROR",
    }, text
    shown = text.partition("short test summary")[0]  # which repeats the reason in full where CI is set, and only there
    assert shown.count("a fault in x without its author") == 1
    assert "has no turn/end" in text


@pytest.mark.parametrize("where", ["head", "inside"])
def test_P3_only_the_standard_library_until_checkrein_is_imported(tmp_path: Path, where: str) -> None:
    head = """
import sys

def ours():
    return sorted(name for name in sys.modules if name.split(".")[0] in ("checkrein", "msgspec", "click", "pluggy_"))

def test_nothing_is_imported():
    assert ours() == []
    assert not any(name.startswith("checkrein_invariants.") and name != "checkrein_invariants.pytest_plugin"
                   for name in sys.modules)
"""
    late = """
def test_late_import_is_watched(checkrein_oracle):
    from checkrein import session
    import checkrein.session
    assert type(session.__loader__).__name__ == "SourceFileLoader"
    made = session.Session("s")
    assert [watch.session for watch in checkrein_oracle.watches] == [made]
"""
    if where == "head":
        out = run_tests(tmp_path, head=head)
        assert out["test_nothing_is_imported"] == "PASSED", out["text"]
    else:
        out = run_tests(tmp_path, late, head=head)
        assert out["test_late_import_is_watched"] == "PASSED", out["text"]
