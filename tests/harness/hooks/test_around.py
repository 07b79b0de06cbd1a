"""H1, H4: the chain of `proceed`: rewriting, answering instead, asking twice, too late, at once; its clock."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hookkit import CALL, call, look, play, plugin, put, raising

from checkrein import Deny, tool
from checkrein import events as ev
from checkrein.calls import Call, Outcome
from checkrein.decisions import Allow, Ask
from checkrein.errors import AlreadyBegun


def execute(name: str, fn: Any) -> Any:
    async def tools_execute(agent: Any, call: Any, proceed: Any) -> Any:
        return await fn(call, proceed)

    return plugin(name, tools_execute=tools_execute)


async def through(call: Any, proceed: Any) -> Any:
    return await proceed(call)


def test_H1_a_plugin_may_rewrite_a_call_and_the_log_says_who(run):
    async def two(call: Any, proceed: Any) -> Any:
        return await proceed(call.replace(n=2))

    seen: list[int] = []
    guard = plugin("guard", tools_guard=lambda call: seen.append(call.arguments["n"]))
    played = play(run, execute("a", two), execute("b", through), guard)
    assert played.outcomes == ["acted 2"] and seen == [2], "guards vote on exactly the call that will run"
    start = played.of(ev.ToolStarted)[0]
    assert (start.arguments, start.changed_by) == ({"n": 2}, ["a"])
    assert played.account("a", "tools_execute").changes == 1 and played.account("b", "tools_execute").changes == 0


@pytest.mark.parametrize(
    "bad", [{"n": "x"}, {"m": 1}, {"n": float("nan")}, {"n": object()}], ids=["type", "name", "nan", "json"]
)
def test_H1_rewritten_calls_are_validated_again_and_the_rewriter_is_to_blame(run, bad):
    async def rewrite(call: Any, proceed: Any) -> Any:
        return await proceed(Call(call.call_id, call.name, bad, call.turn, call.step, call.tool))

    played = play(run, execute("bad", rewrite), execute("innocent", through))
    assert played.result.ok and played.outcomes == ["REFUSED_BY_FAULT"] and not played.of(ev.ToolStarted)
    assert played.faults == [("bad", "tools_execute", "refused")]


def test_H1_a_plugin_may_not_proceed_with_another_call(run):
    async def other(call: Any, proceed: Any) -> Any:
        return await proceed(Call("c9.9.9", "look", {}, call.turn, call.step, look))

    played = play(run, execute("bad", other))
    assert played.outcomes == ["REFUSED_BY_FAULT"] and played.faults[0][0] == "bad"


def test_H1_a_plugin_may_answer_instead(run):
    async def instead(call: Any, proceed: Any) -> Any:
        return Outcome.text("from a cache")

    asked: list[str] = []
    guard = plugin("guard", tools_guard=lambda: asked.append("guard"))
    played = play(run, execute("cache", instead), guard)
    assert played.outcomes == ["from a cache"] and played.of(ev.ToolResulted)[0].by == "cache"
    assert not asked and not played.of(ev.ToolStarted), "guards are asked about what runs"


@pytest.mark.parametrize("seconds", [59, 61])
def test_H1_the_deadline_runs_only_outside_proceed(run, seconds):
    """A tool may take an hour; the plugin itself has 60 s in all."""

    @tool
    async def hour() -> str:
        """Take an hour."""
        await anyio.sleep(3600)
        return "done"

    async def slow(call: Any, proceed: Any) -> Any:
        await anyio.sleep(seconds / 2)
        outcome = await proceed(call)
        await anyio.sleep(seconds / 2)
        return outcome

    played = play(run, execute("slow", slow), turns=[call("hour"), "ok"], tools=[hour])
    assert played.outcomes == (["done"] if seconds < 60 else ["WITHHELD_BY_FAULT"])


def test_H1_inner_plugins_time_is_not_the_outer_ones(run):
    async def slow(call: Any, proceed: Any) -> Any:
        await anyio.sleep(50)
        return await proceed(call)

    played = play(run, execute("a", slow), execute("b", slow), execute("c", slow))
    assert played.outcomes == ["acted 1"] and not played.faults


def test_H1_limits_set_the_deadline(run):
    from checkrein.config.types import HarnessConfig, LimitsConfig

    async def slow(call: Any, proceed: Any) -> Any:
        await anyio.sleep(3)
        return await proceed(call)

    config = HarnessConfig(limits=LimitsConfig(hook_deadlines_s={"tools_execute": 2.0}))
    played = play(run, execute("slow", slow), config=config)
    assert played.outcomes == ["REFUSED_BY_FAULT"] and played.took_s == pytest.approx(2, abs=0.1)


def test_X6_proceed_again_for_an_effectful_call_is_AlreadyBegun(run):
    seen: list[str] = []

    async def again(call: Any, proceed: Any) -> Any:
        first = await proceed(call)
        try:
            await proceed(call)
        except Exception as exc:
            seen.append(type(exc).__name__)
        return first

    played = play(run, execute("again", again))
    assert played.outcomes == ["acted 1"] and seen == ["AlreadyBegun"] and not played.faults


def test_X6_an_uncaught_AlreadyBegun_withholds_the_result(run):
    async def again(call: Any, proceed: Any) -> Any:
        await proceed(call)
        return await proceed(call)

    played = play(run, execute("outer", through), execute("again", again), execute("inner", through))
    assert played.outcomes == ["WITHHELD_BY_FAULT"] and len(played.of(ev.ToolStarted)) == 1
    assert played.faults == [("again", "tools_execute", "refused")]


def test_X6_proceed_again_is_allowed_where_the_tool_did_not_begin(run):
    votes = [Deny("ask nicely"), Allow()]

    async def again(call: Any, proceed: Any) -> Any:
        first = await proceed(call)
        return await proceed(call) if first.is_error else first

    played = play(run, execute("again", again), plugin("guard", tools_guard=lambda: votes.pop(0)))
    assert played.outcomes == ["acted 1"] and len(played.of(ev.ToolStarted)) == 1


def test_X6_an_idempotent_tool_may_run_again(run):
    async def again(call: Any, proceed: Any) -> Any:
        await proceed(call)
        return await proceed(call.replace(n=2))

    played = play(run, execute("again", again), turns=[call("put"), "ok"])
    assert played.outcomes == ["put 2"] and [e.attempt for e in played.of(ev.ToolStarted)] == [1, 2]


@pytest.mark.parametrize(("name", "started"), [("act", 1), ("put", 2)])
def test_H4_proceed_twice_at_once(run, name, started):
    """An effectful tool begins once, whoever comes second; the deadline's clock stands still for both."""
    seen: list[str] = []

    async def slow_guard() -> None:
        await anyio.sleep(50)

    async def at_once(call: Any, proceed: Any) -> Any:
        outcomes: list[Any] = []

        async def one(n: int) -> None:
            try:
                await anyio.sleep(n)
                outcomes.append(await proceed(call))
            except Exception as exc:
                seen.append(type(exc).__name__)

        async with anyio.create_task_group() as group:
            group.start_soon(one, 0)
            group.start_soon(one, 20)
        return outcomes[0]

    played = play(
        run,
        execute("twice", at_once),
        execute("inner", through),
        plugin("guard", tools_guard=slow_guard),
        turns=[call(name), "ok"],
    )
    assert len(played.of(ev.ToolStarted)) == started and not played.faults
    assert seen == (["AlreadyBegun"] if started == 1 else [])
    assert played.outcomes[0].endswith(" 1")


