"""Values of the wrong kind, from callers, plugins and providers: whose error they are, and that the turn ends."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import anyio
import pytest
from loopkit import add, of, plugin, requested, results

from checkrein import Agent, Ask, Continue, Deny, ProviderError, Retry, Stop, TextDelta, ThinkingDelta, tool
from checkrein.calls import Outcome
from checkrein.chunks import (
    CallChunk,
    FinishChunk,
    MetadataChunk,
    OpaqueChunk,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from checkrein.codec import decode
from checkrein.events import Cause
from checkrein.messages import AssistantMessage, TextBlock
from checkrein.testing import call, error
from checkrein.testing.script import hang


@pytest.mark.parametrize("how", ["cancel", "stop", "budget"])
def test_L9_T2_a_cause_with_a_lone_surrogate_ends_the_turn(run, scripted, how):
    """As the name of a file that is no UTF-8 has them: cleaned at the border, or nothing could close the turn."""
    model = scripted(call("add", {"a": 1, "b": 2}), "ok")
    stop = Stop("bad \ud800", budget="b\ud800" if how == "budget" else None)

    def vote(agent: Any) -> Any:
        if how == "cancel":
            agent.cancel(Cause("hook", reason="bad \ud800"))
            return None
        return stop

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[plugin(turn_continuation=vote)]) as agent:
            with anyio.fail_after(10):
                return await agent.run("go")

    reason = run(main).reason
    assert reason.kind == "cancelled"
    assert reason.cause.reason == "bad \ufffd"
    assert reason.cause.which == ("b\ufffd" if how == "budget" else None)


def test_T3_a_cause_that_cannot_be_logged_is_refused_where_it_is_given(run, scripted):
    """It is the caller's error: the turn is not left without an end."""
    model = scripted(hang(), "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await requested(agent)
            for cause in (5, None, Cause("budget", limit=object()), Cause("hook", reason=5)):
                with pytest.raises((TypeError, ValueError)):
                    agent.cancel(cause)
            assert agent.turn.number == 1
            agent.cancel()
            return await receipt.result()

    assert run(main).reason.cause.kind == "user"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Stop(ValueError("no")),
        lambda: Stop("dear", budget="usd", limit=Decimal("1.5")),
        lambda: Continue(None, "more"),
    ],
    ids=["stop", "limit", "continue"],
)
def test_H1_a_vote_with_a_wrong_member_is_the_plugins_fault(run, scripted, make):
    """It is told where it is made, with the plugin's name, and never as `internal`."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(turn_continuation=lambda: make())]) as agent:
            return await agent.run("go")

    reason = run(main).reason
    assert (reason.kind, reason.error, reason.plugin) == ("error", "plugin", "probe")
    assert "expected" in reason.message


def test_H1_a_retry_with_a_wrong_member_is_contained(run, scripted):
    """As every fault of request_error: it counts as None."""
    model = scripted(error("boom"))

    async def main() -> Any:
        retry = plugin(request_error=lambda: Retry("5"))
        async with Agent(model, plugins=[retry]) as agent:
            return await agent.run("go"), of(agent, "plugin/fault")

    result, faults = run(main)
    assert (result.reason.kind, result.reason.error) == ("error", "generate")
    assert [(fault.plugin, fault.action) for fault in faults] == [("probe", "contained")]


@pytest.mark.parametrize("make", [lambda: Deny(ValueError("no")), lambda: Ask("may it?", 5)], ids=["deny", "ask"])
def test_H1_a_guards_vote_with_a_wrong_member_refuses_the_call(run, scripted, make):
    """The model is told that the tool did not run, and the fault has its author."""
    model = scripted(call("add", {"a": 1, "b": 2}), "ok")

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[plugin(tools_guard=lambda: make())]) as agent:
            await agent.run("go")
            return agent

    agent = run(main)
    assert results(agent) == [("c1.1.1", "REFUSED_BY_FAULT")]
    assert [fault.plugin for fault in of(agent, "plugin/fault")] == ["probe"]


OUTCOMES = {
    "content": lambda: Outcome("text"),
    "text": lambda: Outcome([TextBlock(3)]),
    "is_error": lambda: Outcome.text("x", is_error="yes"),
    "error": lambda: Outcome.text("x", error="E"),
    "decision": lambda: Outcome.text("x", decision=5),
    "by": lambda: Outcome.text("x", by=5),
    "cleaned": lambda: Outcome.text("x", cleaned="a"),
}


@pytest.mark.parametrize("who", ["instead", "behind", "tool"])
@pytest.mark.parametrize("make", OUTCOMES.values(), ids=OUTCOMES)
def test_L5_an_outcome_with_a_wrong_member_is_no_result(run, scripted, make, who):
    """The result that is logged instead says so, and can be read again; it was lost with a resume, or `internal`."""

    @tool(name="add")
    async def odd(a: int, b: int) -> Any:
        """Add."""
        return make() if who == "tool" else 3

    async def execute(call: Any, proceed: Any) -> Any:
        if who != "instead":
            outcome = await proceed(call)
        return outcome if who == "tool" else make()

    async def main() -> Any:
        model = scripted(call("add", {"a": 1, "b": 2}), "ok")
        async with Agent(model, tools=[odd], plugins=[plugin(tools_execute=execute)]) as agent:
            return agent, await agent.run("go")

    agent, result = run(main)
    assert result.reason.kind == "completed"
    code = {"instead": "REFUSED_BY_FAULT", "behind": "WITHHELD_BY_FAULT", "tool": "TOOL_ERROR"}[who]
    assert results(agent) == [("c1.1.1", code)]
    assert [type(decode(line)) for line in agent.session.lines] == [type(event) for event in agent.session.events]


@pytest.mark.parametrize(
    "options",
    [{"max_step": 3}, {"timeout": 5}, {"max_steps": "5"}, {"max_steps": -1}, {"settings": [1]}, {"model": 5}],
    ids=lambda options: str(*options.items()),
)
@pytest.mark.parametrize("how", ["run", "send", "stream"])
def test_I3_an_option_that_is_none_of_ours_is_refused_before_it_is_accepted(run, scripted, how, options):
    """A misspelt limit is no limit: the caller is told, and nothing is logged."""

    async def main() -> Any:
        async with Agent(scripted("ok")) as agent:
            with pytest.raises(ValueError, match="expected of the options"):
                if how == "run":
                    await agent.run("go", **options)
                elif how == "send":
                    agent.send("go", **options)
                else:
                    async with agent.stream("go", **options):
                        pass
            return agent

    assert not of(run(main), "inbox/accepted")


def test_I3_an_option_that_is_none_is_not_given(run, scripted):
    """As a program passes on what it was not told: the agent's own limit holds, and is not lifted."""
    model = scripted(call("add", {"a": 1, "b": 2}), "not reached")

    async def main() -> Any:
        async with Agent(model, tools=[add], max_steps=1) as agent:
            result = await agent.run("go", max_steps=None, model=None)
            return result, of(agent, "inbox/accepted")[0]

    result, accepted = run(main)
    assert (result.reason.kind, result.steps) == ("step_limit", 1)
    assert accepted.options is None


