"""L9: what users and models say, however it is written, is cleaned at the border and counted."""

from __future__ import annotations

from typing import Any

import pytest
from hostile import BACKENDS, BIG, STRINGS, clean, of, played, replaced

from checkrein import tool
from checkrein.chunks import CallChunk, FinishChunk, TextChunk, ThinkingChunk
from checkrein.errors import RefusedAtAppend
from checkrein.events import AssistantAnswer, AssistantThinking, InboxAccepted, ToolResulted
from checkrein.messages import Source, content_text
from checkrein.testing import call, error

# --- input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", sorted(STRINGS))
def test_L9_input_is_cleaned_and_counted(name: str, backend: str) -> None:
    value = f"say {STRINGS[name]}"

    async def act(agent: Any) -> Any:
        agent.steer(value)
        agent.inject(value, source=Source("plugin", name=value))
        receipt = agent.send("first")
        agent.replace(receipt.id, value)
        agent.send(value)
        return await agent.run(value)

    session, result = played(act, backend=backend, system_prompt=value)
    assert result.ok
    for event in of(session, InboxAccepted)[:-1]:
        if content_text(event.content) != "first":
            assert content_text(event.content) == clean(value)
            assert event.cleaned == (replaced(value) * (2 if event.source.name else 1) or None)


@pytest.mark.parametrize("name", sorted(STRINGS))
def test_L9_I3_a_clients_key_is_kept_or_refused_but_not_changed(name: str) -> None:
    """Cleaned, two keys might become one."""

    async def act(agent: Any) -> Any:
        try:
            return agent.send("a", key=STRINGS[name]).id == agent.send("b", key=STRINGS[name]).id
        except RefusedAtAppend:
            return replaced(STRINGS[name]) > 0 or name == "split pair"

    _, kept = played(act)
    assert kept


@pytest.mark.parametrize("nothing", ["", "   ", "\n\t"])
def test_L9_input_without_anything_to_read_is_refused(nothing: str) -> None:
    async def act(agent: Any) -> Any:
        for accept in (agent.send, agent.steer, agent.inject):
            with pytest.raises(ValueError, match="expected"):
                accept(nothing)

    session, _ = played(act)
    assert len(of(session, InboxAccepted)) == 1


def test_L9_ten_megabytes_of_input() -> None:
    session, result = played(lambda agent: agent.run(BIG))
    assert result.ok
    assert content_text(of(session, InboxAccepted)[0].content) == BIG


# --- what the model says ----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", sorted(STRINGS))
def test_L9_answers_thinking_and_partials(name: str, backend: str) -> None:
    value = STRINGS[name]
    chunks = [ThinkingChunk(0, value), TextChunk(1, "x"), TextChunk(1, value)]

    async def act(agent: Any) -> Any:
        return await agent.run("go"), await agent.run("go")

    session, results = played(act, [*chunks, FinishChunk("stop")], [*chunks, error(ValueError(value))], backend=backend)
    assert results[0].text == "x" + clean(value)
    assert of(session, AssistantAnswer)[0].cleaned == (replaced(value) or None)
    assert of(session, AssistantThinking)[0].text == clean(value)
    assert results[1].reason.kind == "error"


@pytest.mark.parametrize("kind", ["text", "thinking", "arguments"])
def test_L9_a_pair_split_over_chunks_is_joined(kind: str) -> None:
    """The two halves come in two chunks; the stream may also end between them."""
    halves = ("\ud83c", "\udf0d")
    if kind == "text":
        whole: list[Any] = [TextChunk(0, half) for half in halves]
    elif kind == "thinking":
        whole = [*(ThinkingChunk(0, half) for half in halves), TextChunk(1, "x")]
    else:
        whole = [CallChunk(0, None, "echo", '{"text":"'), *(CallChunk(0, arguments=half) for half in halves)]
        whole.append(CallChunk(0, arguments='"}'))
    heard: list[str] = []

    @tool(read_only=True)
    def echo(text: str) -> str:
        """Say it back."""
        heard.append(text)
        return text

    session, _ = played(lambda agent: agent.run("go"), [*whole, FinishChunk("stop")], tools=[echo])
    answer = of(session, AssistantAnswer)[0]
    assert answer.cleaned is None
    if kind == "text":
        assert content_text(answer.content) == "🌍"
    elif kind == "thinking":
        assert of(session, AssistantThinking)[0].text == "🌍"
    else:
        assert heard == ["🌍"]
        assert content_text(of(session, ToolResulted)[0].content) == "🌍"


ARGUMENTS = {
    "escaped lone": '{"text":"\\ud83c"}',
    "raw lone": '{"text":"\ud83c"}',
    "nul": '{"text":"\\u0000"}',
    "raw control": '{"text":"\x01"}',
    "nan": '{"text":NaN}',
    "infinity": '{"text":-Infinity}',
    "huge number": '{"text":1e999}',
    "deep": '{"text":' + "[" * 50_000 + "]" * 50_000 + "}",
    "unclosed": '{"text":' + "[" * 50_000,
    "twice": '{"text":"a","text":"b"}',
    "trailing": '{"text":"a"} x',
    "not an object": '"text"',
    "big": '{"text":"' + BIG + '"}',
    "lone key": '{"\\ud83c":"a"}',
    "bom": '\ufeff{"text":"a"}',
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_L9_M8_arguments_run_or_are_told_what_is_wrong(name: str, backend: str) -> None:
    @tool(read_only=True)
    def echo(text: str) -> str:
        """Say it back."""
        assert isinstance(text, str)
        return text

    session, result = played(
        lambda agent: agent.run("go"), call("echo", raw=ARGUMENTS[name]), tools=[echo], backend=backend
    )
    assert result.ok
    outcome = of(session, ToolResulted)[0]
    assert outcome.error is None or outcome.error.code == "INVALID_ARGUMENTS"


def test_L9_tool_names_that_nobody_has() -> None:
    for name in (*STRINGS.values(), "n" * 100_000, ""):
        session, result = played(
            lambda agent: agent.run("go"), [CallChunk(0, name, name, "{}"), FinishChunk("tool_calls")]
        )
        assert result.ok
        assert of(session, ToolResulted)[0].error.code == "UNKNOWN_TOOL"