def test_H4_proceed_after_the_hook_has_ended_is_refused(run):
    kept: list[Any] = []

    async def leaks(call: Any, proceed: Any) -> Any:
        kept.append((call, proceed))
        return Outcome.text("later")

    async def act_on(agent: Any) -> Any:
        result = await agent.run("go")
        with pytest.raises(RuntimeError, match="after the hook had ended"):
            await kept[0][1](kept[0][0])
        return result

    played = play(run, execute("leaks", leaks), act_on=act_on)
    assert played.outcomes == ["later"] and not played.of(ev.ToolStarted)


@pytest.mark.parametrize("shielded", [False, True])
def test_H4_proceed_after_a_cancellation_begins_nothing(run, shielded):
    """A plugin that holds on when the turn is cancelled cannot start the tool any more."""

    async def holds_on(call: Any, proceed: Any) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=shielded):
                return await proceed(call)  # noqa: B012 - it swallows its cancellation on purpose

    async def act_on(agent: Any) -> Any:
        receipt = agent.send("go")
        await anyio.sleep(1)
        agent.cancel()
        return await receipt.result()

    played = play(run, execute("holds on", holds_on), act_on=act_on)
    assert played.result.reason.kind == "cancelled"
    assert played.outcomes == ["NOT_STARTED"] and not played.of(ev.ToolStarted)


def test_H1_withheld_results_never_reach_the_model(run):
    async def leaks(call: Any, proceed: Any) -> Any:
        await proceed(call)
        raise ValueError("audit failed")

    played = play(run, execute("audit", leaks))
    seen = played.model.requests[1].messages[-1].content[0].text
    assert "acted 1" not in seen and "withheld" in seen and "audit failed" in seen


def test_H1_guards_are_asked_inside_the_innermost_proceed(run):
    order: list[str] = []

    async def wraps(call: Any, proceed: Any) -> Any:
        order.append("in")
        outcome = await proceed(call)
        order.append("out")
        return outcome

    play(run, plugin("guard", tools_guard=lambda: order.append("guard")), execute("w", wraps))
    assert order == ["in", "guard", "out"]


