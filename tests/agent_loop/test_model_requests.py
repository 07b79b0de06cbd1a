"""M1, M5, M9: what is sent to a model, what goes back to it untouched, and sent again."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import add, of, plugin, reasons, said, sent

from checkrein import Agent, Retry, Source, tool
from checkrein.events import CompactionEnd, CompactionStart, CompactionSummary, ContextInput
from checkrein.messages import CallBlock, OpaqueBlock, TextBlock, ThinkingBlock, UserMessage, content_text
from checkrein.prompt import Section
from checkrein.requests import rebuild
from checkrein.testing import call, error, forever, metadata, opaque, text, thinking, wait

# --- M1 -----------------------------------------------------------------------------------------------------


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


def _note(session: Any) -> None:
    session.append_free("probe/note", {"message": {"role": "user", "content": "noted"}})


def _summary(session: Any, last: int) -> None:
    fields: dict[str, Any] = {"id": "k1", "range": (0, last)}
    message = {"role": "user", "content": [{"type": "text", "text": "in short"}]}
    session.append(CompactionStart(**fields))
    session.append(CompactionSummary(**fields, message=message, tokens_before=9, tokens_after=1))
    session.append(CompactionEnd(**fields, outcome="ok"))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("left alone", ["user: go", "assistant: a", "user: on", "user: noted"]),
        ("cut", ["user: (cut)", "user: on", "user: noted"]),
        ("cut, as a tuple", ["user: (cut)", "user: on", "user: noted"]),
        ("rewritten", ["user: mine"]),
        ("context", ["user: go", "assistant: a", "user: on", "user: noted"]),
        ("summary", ["user: in short", "user: on"]),
        ("cut and summary", ["user: (cut)", "user: on"]),
        ("observed", ["user: go", "assistant: a", "user: on", "user: noted"]),
    ],
)
def test_L7_what_is_logged_while_a_request_is_made_is_a_part_of_it(run, scripted, how, expected):
    """A plugin that takes a note inside `agent_request`, or beside it: the model reads it, and the digest says so."""
    model = scripted("a", "b", "c", record=True)

    def meddle(agent: Any, turn: int, request: Any) -> Any:
        if turn != 2 or how == "observed":
            return None
        session = agent.session
        if how == "context":
            session.append(ContextInput(turn=turn, step=1, content=[TextBlock("noted")], source=Source("user")))
        elif "summary" in how:
            _summary(session, request.seqs[1])
        else:
            _note(session)
        if how.startswith("cut"):
            cut = request.drop(0, 1, "(cut)")
            return cut.replace(messages=tuple(cut.messages)) if "tuple" in how else cut
        return request.replace(messages=[UserMessage([TextBlock("mine")])]) if how == "rewritten" else None

    def observe(session: Any, event: Any) -> None:
        if how == "observed" and event.type == "request/header" and event.turn == 2:
            _note(session)

    def settings(turn: int, request: Any) -> Any:
        return request.replace(settings={"turn": turn})  # so that each turn logs a header

    async def main() -> Any:
        plugins = [plugin(agent_request=meddle, session_event=observe), plugin("last", agent_request=settings)]
        async with Agent(model, plugins=plugins) as agent:
            for words in ("go", "on", "and on"):
                (await agent.run(words)).check()
            return agent

    agent = run(main)
    assert sent(model.requests[1]) == expected
    for start, request in zip(of(agent, "request/start"), model.requests, strict=True):
        rebuilt, digest = rebuild(agent.session.events, start.seq)
        assert digest == start.digest and start.messages == len(request.messages)
        assert list(rebuilt.messages) == list(request.messages)
    if how != "summary" and how != "cut and summary":
        assert "user: noted" in sent(model.requests[2])


# --- M5 -----------------------------------------------------------------------------------------------------


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


# --- M9 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_s", [0.5, 2])
def test_M9_a_retry_is_a_new_attempt_of_the_same_step(run, scripted, after_s):
    """Logged with its number; nothing of the failed attempt reaches answer, history or tools; consumers get a reset."""
    model = scripted([thinking("t"), text("half"), call("add", {"a": 9, "b": 9}), error("SERVER")], "whole", "next")
    seen: list[int] = []

    def retry(error: Any, attempt: int) -> Any:
        seen.append(attempt)
        return Retry(after_s=after_s) if attempt < 3 else None

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
    assert waited >= after_s
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
    """Attempts have a limit of their own; nobody waits behind the last, and the reason says why it failed."""
    model = scripted(forever([text("so"), error("SERVER", "the disk is full")]))

    async def main() -> Any:
        last = lambda attempt: Retry(after_s=1_000.0 if attempt == 20 else 0.0)  # noqa: E731
        async with Agent(model, plugins=[plugin(request_error=last)]) as agent:
            began = anyio.current_time()
            return await agent.run("go"), anyio.current_time() - began

    result, took_s = run(main)
    assert (result.reason.error, result.reason.code) == ("stream", "ATTEMPTS")
    assert "the disk is full" in result.reason.message
    assert took_s < 100.0
    assert len(model.requests) == 20


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
