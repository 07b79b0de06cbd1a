"""The guard in a running agent: votes, questions, what is remembered, and a start that a broken rule stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein import Agent, AgentLike, AgentSpec, Approval, Approver, Harness, PluginError, TurnResult, tool
from checkrein.events import ApprovalAsked, ApprovalDecided, ToolEnded, ToolResulted
from checkrein.memory_store import MemoryStore
from checkrein.messages import content_text
from checkrein.testing import ScriptedModel, call, forever
from checkrein_invariants import check_events
from checkrein_permissions import Plugin
from checkrein_persistence import Plugin as Persistence

ran: list[str] = []


@tool(read_only=True)
def read_file(path: str) -> str:
    """Reads."""
    ran.append(f"read {path}")
    return "content"


@tool
def write_file(path: str, content: str = "") -> str:
    """Writes."""
    ran.append(f"write {path}")
    return "written"


@tool
def shell(command: str) -> str:
    """Runs."""
    ran.append(f"run {command}")
    return "done"


class Person:
    """Answers questions as told, and remembers them."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[Approval] = []

    async def decide(self, agent: AgentLike, approval: Approval) -> str:
        self.asked.append(approval)
        return self.answers.pop(0)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def results(result: TurnResult) -> list[tuple[str, str | None]]:
    """The text and decision of each call, in order."""
    ended = {event.seq: event for event in result.events if isinstance(event, ToolEnded)}
    found = [event for event in result.events if isinstance(event, ToolResulted)]
    return [
        (content_text((event.content if event.end is None else ended[event.end].content) or []), event.decision)
        for event in found
    ]


async def one_turn(
    plugin: Plugin, turns: Sequence[Any], person: Person | None = None, workspace: Path | None = None
) -> TurnResult:
    async with Agent(
        ScriptedModel(*turns),
        tools=[read_file, write_file, shell],
        plugins=[plugin],
        workspace=workspace,
        max_parallel_tool_calls=1,
    ) as agent:
        if person is not None:
            agent.harness.provide(Approver, person)
        result = await agent.run("go")
        assert not check_events(agent.session.events)
        return result


def config(**values: Any) -> Plugin:
    return Plugin(Plugin.Config(**values))


def test_without_a_rule_reading_is_free_and_the_rest_is_asked(run: Callable[..., Any]) -> None:
    person = Person("allowed_once")
    turns = [[call("read_file", {"path": "a"}), call("write_file", {"path": "b"})], "done"]
    result = run(one_turn, config(), turns, person)
    assert result.ok and sorted(ran) == ["read a", "write b"]
    assert [question.tool for question in person.asked] == ["write_file"]
    assert results(result) == [("content", None), ("written", "ask")]


def test_nobody_to_ask_is_no(run: Callable[..., Any]) -> None:
    result = run(one_turn, config(), [call("write_file", {"path": "b"}), "done"])
    assert result.ok and not ran and results(result)[0][1] == "ask"


@pytest.mark.parametrize(("mode", "count"), [("allow", 1), ("deny", 0)])
def test_mode_is_the_default(run: Callable[..., Any], mode: str, count: int) -> None:
    result = run(one_turn, config(mode=mode), [call("shell", {"command": "ls"}), "done"])
    assert result.ok and len(ran) == count


def test_read_only_has_a_default_of_its_own(run: Callable[..., Any]) -> None:
    plugin = config(read_only="deny", allow=("read_file(src/**)",))
    turns = [[call("read_file", {"path": "src/a"}), call("read_file", {"path": "b"})], "done"]
    run(one_turn, plugin, turns)
    assert ran == ["read src/a"]


def test_deny_beats_ask_beats_allow(run: Callable[..., Any]) -> None:
    plugin = config(mode="allow", deny=("shell(rm *)",), ask=("shell(rm *)", "shell(git push)"), allow=("*",))
    person = Person("denied")
    commands = ["ls", "git log", "git push -f", "rm -r x", "sudo rm x", "true; rm x"]
    result = run(one_turn, plugin, [[call("shell", {"command": command}) for command in commands], "done"], person)
    assert sorted(ran) == ["run git log", "run ls"]
    assert [decision for _, decision in results(result)] == ["allow", "allow", "ask", "deny", "deny", "deny"]
    assert "shell(rm *)" in results(result)[3][0]