# --- votes ------------------------------------------------------------------------------------------------


def guard(name: str, vote: Any, asked: list[str]) -> Any:
    def tools_guard() -> Any:
        asked.append(name)
        return vote

    return plugin(name, tools_guard=tools_guard)


@pytest.mark.parametrize(
    ("votes", "code", "author", "count"),
    [
        ([None, Allow(), Allow()], "acted 1", None, 3),
        ([Allow(), Ask("?"), Deny("b"), Deny("c")], "DENIED", "g2", 3),
        ([Ask("first?"), Ask("second?"), Allow()], "DENIED", "g0", 3),
        ([Deny("a"), Allow()], "DENIED", "g0", 1),
    ],
)
def test_H1_the_strictest_vote_counts_and_the_first_of_its_rank_is_its_author(run, votes, code, author, count):
    asked: list[str] = []
    played = play(run, *[guard(f"g{n}", vote, asked) for n, vote in enumerate(votes)])
    assert played.outcomes == [code] and len(asked) == count, "a Deny ends the asking"
    authors = [e.plugin for e in (*played.of(ev.Decision), *played.of(ev.ApprovalAsked))]
    assert authors == ([author] if author else [])


def test_H5_a_guard_is_never_switched_off(run):
    calls = [call("act"), call("act"), call("act")]
    played = play(run, plugin("bad", tools_guard=raising()), turns=[calls, calls, "done"])
    assert played.outcomes == ["REFUSED_BY_FAULT"] * 6 and not played.of(ev.ToolStarted)
    assert {action for _, _, action in played.faults} == {"refused"}


def test_case_H12_the_same_guards_ask_about_nested_calls(run):
    from checkrein.tools import ToolContext

    @tool(read_only=True)
    async def agent_of_mine(context: ToolContext) -> str:
        """Use another tool."""
        return (await context.call("act", {"n": 7})).content[0].text

    deny = plugin("deny", tools_guard=lambda call: Deny("never") if call.name == "act" else None)
    played = play(run, deny, turns=[call("agent_of_mine"), "ok"], tools=[agent_of_mine, look, put, *_act()])
    assert played.outcomes == ["DENIED", "denied: never"] and len(played.of(ev.ToolStarted)) == 1


def _act() -> list[Any]:
    from hookkit import act

    return [act]


def test_case_H10_a_guard_that_cannot_start_refuses(run, tmp_path):
    """The guard's own process cannot start: its folder is gone. The tool does not run."""

    async def tools_guard(call: Any) -> Any:
        async with await anyio.open_process(["true"], cwd=tmp_path / "gone"):
            return Allow()

    if run.backend == "trio":

        async def tools_guard(call: Any) -> Any:  # trio's subprocesses need its own loop's signals
            raise FileNotFoundError(str(tmp_path / "gone"))

    played = play(run, plugin("shell", tools_guard=tools_guard), turns=[CALL, "ok"])
    assert played.outcomes == ["REFUSED_BY_FAULT"] and not played.of(ev.ToolStarted)


@pytest.mark.parametrize("ran", [False, True])
def test_O25_a_plugin_that_raises_already_begun_itself_is_at_fault(run, ran):
    async def own(call: Any, proceed: Any) -> Any:
        if ran:
            await proceed(call)
        raise AlreadyBegun("not by proceed")

    played = play(run, plugin("own", tools_execute=own))
    assert played.faults == [("own", "tools_execute", "refused")]
    assert played.outcomes == ["WITHHELD_BY_FAULT" if ran else "REFUSED_BY_FAULT"]


@pytest.mark.parametrize("how", ["as it is", "an equal copy", "other words", "asked inside"])
def test_H1_who_answers_in_other_words_than_the_tool_is_named(run, how):
    """The log says whose words the model reads; the tool has run, and says so by its start."""

    async def behind(call: Any, proceed: Any) -> Any:
        out = await proceed(call)
        if how == "an equal copy":
            return Outcome(list(out.content), out.is_error, out.error, out.value, out.decision, out.by)
        return out if how == "as it is" else Outcome.text("[redacted]")

    async def inside(call: Any, proceed: Any) -> Any:
        return Outcome.text("from a cache") if how == "asked inside" else await proceed(call)

    played = play(run, execute("redactor", behind), execute("cache", inside))
    (result,) = played.of(ev.ToolResulted)
    changed = how in ("other words", "asked inside")
    assert result.by == ("redactor" if changed else None)
    assert (played.outcomes == ["[redacted]"]) == changed
    assert len(played.of(ev.ToolStarted)) == (how != "asked inside")