class Hands:
    """A provider that yields what it is handed."""

    name = "hands"

    def __init__(self, *chunks: Any) -> None:
        self.chunks = chunks

    def default_model(self) -> str:
        return "x"

    def missing(self) -> None:
        return None

    async def stream(self, request: Any) -> Any:
        for chunk in self.chunks:
            yield chunk


ODD_CHUNKS = {
    "no text": TextChunk(0, None),
    "no more text": TextChunk(7, None),
    "bytes": TextChunk(7, b"\xff"),
    "no thinking": ThinkingChunk(0, None),
    "arguments none": CallChunk(0, "id", "add", None),
    "arguments decoded": CallChunk(0, "id", "add", {"a": 1}),
    "usage as a dict": UsageChunk({"input": 3}),
    "opaque object": OpaqueChunk(0, object()),
    "metadata decoded": MetadataChunk({"a": 1}),
    "metadata unclean": MetadataChunk("\ud800"),
}


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("chunk", ODD_CHUNKS.values(), ids=list(ODD_CHUNKS))
def test_M2_a_chunk_with_a_wrong_member_is_the_streams_error(run, chunk, watched):
    """As a provider of one's own yields it: it is told what is wrong, the turn is balanced, and none is `internal`."""

    async def main() -> Any:
        async with Agent(Hands(TextChunk(7, "so far"), chunk, FinishChunk("stop")), tools=[add]) as agent:
            if not watched:
                return agent, await agent.run("go")
            async with agent.stream("go") as turn:
                texts = [item.text async for item in turn if isinstance(item, (TextDelta, ThinkingDelta))]
                assert texts == ["so far"]  # a consumer gets text or nothing
                return agent, await turn.result()

    agent, result = run(main)
    assert (result.reason.kind, result.reason.error, result.reason.code) == ("error", "stream", "PROTOCOL")
    assert len(of(agent, "request/end")) == 1
    assert not of(agent, "assistant/message") and not of(agent, "tool/call")