def test_case_A03_another_plugins_ask_beats_an_allow(run: Callable[..., Any]) -> None:
    from checkrein import Ask, hookimpl

    class Careful:
        @hookimpl
        def tools_guard(self) -> Ask:
            return Ask("sure?")

    async def main() -> None:
        model = ScriptedModel(call("shell", {"command": "ls"}), "done")
        async with Agent(model, tools=[shell], plugins=[config(allow=("*",)), Careful]) as agent:
            person = Person("denied")
            agent.harness.provide(Approver, person)
            await agent.run("go")
            assert len(person.asked) == 1 and not ran

    run(main)


def test_what_cannot_be_judged_is_asked_without_an_always(run: Callable[..., Any]) -> None:
    person = Person("denied")
    plugin = config(mode="allow", deny=("shell(rm *)",), allow=("*",))
    run(one_turn, plugin, [call("shell", {"command": "eval $X"}), "done"], person)
    assert person.asked[0].rule is None and "cannot be told" in person.asked[0].summary and not ran


@pytest.mark.parametrize(
    ("path", "mode", "outcome"),
    [
        ("src/a", "allow", "ran"),
        ("other", "allow", "ran"),
        ("https://x/src/a", "allow", "it cannot be told whether the rule 'write_file(src/**)' allows it"),
        ("other", "ask", "no rule is about it"),
        ("https://x/src/a", "ask", "it cannot be told whether the rule 'write_file(src/**)' allows it"),
        ("https://x/src/a", "deny", "denied: no permission rule allows it"),
    ],
)
def test_what_an_allowing_rule_may_be_about_is_asked(
    run: Callable[..., Any], path: str, mode: Any, outcome: str
) -> None:
    """In doubt a person decides, also where everything else is allowed; who denies the rest denies this as well."""
    person = Person("denied")
    plugin = config(mode=mode, allow=("write_file(src/**)",))
    result = run(one_turn, plugin, [call("write_file", {"path": path}), "done"], person)
    said = [question.summary for question in person.asked] or ["ran" if ran else results(result)[0][0]]
    assert len(said) == 1 and outcome in said[0]


def test_protected_files_are_asked_for_each_time(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "innocent").symlink_to(".git")
    person = Person("denied", "denied", "denied")
    paths = ["checkrein.toml", "./.checkrein/x", "innocent/hooks/pre-commit", "other"]
    turns = [[call("write_file", {"path": path}) for path in paths], "done"]
    run(one_turn, config(allow=("*",)), turns, person, tmp_path)
    assert [approval.rule for approval in person.asked] == [None] * 3 and ran == ["write other"]
    assert "leads to .git/hooks/pre-commit" in person.asked[2].summary


def test_a_path_that_cannot_be_told_may_be_a_protected_one(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "checkrein.toml").write_text("")
    (tmp_path / "second").hardlink_to(tmp_path / "checkrein.toml")
    doubtful = ["checkrein.toml", "second", " checkrein.toml", f"/proc/self/root{tmp_path}/checkrein.toml", "~/x", "$A"]
    doubtful += ["file:///x", "https://x/../../checkrein.toml"]
    person = Person(*("denied" for _ in doubtful))
    turns = [[call("write_file", {"path": path}) for path in [*doubtful, "https://x/y", "", "other"]], "done"]
    run(one_turn, config(allow=("write_file",), mode="allow"), turns, person, tmp_path)
    assert [approval.rule for approval in person.asked] == [None] * len(doubtful)
    assert sorted(ran) == ["write ", "write https://x/y", "write other"]
    ran.clear()
    run(one_turn, config(allow=("write_file",), protected=()), [call("write_file", {"path": "~/x"}), "done"])
    assert ran == ["write ~/x"], "who protects nothing is not asked"


def test_the_question_shows_everything_for_what_it_is(run: Callable[..., Any]) -> None:
    person = Person("denied")
    command = "ls \x1b[2K\u202e " + "a" * 5_000 + "; rm -rf /"
    run(one_turn, config(), [call("shell", {"command": command}), "done"], person)
    summary = person.asked[0].summary
    assert "\\x1b[2K\\u202e" in summary and "; rm -rf /" in summary and len(summary) < 9_000
    assert "more characters" in summary and person.asked[0].rule is None


