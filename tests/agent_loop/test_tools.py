"""X1, X2, C1, C2, C10: how the calls of a step run at once, fail alone, and are cancelled; under virtual time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from callkit import Meter, alone, codes, nap, of, play, text_of

from checkrein import Agent, AgentSpec, tool
from checkrein import events as ev
from checkrein.calls import Outcome
from checkrein.messages import ToolMessage, content_text
from checkrein.testing import ScriptedModel, call
from checkrein.tools import ToolContext

# --- X1: the pool -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 16])
def test_X1_at_most_so_many_calls_at_once(run, limit):
    meter = Meter()
    calls = [nap(f"n{i}") for i in range(6)]
    result, events, took = play(run, calls, "done", tools=meter.tools(), max_parallel_tool_calls=limit)
    assert result.ok
    assert meter.most == min(limit, 6)
    assert took == pytest.approx(-(-6 // min(limit, 6)), abs=0.01)
    assert [text for _, text in codes(events)] == ["ok"] * 6


def test_X1_the_default_is_four(run):
    meter = Meter()
    play(run, [nap(f"n{i}") for i in range(9)], "done", tools=meter.tools())
    assert meter.most == 4


def test_X1_the_pool_rolls_a_slow_call_keeps_one_place_only(run):
    meter = Meter()
    calls = [nap("slow", 5), *[nap(f"n{i}") for i in range(5)]]
    _, _, took = play(run, calls, "done", tools=meter.tools(), max_parallel_tool_calls=2)
    assert took == pytest.approx(5, abs=0.01)


def test_X1_an_exclusive_tool_runs_alone_in_its_place(run):
    meter = Meter()
    calls = [nap("a"), nap("b"), alone("x"), nap("c"), alone("y"), alone("z"), nap("d")]
    result, events, _ = play(run, calls, "done", tools=meter.tools())
    assert result.ok
    for name in "xyz":
        assert [names for names in meter.together if name in names] == [{name}]
    end = {name: span[1] for name, span in meter.spans.items()}
    begin = {name: span[0] for name, span in meter.spans.items()}
    assert max(end["a"], end["b"]) <= begin["x"] <= end["x"] <= begin["c"] <= end["c"] <= begin["y"] <= begin["z"]
    assert [call_id for call_id, _ in codes(events)] == [f"c1.1.{n}" for n in range(1, 8)]


def test_X1_what_finishes_early_is_logged_at_once_and_answered_in_order(run):
    meter = Meter()
    _, events, _ = play(run, [nap("first", 3), nap("second", 1), nap("third", 2)], "done", tools=meter.tools())
    told = [
        (type(e).__name__, e.call_id, getattr(e, "end", None))
        for e in events
        if type(e) in (ev.ToolEnded, ev.ToolResulted)
    ]
    second, third = (e.seq for e in of(events, ev.ToolEnded))
    assert told == [
        ("ToolEnded", "c1.1.2", None),
        ("ToolEnded", "c1.1.3", None),
        ("ToolResulted", "c1.1.1", None),
        ("ToolResulted", "c1.1.2", second),
        ("ToolResulted", "c1.1.3", third),
    ]
    assert [e.content is None for e in of(events, ev.ToolResulted)] == [False, True, True]


def test_X1_all_calls_are_logged_before_the_first_starts(run):
    meter = Meter()
    _, events, _ = play(run, [nap("a"), nap("b")], "done", tools=meter.tools())
    kinds = [e.type for e in events if e.type.startswith("tool/")]
    assert kinds[:3] == ["tool/call", "tool/call", "tool/start"]


def test_X1_the_model_gets_the_results_in_its_own_order(run):
    meter = Meter()
    model = ScriptedModel([nap("a", 3), nap("b", 2), nap("c", 1)], "done")

    async def main() -> None:
        async with Agent(model, tools=meter.tools()) as agent:
            await agent.run("go")

    run(main)
    messages = [m for m in model.requests[1].messages if type(m) is ToolMessage]
    assert [content_text(m.content) for m in messages] == ["a", "b", "c"]


def test_X1_a_seed_never_changes_the_order_of_results(seeds):
    from checkrein.testing import run_seeded

    async def main() -> Any:
        meter = Meter()
        calls = [nap(f"n{i}", 1) for i in range(5)]
        async with Agent(ScriptedModel(calls, "done"), tools=meter.tools(), max_parallel_tool_calls=3) as agent:
            await agent.run("go")
            return [call_id for call_id, _ in codes(agent.session.events)]

    for seed in seeds:
        assert run_seeded(main, seed=seed) == [f"c1.1.{n}" for n in range(1, 6)]


# --- X2: errors ---------------------------------------------------------------------------------------------


def raising(exc: BaseException) -> Any:
    @tool(read_only=True)
    async def bad() -> None:
        """Fail."""
        raise exc

    return bad


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("no"),
        SystemExit(3),
        GeneratorExit(),
        ExceptionGroup("many", [ValueError("a"), KeyError("b")]),
        BaseExceptionGroup("many", [SystemExit(1), GeneratorExit()]),
        StopAsyncIteration(),
        MemoryError(),
        RecursionError(),
        type("Odd", (BaseException,), {})("odd"),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_X2_any_exception_is_an_error_result_and_siblings_keep_theirs(run, exc):
    meter = Meter()
    result, events, _ = play(run, [nap("a"), call("bad"), nap("b", 2)], "done", tools=[*meter.tools(), raising(exc)])
    assert result.ok
    assert codes(events) == [("c1.1.1", "ok"), ("c1.1.2", "TOOL_ERROR"), ("c1.1.3", "ok")]
    failed = next(e for e in (*of(events, ev.ToolEnded), *of(events, ev.ToolResulted)) if e.call_id == "c1.1.2")
    assert failed.error.name == type(exc).__name__ and text_of(failed)


def test_case_T03_a_tool_that_cancels_itself_keeps_its_siblings_results(run):
    @tool
    async def task(n: int) -> str:
        """The child of one is cancelled."""
        await anyio.sleep(n)
        if n == 2:
            raise anyio.get_cancelled_exc_class()()
        return f"task {n}"

    calls = [call("task", {"n": n}) for n in (1, 2, 3)]
    if run.backend == "trio":
        pytest.skip("trio's Cancelled cannot be made by hand")
    result, events, _ = play(run, calls, "done", tools=[task])
    assert result.ok
    assert codes(events) == [("c1.1.1", "ok"), ("c1.1.2", "OUTCOME_UNKNOWN"), ("c1.1.3", "ok")]
    assert [e.plugin for e in of(events, ev.PluginFaulted)] == ["task"]


def test_case_T02_no_tool_outlives_its_turn(run):
    """A failing sibling neither stops the others nor leaves them running behind the turn's end."""
    meter = Meter()
    written: list[int] = []

    @tool
    async def shell() -> str:
        """Write a file, later."""
        await anyio.sleep(1)
        written.append(1)
        return "written"

    async def act(agent: Any) -> Any:
        result = await agent.run("go")
        before = len(written)
        await anyio.sleep(10)
        assert len(written) == before
        return result

    result, events, _ = play(
        run, [call("bad"), call("shell")], "done", tools=[raising(ValueError("x")), shell, *meter.tools()], act=act
    )
    assert result.ok and written == [1]
    end = next(e.seq for e in events if type(e) is ev.TurnEnd)
    assert all(e.seq < end for e in of(events, ev.ToolResulted))


