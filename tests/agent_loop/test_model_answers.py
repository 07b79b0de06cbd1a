"""M2-M4, M6-M8, M10, M11: a stream, the answer it makes, and what never becomes one."""

from __future__ import annotations

from typing import Any

import pytest
from loopkit import add, of, plugin, results, said, sent, types

from checkrein import Agent, Retry, tool
from checkrein.chunks import CallChunk, FinishChunk, MetadataChunk, TextChunk, ThinkingChunk, UsageChunk
from checkrein.messages import CallBlock, TextBlock, ThinkingBlock, Usage, content_text
from checkrein.testing import call, error, finish, metadata, text, thinking, torn, usage


def answer(agent: Any, n: int = 0) -> Any:
    """The content of its n-th answer."""
    return of(agent, "assistant/message")[n].content


# --- M2, M3, M4 ---------------------------------------------------------------------------------------------


def test_M2_one_assembler_makes_the_message(run, scripted):
    """Blocks in order of first sight, pieces joined, however interleaved."""
    model = scripted(
        [
            TextChunk(3, "a"),
            CallChunk(1, id="x", name="add", arguments="{"),
            TextChunk(3, "b"),
            CallChunk(1, arguments='"a":1,"b":2}'),
        ],
        "ok",
    )

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent:
            await agent.run("go")
            return agent

    agent = run(main)
    blocks = answer(agent)
    assert [type(block) for block in blocks] == [TextBlock, CallBlock]
    assert (blocks[0].text, blocks[1].arguments) == ("ab", '{"a":1,"b":2}')
    assert results(agent) == [("c1.1.1", "ok")]


@pytest.mark.parametrize(
    "chunks",
    [
        [TextChunk(0, "x"), FinishChunk("stop"), TextChunk(0, "late")],
        [TextChunk(0, "x"), ThinkingChunk(0, "y")],
        [TextChunk(0, "x"), UsageChunk(Usage(input=1)), UsageChunk(Usage(input=1))],
        [TextChunk(0, "x"), MetadataChunk("m", index=7)],
        [TextChunk(0, "x"), FinishChunk("because")],
        [TextChunk(0, "x"), UsageChunk(7)],  # type: ignore[arg-type]
    ],
)
def test_M2_a_stream_that_breaks_the_grammar_is_an_error(run, scripted, chunks):
    """Kind stream, code PROTOCOL; what was shown is kept, no answer."""

    class Broken:
        name = "broken"

        def stream(self, request: Any) -> Any:
            return self._play()

        async def _play(self) -> Any:
            for chunk in chunks:
                yield chunk

        def missing(self) -> None:
            return None

        def default_model(self) -> str:
            return "x"

        def window_tokens(self, model: str) -> None:
            return None

    async def main() -> Any:
        async with Agent(Broken()) as agent:
            return agent, await agent.run("go")

    agent, result = run(main)
    assert (result.reason.error, result.reason.code) == ("stream", "PROTOCOL")
    assert not of(agent, "assistant/message")
    assert of(agent, "assistant/partial")[0].text == "x"


def test_M3_what_comes_late_still_belongs_to_the_step(run, scripted):
    """Thinking, usage and metadata behind the text come before the answer event; done is the true end."""
    model = scripted([text("said"), thinking("afterthought"), metadata("bQ=="), usage(input=3, output=2)])

    async def main() -> Any:
        async with Agent(model) as agent:
            return agent, await agent.run("go")

    agent, result = run(main)
    order = types(agent)
    assert order.index("assistant/thinking") < order.index("request/end") < order.index("assistant/message")
    assert result.usage.output == 2
    assert [type(block) for block in answer(agent)] == [TextBlock, ThinkingBlock]


