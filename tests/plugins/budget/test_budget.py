"""Budgets of a turn, and circles in it, in a running agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein import Agent, AgentLike, AgentSpec, Continue, TurnResult, hookimpl, tool
from checkrein.events import ToolResulted
from checkrein.results import exit_code
from checkrein.testing import ScriptedModel, call, forever, hang, text, usage
from checkrein_budget import Plugin, find_circle
from checkrein_invariants import check_events

count = 0


@tool(read_only=True)
def lookup(query: str = "") -> str:
    """The same answer for the same question."""
    return f"about {query}"


@tool(read_only=True)
def search(query: str = "") -> str:
    """Another one."""
    return f"found {query}"


@tool(read_only=True)
def poll() -> str:
    """A different answer each time."""
    global count
    count += 1
    return f"{count} done"


@tool(read_only=True)
async def sleep(seconds: float) -> str:
    """Sleeps."""
    await anyio.sleep(seconds)
    return "slept"


TOOLS: list[Any] = [lookup, search, poll, sleep]


def config(**values: Any) -> Plugin:
    return Plugin(Plugin.Config(**{"max_repeats": 0, "max_malformed": 0, **values}))


async def one_turn(plugin: Plugin, turns: list[Any], *more: object) -> TurnResult:
    async with Agent(ScriptedModel(*turns), tools=TOOLS, plugins=[plugin, *more], max_steps=0) as agent:
        result = await agent.run("go")
        assert not check_events(agent.session.events)
        return result


def ask(query: str) -> Any:
    return call("lookup", {"query": query})


def cause(result: TurnResult) -> tuple[str, str | None, float | None]:
    assert result.reason.kind == "cancelled" and result.reason.cause is not None, result.reason
    assert result.reason.cause.plugin == "budget" and exit_code(result) == 7
    return result.reason.cause.kind, result.reason.cause.which, result.reason.cause.limit


# --- limits -----------------------------------------------------------------------------------------


def test_T4_steps(run: Callable[..., Any]) -> None:
    result = run(one_turn, config(max_steps=3), [forever(call("poll"))])
    assert cause(result) == ("budget", "steps", 3) and result.steps == 3


def test_case_L07_exactly_enough_is_completed(run: Callable[..., Any]) -> None:
    script = [call("poll"), call("poll"), "done"]
    result = run(one_turn, config(max_steps=3, max_calls=2), script)
    assert result.reason.kind == "completed" and result.text == "done"


def test_case_L05_a_budget_is_named_and_the_next_turn_goes_on(run: Callable[..., Any]) -> None:
    async def main() -> None:
        model = ScriptedModel(call("poll"), call("poll"), call("poll"), "finished")
        async with Agent(model, tools=TOOLS, plugins=[config(max_steps=2)]) as agent:
            first = await agent.run("go")
            assert cause(first) == ("budget", "steps", 2)
            assert sum(isinstance(event, ToolResulted) for event in first.events) == 2
            second = await agent.run("continue")
            assert second.ok and second.text == "finished"

    run(main)


def test_calls_beyond_the_budget_are_refused(run: Callable[..., Any]) -> None:
    batch = [call("poll")] * 2
    result = run(one_turn, config(max_calls=3), [batch, batch, "never"])
    assert cause(result) == ("budget", "calls", 3)
    decisions = [event.decision for event in result.events if isinstance(event, ToolResulted)]
    assert decisions == [None, None, None, "deny"]
    assert result.reason.cause is not None and result.reason.cause.used == 4


def test_tokens_are_those_of_the_turn(run: Callable[..., Any]) -> None:
    async def main() -> None:
        turn: list[Any] = [[call("poll"), usage(input=40, cache_read=10, cache_write=5, output=5)]] * 2
        model = ScriptedModel(*turn, [text("done"), usage(input=1)], *turn, *turn)
        async with Agent(model, tools=TOOLS, plugins=[config(max_tokens=200)]) as agent:
            assert (await agent.run("go")).ok
            result = await agent.run("go")
            assert cause(result) == ("budget", "tokens", 200) and result.steps == 4

    run(main)


def test_calls_of_an_answer_that_used_up_the_tokens_are_refused(run: Callable[..., Any]) -> None:
    """The budget is over before the step is: nothing more is begun in it."""
    result = run(one_turn, config(max_tokens=50), [[call("poll"), usage(input=60)]])
    assert cause(result) == ("budget", "tokens", 50)
    (answer,) = [event for event in result.events if isinstance(event, ToolResulted)]
    assert answer.decision == "deny" and "no further calls in this turn" in answer.content[0].text


def test_large_counts_are_told_in_full(run: Callable[..., Any]) -> None:
    answers: list[Any] = [[call("poll"), usage(input=1_234_567)]]
    result = run(one_turn, config(max_tokens=1_000_000), answers)
    assert result.reason.cause_text == "budget the turn's budget of tokens is used up: 1234567 of 1000000"


def test_time_ends_between_steps(run: Callable[..., Any]) -> None:
    result = run(one_turn, config(max_time_s=10), [forever(call("sleep", {"seconds": 4}))])
    assert cause(result) == ("budget", "time_s", 10)


@pytest.mark.parametrize("stuck", [call("sleep", {"seconds": 10_000}), hang()])
def test_time_cancels_what_hangs(run: Callable[..., Any], stuck: Any) -> None:
    async def main() -> None:
        model = ScriptedModel([stuck], "fine")
        async with Agent(model, tools=TOOLS, plugins=[config(max_time_s=10)]) as agent:
            began = anyio.current_time()
            result = await agent.run("go")
            assert cause(result) == ("budget", "time_s", 10)
            assert 10 <= anyio.current_time() - began < 11
            assert (await agent.run("go on")).ok

    run(main)


def test_the_clock_of_a_turn_does_not_reach_the_next(run: Callable[..., Any]) -> None:
    async def main() -> None:
        script: list[Any] = [call("sleep", {"seconds": 8}), "done"]
        async with Agent(ScriptedModel(*script * 3), tools=TOOLS, plugins=[config(max_time_s=10)]) as agent:
            for _ in range(3):
                assert (await agent.run("go")).ok

    run(main)


def test_H6_an_agent_has_a_budget_of_its_own(run: Callable[..., Any]) -> None:
    async def main() -> None:
        model = ScriptedModel(forever(call("poll")))
        async with Agent(model, tools=TOOLS, plugins=[Plugin]) as first:
            spec = AgentSpec(id="second", model=first.spec.model, plugins={"budget": {"max_steps": 2}})
            agent: AgentLike = await first.harness.create_agent(spec)
            assert cause(await agent.run("go")) == ("budget", "steps", 2)

    run(main)


# --- circles ----------------------------------------------------------------------------------------


def test_case_L01_a_block_that_repeats_is_found(run: Callable[..., Any]) -> None:
    block = [ask("a"), call("search", {"query": "b"})]
    result = run(one_turn, config(max_repeats=3), block * 10)
    assert cause(result) == ("budget", "repeats", 3) and result.steps == 6
    assert "the same 2 steps came 3 times" in (result.reason.cause_text)


def test_case_L01_progress_is_no_circle(run: Callable[..., Any]) -> None:
    assert run(one_turn, config(max_repeats=3), [ask(str(n)) for n in range(9)] + ["done"]).ok
    assert run(one_turn, config(max_repeats=3), [call("poll")] * 9 + ["done"]).ok, "results differ"


def test_case_L02_the_same_call_for_ever(run: Callable[..., Any]) -> None:
    result = run(one_turn, Plugin(), [forever([text("Let me try again."), ask("x")])])
    assert cause(result) == ("budget", "repeats", 5) and result.steps == 5


def test_spelling_of_arguments_does_not_hide_a_circle(run: Callable[..., Any]) -> None:
    spelt = ['{"query":"x"}', '{ "query" : "x" }', '{"query":"\\u0078"}']
    result = run(one_turn, config(max_repeats=3), [call("lookup", raw=raw) for raw in spelt] + ["done"])
    assert cause(result) == ("budget", "repeats", 3)


def test_polling_tools_may_repeat(run: Callable[..., Any]) -> None:
    polls = config(max_repeats=3, polling=("look*",))
    assert run(one_turn, polls, [ask("x")] * 9 + ["done"]).ok
    other = call("search", {"query": "b"})
    for step in (other, [ask("x"), other]):
        assert cause(run(one_turn, polls, [step] * 9 + ["done"]))[1] == "repeats", "others may not, also beside one"
    assert run(one_turn, polls, [other, ask("x")] * 9 + ["done"]).ok, "what is looked at between polls is no circle"


@pytest.mark.parametrize("broken", [call("lookup", raw="{bad"), call("nothing", {}), call("lookup", {"wrong": 1})])
def test_case_L03_the_same_broken_call_for_ever(run: Callable[..., Any], broken: Any) -> None:
    result = run(one_turn, config(max_repeats=3), [forever(broken)])
    assert cause(result) == ("budget", "repeats", 3)


def test_case_L03_ever_new_broken_calls(run: Callable[..., Any]) -> None:
    script = [call("lookup", raw="{" + "x" * n) for n in range(20)]
    result = run(one_turn, Plugin(), script)
    assert cause(result) == ("budget", "malformed", 5) and result.steps == 5


def test_one_good_call_ends_the_row_of_broken_ones(run: Callable[..., Any]) -> None:
    script = [*(call("lookup", raw="{" + "x" * n) for n in range(4)), ask("x")] * 2
    assert run(one_turn, Plugin(), [*script, "done"]).ok


def test_case_L09_a_continuation_for_ever_is_ended(run: Callable[..., Any]) -> None:
    class Nagger:
        @hookimpl
        def turn_continuation(self) -> Continue:
            return Continue("more", "go on")

    result = run(one_turn, config(max_repeats=3), [forever("I am done.")], Nagger)
    assert result.ok and result.steps == 3, "a final answer that a plugin would not accept is one all the same"


def test_parallel_batches_are_compared_whole(run: Callable[..., Any]) -> None:
    batch = [ask("a"), call("search", {"query": "b"})]
    assert cause(run(one_turn, config(max_repeats=3), [batch] * 5))[1] == "repeats"
    assert run(one_turn, config(max_repeats=3), [batch, batch, [batch[0]], batch, batch, "done"]).ok


@given(st.lists(st.sampled_from([b"a", b"b", None]), max_size=20), st.integers(1, 4), st.integers(2, 4))
def test_circles_are_what_they_are(steps: list[bytes | None], max_period: int, times: int) -> None:
    found = find_circle(steps, max_period, times)
    naive = [
        period
        for period in range(1, max_period + 1)
        if len(steps) >= period * times
        and all(steps[-i] is not None and steps[-i] == steps[-i - period] for i in range(1, period * (times - 1) + 1))
    ]
    assert (found.period if found else None) == (naive[0] if naive else None)


@pytest.mark.parametrize(
    "values",
    [
        {"max_steps": -1},
        {"max_time_s": float("nan")},
        {"max_repeats": 1},
        {"max_repeats": -2},
        {"max_period": 0},
        {"max_period": 21},
    ],
)
def test_impossible_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Plugin.Config(**values)
