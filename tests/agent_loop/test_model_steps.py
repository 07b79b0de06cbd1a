"""M1-M11: one model request, its stream, its answer, and what never becomes one."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import add, of, plugin, reasons, results, said, sent, types

from checkrein import Agent, Retry, tool
from checkrein.chunks import CallChunk, FinishChunk, MetadataChunk, TextChunk, ThinkingChunk, UsageChunk
from checkrein.messages import CallBlock, OpaqueBlock, TextBlock, ThinkingBlock, Usage, content_text
from checkrein.prompt import Section
from checkrein.testing import call, error, finish, forever, metadata, opaque, text, thinking, torn, usage, wait


def answer(agent: Any, n: int = 0) -> Any:
    """The content of its n-th answer."""
    return of(agent, "assistant/message")[n].content


# --- M1 -------------------------------------------------------------------------------------------------------


def test_M1_the_agents_prompt_is_the_last_section_and_empty_ones_are_dropped(run, scripted):
    """Sections in ascending order, ties by registration, then the agent's own."""
    model = scripted("ok")

    def sections(harness: Any) -> list[Section]:
        return [
            Section("late", "late", order=200),
            Section("empty", ""),
            Section("named", lambda agent: f"you are {agent.id}", order=10),
            Section("tie a", "a"),
            Section("tie b", "b"),
            Section("silent", lambda agent: ""),
        ]

    async def main() -> Any:
        async with Agent(model, system_prompt="own", plugins=[plugin(prompt_sections=sections)]) as agent:
            await agent.run("go")
            return agent

    agent = run(main)
    assert model.requests[0].system == ("you are main", "a", "b", "late", "own")
    parts = {e.id: e.content for e in of(agent, "prompt/part")}
    assert [parts[part] for part in of(agent, "request/header")[0].system] == list(model.requests[0].system)


def test_M1_no_prompt_and_no_tools_is_an_empty_request_head(run, scripted):
    """Nothing is invented."""
    model = scripted("ok")

    async def main() -> None:
        async with Agent(model) as agent:
            await agent.run("go")

    run(main)
    request = model.requests[0]
    assert (request.system, tuple(request.tools), sent(request)) == ((), (), ["user: go"])


def test_M1_tools_stand_in_a_stable_order(run, scripted):
    """The same in every request, whatever the order of registration did; the header is written once."""
    model = scripted(call("add", {"a": 1, "b": 2}), "ok", "ok")

    @tool
    async def zebra() -> str:
        """Z."""
        return "z"

    async def main() -> Any:
        async with Agent(model, tools=[zebra, add]) as agent:
            await agent.run("go")
            await agent.run("on")
            return agent

    agent = run(main)
    names = [[schema.name for schema in request.tools] for request in model.requests]
    assert names[0] == names[1] == names[2]
    assert sorted(names[0]) == ["add", "zebra"]
    assert len(of(agent, "request/header")) == 1


def test_M1_a_changed_head_is_logged_with_its_reason(run, scripted):
    """initial, then change; parts are written once per distinct content."""
    model = scripted("a", "b", "c")
    words = ["one", "two", "one"]

    def sections(harness: Any) -> list[Section]:
        return [Section("word", lambda agent: words[len(model.requests)])]

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(prompt_sections=sections)]) as agent:
            for _ in range(3):
                await agent.run("go")
            return agent

    agent = run(main)
    assert [request.system for request in model.requests] == [("one",), ("two",), ("one",)]
    assert [e.reason for e in of(agent, "request/header")] == ["initial", "change", "change"]
    assert len(of(agent, "prompt/part")) == 2


def test_M1_next_request_shows_it_without_sending_or_logging(run, scripted):
    """Equal to what is sent next, but for the input; the log does not move."""
    model = scripted("ok", "ok")

    async def main() -> None:
        async with Agent(model, tools=[add], system_prompt="own", settings={"temperature": 0}) as agent:
            await agent.run("go")
            before = len(agent.session.events)
            shown = agent.next_request()
            assert len(agent.session.events) == before
            assert len(model.requests) == 1
            await agent.run("on")
            real = model.requests[1]
            assert sent(shown) == ["user: go"]  # a request never ends with an answer: nothing is owed now
            assert sent(real) == ["user: go", "assistant: ok", "user: on"]
            assert (shown.system, shown.tools, shown.settings) == (real.system, real.tools, real.settings)
            assert (shown.provider, shown.model) == (real.provider, real.model)

    run(main)


def test_M1_agent_request_has_the_last_word(run, scripted):
    """It may change messages, settings and model; the edit is logged with its author."""
    model = scripted("a", "b")

    def cut(request: Any) -> Any:
        if len(request.messages) > 1:
            return request.replace(messages=tuple(request.messages)[-1:], settings={"temperature": 1})
        return None

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(agent_request=cut)]) as agent:
            await agent.run("go")
            await agent.run("on")
            return agent

    agent = run(main)
    assert sent(model.requests[1]) == ["user: on"]
    starts = of(agent, "request/start")
    assert starts[0].edits is None
    assert starts[1].edits["plugin"] == "probe"
    assert starts[1].messages == 1


def test_M1_a_plugin_that_leaves_nothing_to_send_ends_the_turn(run, scripted):
    """An empty history is never sent."""
    model = scripted("later")

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(agent_request=lambda request: request.replace(messages=()))]) as agent:
            first = await agent.run("go")
            agent.harness.plugins.unregister("probe")
            return first, await agent.run("on")

    first, second = run(main)
    assert (first.reason.error, first.reason.code) == ("generate", "EMPTY_REQUEST")
    assert second.ok


# --- M2, M3, M4 ---------------------------------------------------------------------------------------------------


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


# --- M5 -------------------------------------------------------------------------------------------------------------