def test_M2_the_words_of_a_provider_error_may_be_numbers(run):
    """An HTTP status as its code, or a number as the request's id: the log holds text, and loads again."""

    class Fails(Hands):
        async def stream(self, request: Any) -> Any:
            raise ProviderError("busy", code=503, request_id=7)
            yield

    async def main() -> Any:
        async with Agent(Fails()) as agent:
            return agent, await agent.run("go")

    agent, result = run(main)
    assert (result.reason.error, result.reason.code) == ("generate", "503")
    assert [type(decode(line)) for line in agent.session.lines] == [type(event) for event in agent.session.events]


def test_M9_a_provider_that_raises_when_it_is_called_is_not_watched_as_a_stream(run):
    """`stream` need not be a generator: what it raises at once leaves no stream behind that brings nothing."""

    class Busy(Hands):
        calls = 0

        def stream(self, request: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise ProviderError("busy", retryable=True)
            return super().stream(request)

    async def main() -> Any:
        patient = plugin(request_error=lambda: Retry(3_600.0))  # longer than limits.stream_idle_s
        async with Agent(Busy(TextChunk(0, "at last"), FinishChunk("stop")), plugins=[patient]) as agent:
            return await agent.run("go")

    result = run(main)
    assert (result.reason.kind, result.text) == ("completed", "at last")


def test_M7_a_call_that_a_plugin_gives_twice_gets_an_id_of_its_own(run, scripted):
    """step_result puts the model's own call into the answer again: two calls, two ids, two results."""

    def twice(message: AssistantMessage) -> Any:
        return AssistantMessage([*message.calls, *message.calls]) if message.calls else None

    async def main() -> Any:
        model = scripted(call("add", {"a": 1, "b": 2}), "ok")
        async with Agent(model, tools=[add], plugins=[plugin(step_result=twice)]) as agent:
            (await agent.run("go")).check()
            return agent

    assert results(run(main)) == [("c1.1.1", "ok"), ("c1.1.2", "ok")]


def test_M9_a_retry_of_who_cancels_the_turn_is_none(run, scripted):
    """The cancel is looked at behind request_error: no further attempt is begun, or logged."""

    def leave(agent: Any) -> Retry:
        agent.cancel()
        return Retry()

    async def main() -> Any:
        async with Agent(scripted(error("boom"), "never"), plugins=[plugin(request_error=leave)]) as agent:
            return agent, await agent.run("go")

    agent, result = run(main)
    assert (result.reason.kind, len(of(agent, "request/start"))) == ("cancelled", 1)


@dataclass
class Share:
    of: dict[str, int]

    def __post_init__(self) -> None:
        self.part = 100 / self.of["whole"]


@pytest.mark.parametrize(
    ("of", "said"), [({}, "KeyError: 'whole'"), ({"whole": 0}, "ZeroDivisionError: division by zero")]
)
def test_M8_a_parameters_type_may_raise_anything(run, scripted, of, said):
    """It is an error result like every other refusal, and its siblings run: it ended the turn as internal."""
    ran = []

    @tool
    async def split(share: Share) -> str:
        ran.append(share)
        return "split"

    async def main() -> Any:
        calls = [call("add", {"a": 1, "b": 2}), call("split", {"share": {"of": of}})]
        async with Agent(scripted(calls, "ok"), tools=[add, split]) as agent:
            return await agent.run("go")

    result = run(main)
    assert result.ok and not ran
    added, refused = (event for event in result.events if event.type == "tool/result")
    assert not added.is_error
    assert refused.error.code == "INVALID_ARGUMENTS"
    assert f"not valid: {said}. Expected one JSON object" in refused.content[0].text