def test_M3_the_stream_is_read_to_its_end_behind_finish(run, scripted):
    """An error behind the terminal frame is an error of the step, not an answer (B7 rule 39)."""
    model = scripted([text("x"), finish("stop"), error("SERVER")], "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            first = await agent.run("go")
            return agent, first, await agent.run("on")

    agent, first, second = run(main)
    assert first.reason.kind == "error"
    assert second.ok
    assert len(of(agent, "assistant/message")) == 1


def test_M4_one_event_a_contiguous_burst_in_its_place(run, scripted):
    """Deltas live one by one; in the log a burst is one event, before what it precedes."""
    model = scripted([thinking("a b c", pieces=3), text("said"), thinking("d"), call("add", {"a": 1, "b": 1})], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent, agent.stream("go") as turn:
            return agent, [item.text async for item in turn if type(item).__name__ == "ThinkingDelta"]

    agent, live = run(main)
    assert len(live) == 4 and "".join(live) == "a b cd"
    assert [(e.index, e.text) for e in of(agent, "assistant/thinking")] == [(0, "a b c"), (2, "d")]
    assert [getattr(block, "index", None) for block in answer(agent)] == [0, None, 2, None]


# --- M6, M7, M8 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "turn",
    [
        [text("half"), call("add", {"a": 1, "b": 1}), torn()],
        [text("half"), call("add", {"a": 1, "b": 1}), error("SERVER")],
        [text("half"), call("add", raw='{"a": 1'), torn()],
    ],
)
def test_M6_a_failed_or_torn_stream_leaves_no_answer_and_runs_no_call(run, scripted, turn):
    """Also when a whole call had come already (trap X12)."""
    ran: list[int] = []

    @tool(name="add")
    async def counted(a: int, b: int) -> int:
        """Count."""
        ran.append(a)
        return a

    model = scripted(turn, "ok")

    async def main() -> Any:
        async with Agent(model, tools=[counted]) as agent:
            first = await agent.run("go")
            await agent.run("on")
            return agent, first

    agent, first = run(main)
    assert first.reason.kind in ("interrupted", "error")
    assert not ran and not of(agent, "tool/call")
    assert [e.text for e in of(agent, "assistant/partial")] == ["half"]
    assert sent(model.requests[1]) == ["user: go", "user: on"]


@pytest.mark.parametrize("reason", ["max_tokens", "content_filter", "refusal"])
def test_M6_a_truncated_answer_is_kept_as_text_and_all_its_calls_are_dropped(run, scripted, reason):
    """Whole calls too: nobody knows what was to follow (trap X13)."""
    turn = [text("I will"), call("add", {"a": 1, "b": 1}), call("add", raw='{"a": 1, "b'), finish(reason)]
    model = scripted(turn, "ok")

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent:
            first = await agent.run("go")
            await agent.run("on")
            return agent, first

    agent, first = run(main)
    assert (first.reason.kind, first.reason.error) == ("error", "max_tokens" if reason == "max_tokens" else "refused")
    assert [type(block) for block in answer(agent)] == [TextBlock]
    assert [entry["name"] for entry in of(agent, "assistant/message")[0].dropped] == ["add", "add"]
    assert not of(agent, "tool/call")
    assert sent(model.requests[1]) == ["user: go", "assistant: I will", "user: on"]


def test_M6_a_truncated_answer_with_nothing_left_gives_no_message(run, scripted):
    """Only calls, all dropped: the next request has no empty assistant message."""
    model = scripted([call("add", {"a": 1, "b": 1}), finish("max_tokens")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent:
            await agent.run("go")
            return await agent.run("on")

    assert run(main).ok
    assert sent(model.requests[1]) == ["user: go", "user: on"]


@pytest.mark.parametrize("ids", [[None, None], ["", ""], ["x", "x"], [1, 2], ["c1.1.2", "c1.1.1"]])
def test_M7_every_call_slot_gets_an_id_of_ours(run, scripted, ids):
    """Provider ids are labels: missing, empty, repeated, numbers, or like ours but crossed."""
    asked = [call("add", {"a": n, "b": 10}, id=label) for n, label in enumerate(ids)]
    model = scripted(asked, "ok")

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent:
            await agent.run("go")
            return agent

    agent = run(main)
    assert results(agent) == [("c1.1.1", "ok"), ("c1.1.2", "ok")]
    assert sent(model.requests[1])[-2:] == ["tool: 10", "tool: 11"]
    labels = [e.provider_call_id for e in of(agent, "tool/call")]
    assert labels == [None if not label else str(label) for label in ids] or None in ids


@pytest.mark.parametrize(
    "raw", ['{"a": 1', "[1, 2]", '"text"', "7", "null", '{"a": 1} {"b": 2}', '{"a": 1, "b": "x"}', "{}"]
)
def test_M8_arguments_that_do_not_fit_get_an_error_result_the_model_can_correct(run, scripted, raw):
    """The tool does not run; the text says what is wrong; the turn goes on."""
    ran: list[int] = []

    @tool(name="add")
    async def counted(a: int, b: int) -> int:
        """Count."""
        ran.append(a)
        return a + b

    model = scripted(call("add", raw=raw), call("add", {"a": 1, "b": 2}), "3")

    async def main() -> Any:
        async with Agent(model, tools=[counted]) as agent:
            return agent, await agent.run("go")

    agent, result = run(main)
    assert result.ok
    assert results(agent) == [("c1.1.1", "INVALID_ARGUMENTS"), ("c1.2.1", "ok")]
    assert ran == [1]
    assert len(content_text(of(agent, "tool/result")[0].content)) > 20
    assert of(agent, "tool/start")[0].call_id != "c1.1.1"


def test_M8_empty_arguments_mean_an_empty_object(run, scripted):
    """A tool without parameters, called with nothing (seed: empty args ran)."""
    ran: list[bool] = []

    @tool
    async def ping() -> str:
        """Ping."""
        ran.append(True)
        return "pong"

    model = scripted([call("ping", raw=""), call("ping", raw="  "), call("ping", raw="{}")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[ping]) as agent:
            await agent.run("go")
            return agent

    assert results(run(main)) == [("c1.1.1", "ok"), ("c1.1.2", "ok"), ("c1.1.3", "ok")]


def test_M8_an_unknown_tool_is_named_with_its_nearest_neighbour(run, scripted):
    """UNKNOWN_TOOL; also a call without a name."""
    model = scripted([call("ad", {"a": 1}), call("", {"a": 1})], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent:
            return agent, await agent.run("go")

    agent, result = run(main)
    assert result.ok
    assert results(agent) == [("c1.1.1", "UNKNOWN_TOOL"), ("c1.1.2", "UNKNOWN_TOOL")]
    assert all("expected one of add" in words for words in said(agent, "tool/result"))


def test_M8_where_there_are_no_tools_the_model_is_told_so(run, scripted):
    model = scripted(call("add", {"a": 1}), "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            return agent, await agent.run("go")

    agent, result = run(main)
    assert result.ok
    assert results(agent) == [("c1.1.1", "UNKNOWN_TOOL")]
    assert "expected one of (none)" in said(agent, "tool/result")[0]


# --- M10, M11 -----------------------------------------------------------------------------------------------


def test_M10_usage_is_a_fold_of_the_log_and_absent_is_absent(run, scripted):
    """Failed attempts count once; the result holds its turn's sum, the state the session's."""
    model = scripted(
        [text("x"), usage(input=10, cache_read=5, output=2), error("SERVER")],
        [call("add", {"a": 1, "b": 1}), usage(input=20, output=3, reasoning=1)],
        "no usage here",
        [text("y"), usage(input=1, output=1)],
    )

    async def main() -> Any:
        probe = plugin(request_error=lambda error: Retry())
        async with Agent(model, tools=[add], plugins=[probe]) as agent:
            return agent, await agent.run("go"), await agent.run("on")

    agent, one, two = run(main)
    assert (one.usage.input, one.usage.cache_read, one.usage.output, one.usage.reasoning) == (30, 5, 5, 1)
    assert two.usage.input == 1
    assert [e.usage is None for e in of(agent, "request/end")] == [False, False, True, False]
    from checkrein import UsageTracker

    tracker = UsageTracker()
    for event in agent.session.events:
        tracker.event(event)
    assert tracker.total().input == 31
    assert tracker.total() == agent.session.state.usage
    assert tracker.latest() == agent.session.state.usage_latest == of(agent, "request/end")[-1].usage


def test_M10_the_log_says_when_the_first_chunk_came_if_one_did(run, scripted):
    model = scripted("ok", error("SERVER"))

    async def main() -> Any:
        async with Agent(model) as agent:
            await agent.run("go")
            await agent.run("on")
            return of(agent, "request/end")

    answered, failed = run(main)
    assert 0 <= answered.ttft_ms <= answered.duration_ms
    assert failed.ttft_ms is None and failed.duration_ms >= 0


def test_M11_each_use_of_a_lenient_finish_is_logged(run, scripted):
    """What a server leaves out, its adapter says; the event shows it."""
    model = scripted([text("a"), FinishChunk("stop", lenient=True)], "b")

    async def main() -> Any:
        async with Agent(model) as agent:
            assert (await agent.run("go")).ok
            assert (await agent.run("on")).ok
            return agent

    assert [e.lenient_finish for e in of(run(main), "request/end")] == [True, False]


def test_M11_without_it_a_missing_frame_is_torn(run, scripted):
    """interrupted, retryable; never completed."""
    model = scripted([text("a"), torn()])
    seen: list[Any] = []

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(request_error=lambda error: seen.append(error))]) as agent:
            return await agent.run("go")

    assert run(main).reason.kind == "interrupted"
    assert (seen[0].code, seen[0].retryable) == ("TORN", True)


# --- step_result --------------------------------------------------------------------------------------------


def test_step_result_is_what_log_history_and_dispatch_see(run, scripted):
    """The replacement is the answer; the original stands beside it with the plugin's name (seed: review-fixes)."""
    from checkrein.messages import AssistantMessage

    model = scripted(call("add", {"a": 1, "b": 1}), "ok")

    def rewrite(message: Any) -> Any:
        if not message.calls:
            return None
        first = message.calls[0]
        return AssistantMessage([TextBlock("rewritten"), CallBlock(first.call_id, "add", '{"a": 20, "b": 20}')])

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[plugin(step_result=rewrite)]) as agent:
            await agent.run("go")
            return agent

    agent = run(main)
    event = of(agent, "assistant/message")[0]
    assert event.replaced["plugins"] == ["probe"]
    assert sent(model.requests[1])[1:] == ["assistant: rewritten", "tool: 40"]