def test_M5_opaque_data_goes_back_byte_for_byte_in_its_place(run, scripted):
    """Thinking's signature, the text's, the call's, the message's, and a part nobody knows."""
    model = scripted(
        [
            thinking("hm", metadata="sig+/=="),
            text("said", metadata="t"),
            opaque({"odd": [1, None, {"x": "\u00e9"}]}),
            call("add", {"a": 1, "b": 1}, metadata="c"),
            metadata("whole", message=True),
        ],
        "ok",
    )

    async def main() -> None:
        async with Agent(model, tools=[add]) as agent:
            await agent.run("go")

    run(main)
    back = model.requests[1].messages[1]
    kinds = {type(block): block for block in back.content}
    assert kinds[ThinkingBlock].provider_metadata == "sig+/=="
    assert kinds[TextBlock].provider_metadata == "t"
    assert kinds[CallBlock].provider_metadata == "c"
    assert kinds[OpaqueBlock].data == {"odd": [1, None, {"x": "\u00e9"}]}
    assert back.provider_metadata == "whole"
    assert [type(block) for block in back.content] == [ThinkingBlock, TextBlock, OpaqueBlock, CallBlock]


def test_M5_and_never_to_another_provider(run, scripted):
    """Another provider gets text and calls, nothing it cannot know."""
    from checkrein.config.types import AgentConfig, HarnessConfig
    from checkrein.harness import Harness

    first = scripted([thinking("hm", metadata="secret"), text("said", metadata="t"), opaque({"x": 1})], name="one")
    second = scripted("ok", name="two")

    async def main() -> None:
        config = HarnessConfig(agents=(AgentConfig(id="main", model="one:m"),))
        async with Harness(config=config, providers=[first, second], found=[]) as house:
            agent = house.agents["main"]
            await agent.run("go")
            assert (await agent.run("on", model="two:m")).ok

    run(main)
    back = second.requests[0].messages[1]
    assert content_text(back.content) == "said"
    # Both are named, so that an adapter leaves out what is not its own.
    assert (back.provider, second.requests[0].provider) == ("one", "two")


# --- M6, M7, M8 -----------------------------------------------------------------------------------------------------


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
    assert "add" in content_text(of(agent, "tool/result")[0].content)


# --- M9 -------------------------------------------------------------------------------------------------------------


def test_M9_a_retry_is_a_new_attempt_of_the_same_step(run, scripted):
    """Logged with its number; nothing of the failed attempt reaches answer, history or tools; consumers get a reset."""
    model = scripted([thinking("t"), text("half"), call("add", {"a": 9, "b": 9}), error("SERVER")], "whole", "next")
    seen: list[int] = []

    def retry(error: Any, attempt: int) -> Any:
        seen.append(attempt)
        return Retry(after_s=2) if attempt < 3 else None

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[plugin(request_error=retry)]) as agent:
            live: list[str] = []
            before = anyio.current_time()
            async with agent.stream("go") as turn:
                async for item in turn:
                    kind = type(item).__name__
                    if kind in ("TextDelta", "ThinkingDelta", "StepReset"):
                        live.append(f"{kind}:{getattr(item, 'text', '')}{getattr(item, 'attempt', '')}")
                result = await turn.result()
            waited = anyio.current_time() - before
            await agent.run("on")
            return agent, result, live, waited

    agent, result, live, waited = run(main)
    assert (result.text, result.steps, seen) == ("whole", 1, [1])
    assert waited >= 2
    assert live == ["ThinkingDelta:t", "TextDelta:half", "StepReset:2", "TextDelta:whole"]
    assert [(e.attempt, e.outcome) for e in of(agent, "request/end")][:2] == [(1, "error"), (2, "ok")]
    assert not of(agent, "tool/call")
    assert sent(model.requests[2]) == ["user: go", "assistant: whole", "user: on"]


def test_M9_the_first_answer_wins_and_none_fails_the_turn(run, scripted):
    """Plugins are asked in order; a fault counts as None."""
    model = scripted(error("SERVER"), "ok", error("SERVER"))
    asked: list[str] = []

    def boom(error: Any) -> Any:
        asked.append("boom")
        raise ValueError("no")

    def first(error: Any) -> Any:
        asked.append("first")
        return Retry() if asked.count("first") < 2 else None

    async def main() -> Any:
        plugins = [plugin("first", request_error=first), plugin("boom", request_error=boom)]
        async with Agent(model, plugins=plugins) as agent:
            return agent, await agent.run("go"), await agent.run("on")

    agent, one, two = run(main)
    assert one.ok
    assert (two.reason.kind, two.reason.code) == ("error", "SERVER")
    assert {e.action for e in of(agent, "plugin/fault")} == {"contained"}


def test_M9_a_plugin_that_always_retries_is_bounded(run, scripted):
    """Attempts have a limit of their own."""
    model = scripted(forever(error("SERVER")))

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(request_error=lambda error: Retry())]) as agent:
            return await agent.run("go")

    result = run(main)
    assert (result.reason.error, result.reason.code) == ("generate", "ATTEMPTS")
    assert len(model.requests) == 20


# --- M10, M11 ---------------------------------------------------------------------------------------------------------


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


# --- step_result ------------------------------------------------------------------------------------------------------


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


def test_I5_source_of_the_first_request_after_an_error_is_kept(run, scripted):
    """A failed turn's input stays in the history."""
    model = scripted(error("SERVER"), [wait(1), text("ok")])

    async def main() -> Any:
        async with Agent(model) as agent:
            await agent.run("a")
            await agent.run("b")
            return agent

    agent = run(main)
    assert sent(model.requests[1]) == ["user: a", "user: b"]
    assert reasons(agent) == ["error", "completed"]
    assert said(agent) == ["a", "b"]
