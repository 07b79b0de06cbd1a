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
        async with Agent(model, tools=[add]) as agent:
            async with agent.stream("go") as turn:
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
