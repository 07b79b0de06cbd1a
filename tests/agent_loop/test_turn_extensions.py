"""T5: what goes on behind a final answer."""

from __future__ import annotations

from typing import Any

import pytest
from loopkit import add, of, plugin, reasons, results, said, sent

from checkrein import Agent, Continue, Stop
from checkrein.testing import call


def _steers(n: int) -> Any:
    """Steers at each of the first n answers."""
    left = [n]

    def step_result(agent: Any, message: Any) -> None:
        if left[0]:
            left[0] -= 1
            agent.steer(f"s{left[0]}")

    return plugin("steers", step_result=step_result)


def test_T5_steering_that_waits_extends_the_turn(run, scripted):
    """A final answer is not the end while steering waits: it is in the next request of the same turn."""
    model = scripted("first", "second")

    async def main() -> Any:
        async with Agent(model, plugins=[_steers(1)]) as agent:
            result = await agent.run("go")
            return agent, result

    agent, result = run(main)
    assert (result.text, result.steps, reasons(agent)) == ("second", 2, ["completed"])
    assert said(agent, "steering/message") == ["s0"]
    assert sent(model.requests[1]) == ["user: go", "assistant: first", "user: s0"]


def test_T5_steering_extends_at_most_so_often_in_a_row(run, scripted):
    """Behind max_steering_extensions the rest becomes queued input, with its id and its mark."""
    from checkrein.testing import forever

    model = scripted(forever("ok"))

    async def main() -> Any:
        async with Agent(model, plugins=[_steers(4)], max_steering_extensions=2) as agent:
            await agent.run("go")
            await agent.idle()
            return agent

    agent = run(main)
    first, second = of(agent, "turn/end")
    assert (first.steps, first.reason.kind) == (3, "completed")
    left = [event for event in of(agent, "user/message") if event.turn == 2]
    accepted = {event.id: event.kind for event in of(agent, "inbox/accepted")}
    assert [(event.mark, accepted[event.id]) for event in left] == [("steering", "steering")]
    assert second.reason.kind == "completed"


def test_T5_tool_calls_begin_the_count_of_extensions_anew(run, scripted):
    """`in a row` means without tool calls between."""
    model = scripted("a", call("add", {"a": 1, "b": 1}), "b", "c")

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[_steers(3)], max_steering_extensions=1) as agent:
            result = await agent.run("go")
            await agent.idle()
            return agent, result

    agent, result = run(main)
    assert result.steps == 4
    assert reasons(agent) == ["completed"]


def test_T5_stop_beats_waiting_steering(run, scripted):
    """After a final answer Stop ends the turn `completed`; the steering becomes the next turn's."""
    model = scripted("first", "second")
    votes = [Stop("enough")]
    probe = plugin(turn_continuation=lambda agent: votes.pop() if votes else None)

    async def main() -> Any:
        async with Agent(model, plugins=[probe, _steers(1)]) as agent:
            result = await agent.run("go")
            await agent.idle()
            return agent, result

    agent, result = run(main)
    assert (result.reason.kind, result.steps) == ("completed", 1)
    assert [(event.turn, event.mark) for event in of(agent, "user/message")] == [(1, None), (2, "steering")]
    decision = of(agent, "decision")[0]
    assert (decision.hook, decision.outcome, decision.reason, decision.plugin) == (
        *("turn_continuation", "stop", "enough", "probe"),
    )


def test_T5_stop_after_tool_calls_is_a_cancel_by_the_hook(run, scripted):
    """Cause hook with plugin and reason; the calls keep their results."""
    model = scripted(call("add", {"a": 1, "b": 2}))
    probe = plugin(turn_continuation=lambda agent: Stop("too expensive"))

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[probe]) as agent:
            return await agent.run("go"), results(agent)

    result, answered = run(main)
    cause = result.reason.cause
    assert (result.reason.kind, cause.kind, cause.plugin, cause.reason) == (
        *("cancelled", "hook", "probe", "too expensive"),
    )
    assert answered == [("c1.1.1", "ok")]


def test_T5_continue_is_logged_as_context_from_the_plugin(run, scripted):
    """Continue brings content; the model reads who says it."""
    model = scripted("one", "two")
    votes = [Continue("not done", "check the tests")]
    probe = plugin(turn_continuation=lambda agent: votes.pop() if votes else None)

    async def main() -> Any:
        async with Agent(model, plugins=[probe]) as agent:
            result = await agent.run("go")
            return agent, result

    agent, result = run(main)
    assert (result.text, result.steps) == ("two", 2)
    context = of(agent, "context/message")[0]
    assert (context.source.kind, context.source.name, context.plugin) == ("plugin", "probe", "probe")
    assert model.requests[1].messages[-1].content[0].text == "[from probe] check the tests"
    assert of(agent, "decision")[0].outcome == "continue"


@pytest.mark.parametrize(
    ("content", "words"), [("", "expected input"), ([], "expected input"), (" \n", ""), ([object()], ""), (7, "")]
)
def test_T5_continue_with_content_that_says_nothing_is_the_plugins_fault(run, scripted, content, words):
    """Nothing, blank text, or what is no content at all: the turn ends error, kind plugin, and never one of our own."""
    model = scripted("one", "two")
    votes: list[Any] = [Continue("more", content)]
    probe = plugin(turn_continuation=lambda agent: votes.pop() if votes else None)

    async def main() -> Any:
        async with Agent(model, plugins=[probe]) as agent:
            bad = await agent.run("go")
            assert (await agent.run("go")).ok
            return bad.reason

    reason = run(main)
    assert (reason.kind, reason.error, reason.plugin) == ("error", "plugin", "probe")
    assert words in reason.message