def test_C10_a_keyboard_interrupt_of_a_tool_closes_the_turn_and_reaches_the_waiter(run):
    meter = Meter()
    seen: list[str] = []

    async def act(agent: Any) -> Any:
        with pytest.raises(KeyboardInterrupt):
            await agent.run("go")
        seen.extend(e.type for e in agent.session.events)
        return of(agent.session.events, ev.TurnEnd)[0]

    end, events, _ = play(run, [nap("a"), call("bad")], tools=[*meter.tools(), raising(KeyboardInterrupt())], act=act)
    assert (end.reason.kind, end.reason.cause.kind) == ("cancelled", "signal")
    assert codes(events) == [("c1.1.1", "OUTCOME_UNKNOWN"), ("c1.1.2", "OUTCOME_UNKNOWN")]


def test_outcomes_pass_through(run):
    @tool
    async def mine() -> Outcome:
        """An outcome of its own."""
        return Outcome.text("mine", value={"n": 1})

    _, events, _ = play(run, call("mine"), "done", tools=[mine])
    assert of(events, ev.ToolResulted)[0].value == {"n": 1}


# --- C1, C2 -------------------------------------------------------------------------------------------------


def test_C2_cancelled_calls_are_answered_in_honest_words_and_finished_ones_keep_their_result(run):
    meter = Meter()

    async def act(agent: Any) -> Any:
        receipt = agent.send("go")
        await anyio.sleep(2)
        agent.cancel()
        return await receipt.result()

    calls = [nap("quick", 1), nap("slow", 9), nap("waits"), nap("never")]
    result, events, took = play(run, calls, tools=meter.tools(), act=act, max_parallel_tool_calls=1)
    assert result.reason.kind == "cancelled" and took == pytest.approx(2, abs=0.01)
    assert [code for _, code in codes(events)] == ["ok", "OUTCOME_UNKNOWN", "NOT_STARTED", "NOT_STARTED"]