# --- what is remembered -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_L1_always_is_remembered_over_a_restart(backend: str) -> None:
    store = MemoryStore()

    async def main() -> None:
        person = Person("allowed_rule", "denied")
        write, other = call("write_file", {"path": "a"}), call("write_file", {"path": "b"})
        plugin = config(ask=("write_file",))
        model = ScriptedModel(write, write, other, "done")
        async with Agent(model, tools=[write_file], plugins=[plugin, Persistence], store=store) as agent:
            agent.harness.provide(Approver, person)
            result = await agent.run("go")
            session = agent.session.id
        assert ran == ["write a", "write a"] and len(person.asked) == 2
        assert person.asked[0].rule == "write_file(path=a)"
        rules = [event.rule for event in result.events if isinstance(event, ApprovalDecided)]
        assert rules == ["write_file(path=a)", None]
        fresh = config(ask=("write_file",))
        model = ScriptedModel(write, "done")
        async with Agent(model, tools=[write_file], plugins=[fresh, Persistence], store=store) as first:
            agent = await first.harness.resume(session, spec=first.spec)
            result = await agent.run("again")
        assert ran == ["write a"] * 3 and not [e for e in result.events if isinstance(e, ApprovalAsked)]

    anyio.run(main, backend=backend)  # in real time: syncing waits for a thread


def test_a_deny_rule_beats_what_was_remembered(run: Callable[..., Any]) -> None:
    async def main() -> None:
        write = call("write_file", {"path": "a"})
        model = ScriptedModel(write, "done", write, "done")
        async with Agent(model, tools=[write_file], plugins=[config()]) as agent:
            agent.harness.provide(Approver, Person("allowed_rule"))
            await agent.run("go")
            plugin = agent.harness.plugins.plugin("permissions")
            plugin.config = Plugin.Config(deny=("write_file(a)",))
            await agent.run("go")
        assert ran == ["write a"]

    run(main)


def test_case_L10_a_denied_call_is_not_asked_for_again(run: Callable[..., Any]) -> None:
    person = Person("denied", "allowed_once")
    same, other = call("write_file", {"path": "a"}), call("write_file", {"path": "b"})
    spelt = call("write_file", raw='{ "path" : "a" }')
    result = run(one_turn, config(), [same, spelt, other, "done"], person)
    assert [question.arguments["path"] for question in person.asked] == ["a", "b"]
    assert [decision for _, decision in results(result)] == ["ask", "deny", "ask"] and ran == ["write b"]


def test_case_Q16_a_model_that_insists_ends_its_turn(run: Callable[..., Any]) -> None:
    person = Person("denied")
    result = run(one_turn, config(), [forever(call("write_file", {"path": "a"}))], person)
    assert len(person.asked) == 1 and result.steps == 4 and not ran
    assert result.reason.kind == "cancelled" and result.reason.cause_text.startswith("hook permissions")


def test_a_denial_lasts_for_its_turn(run: Callable[..., Any]) -> None:
    async def main() -> None:
        same = call("write_file", {"path": "a"})
        async with Agent(ScriptedModel(same, "no", same, "yes"), tools=[write_file], plugins=[config()]) as agent:
            person = Person("denied", "allowed_once")
            agent.harness.provide(Approver, person)
            await agent.run("go")
            await agent.run("now you may")
            assert len(person.asked) == 2 and ran == ["write a"]

    run(main)


# --- the config -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('deny = ["shell(rm *"]', "deny[0]: rule 'shell(rm *': expected a closing ), got the end at position 11"),
        ('allow = ["read_file", "effect:readonly"]', "allow[1]: rule 'effect:readonly'"),
        ('mode = "sometimes"', "mode"),
        ('alow = ["x"]', "did you mean 'allow'"),
        ('protected = ["../x"]', "protected[0]"),
        ("max_repeats = 0", "max_repeats"),
    ],
)
def test_H5_a_broken_rule_table_stops_the_start(
    run: Callable[..., Any], tmp_path: Path, table: str, words: str
) -> None:
    (tmp_path / "checkrein.toml").write_text(f"[plugins.permissions]\n{table}\n")

    async def main() -> None:
        harness = Harness(
            tmp_path / "checkrein.toml", plugins=[Plugin], providers=[ScriptedModel()], workspace=tmp_path
        )
        with pytest.raises(PluginError) as caught:
            await harness.__aenter__()
        assert words in str(caught.value) and "checkrein.toml" in str(caught.value)

    run(main)


def test_H6_an_agent_overrides_single_keys(run: Callable[..., Any]) -> None:
    overrides = {"permissions": {"allow": ["shell(ls)"]}}

    async def main() -> None:
        model = ScriptedModel(call("shell", {"command": "ls"}), "done")
        async with Agent(model, tools=[shell], plugins=[Plugin]) as first:
            spec = AgentSpec(id="second", model=first.spec.model, plugins=overrides)
            agent = await first.harness.create_agent(spec)
            await agent.run("go")
        assert ran == ["run ls"]

    run(main)


def test_case_A05_a_risky_rule_is_pointed_out(caplog: pytest.LogCaptureFixture) -> None:
    config(allow=("shell(python *)",))
    assert "runs any program" in caplog.text