def test_C2_a_finished_call_behind_an_open_one_keeps_its_result_when_cancelled(run):
    meter = Meter()

    async def act(agent: Any) -> Any:
        receipt = agent.send("go")
        await anyio.sleep(2)
        agent.cancel()
        return await receipt.result()

    _, events, _ = play(run, [nap("slow", 9), nap("quick", 1)], tools=meter.tools(), act=act)
    assert codes(events) == [("c1.1.1", "OUTCOME_UNKNOWN"), ("c1.1.2", "ok")]


@pytest.mark.parametrize("calls", [1, 2])
def test_C2_a_cancel_before_the_first_call_begins_none(run, calls):
    """Also where nothing suspends between the answer and its calls."""
    meter = Meter()

    async def act(agent: Any) -> Any:
        agent.session.observe(lambda event: agent.cancel() if type(event) is ev.ToolCalled else None)
        return await agent.run("go")

    result, events, _ = play(run, [nap("a")] * calls, "never", tools=meter.tools(), act=act)
    assert result.reason.kind == "cancelled" and not of(events, ev.ToolStarted)
    assert [code for _, code in codes(events)] == ["NOT_STARTED"] * calls


def test_C1_a_cancel_is_heard_between_calls_that_never_suspend(run):
    ran: list[int] = []

    @tool
    async def quick(context: ToolContext, n: int) -> None:
        """Cancel at the second."""
        ran.append(n)
        if n == 2:
            context.agent.cancel()

    calls = [call("quick", {"n": n}) for n in range(1, 6)]
    result, events, _ = play(run, calls, "never", tools=[quick], max_parallel_tool_calls=1)
    assert result.reason.kind == "cancelled" and ran == [1, 2]
    assert [code for _, code in codes(events)] == ["ok", "ok", "NOT_STARTED", "NOT_STARTED", "NOT_STARTED"]


def test_M8_a_tool_the_agent_may_not_use_is_unknown_to_it(run):
    """The harness has it, for others: it is neither shown nor run."""
    meter = Meter()
    model = ScriptedModel([nap("a"), call("ping")], "ok", record=True)
    ran: list[str] = []

    @tool
    async def ping() -> str:
        """Ping."""
        ran.append("ping")
        return "pong"

    async def main() -> Any:
        async with Agent(model, tools=[*meter.tools(), ping]) as other:
            agent = await other.harness.create_agent(AgentSpec(id="modest", model="scripted:model", tools=("na*",)))
            return await agent.run("go")

    result = run(main)
    assert result.ok and not ran
    assert [code for _, code in codes(result.events)] == ["ok", "UNKNOWN_TOOL"]
    assert [schema.name for schema in model.requests[0].tools] == ["nap"]
    told = of(result.events, ev.ToolEnded)[0]  # while the first one runs
    assert (told.call_id, told.error.code) == ("c1.1.2", "UNKNOWN_TOOL")
    assert "expected one of nap" in content_text(told.content)
