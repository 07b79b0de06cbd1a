"""L9, L2: text that JSON cannot carry, and values that are no JSON, at every border: cleaned, refused with a path, or told.

Each case runs a turn of a real agent whose next turn must work; behind it every line of the log is strict
UTF-8 JSON that loads as the same event, and what was replaced is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from checkrein_invariants import check_events, validate_history
from figures import count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein import Agent, Deny, Outcome, hookimpl, tool
from checkrein.chunks import CallChunk, FinishChunk, TextChunk, ThinkingChunk
from checkrein.codec import decode
from checkrein.errors import RefusedAtAppend
from checkrein.events import AssistantAnswer, AssistantThinking, InboxAccepted, PluginFaulted, ToolResulted
from checkrein.messages import Source, content_text
from checkrein.session import Session
from checkrein.testing import ScriptedModel, call, error, forever, run_virtual, text

LONE = "a \ud83c b"
NUL = "a \x00 b"
BIG = "x" * 10_000_000
DEEP: Any = "bottom"
for _ in range(5_000):
    DEEP = [DEEP]
STRINGS = {
    "lone high": LONE,
    "lone low": "\udf0d",
    "reversed pair": "\udf0d\ud83c",
    "split pair": "\ud83c\udf0d",
    "nul": NUL,
    "controls": "".join(map(chr, range(32))) + "\x7f\x85\u2028\u2029",
    "noncharacters": "\ufffe\uffff\U0010ffff",
    "replacement": "\ufffd",
    "bidi": "\u202e\u2066",
}
BACKENDS = ("asyncio", "trio")


class Unspeakable(Exception):
    """Its text cannot be had while an agent runs; pytest may read it."""

    mute = False

    def __str__(self) -> str:
        if Unspeakable.mute:
            raise SystemExit("no text")
        return "(no text)"

    __repr__ = __str__


def intact(session: Session) -> None:
    """The log is right, its bytes are strict JSON, and they load as what was written."""
    assert [str(v) for v in check_events(session.events)] == []
    for event, line in zip(session.events, session.lines, strict=True):
        read = json.loads(line.decode("utf-8"), parse_constant=lambda word: pytest.fail(f"{word} in the log"))
        assert read["type"] == event.type
        assert decode(line) == event
    assert validate_history(session.state.history.view()) == []
    loaded = Session.load("again", [decode(line) for line in session.lines], session.lines)
    assert list(loaded.state.history.messages) == list(session.state.history.messages)


def played(
    act: Callable[[Any], Any], *turns: Any, tools: Any = (), plugins: Any = (), backend: str = "asyncio", **spec: Any
) -> tuple[Session, Any]:
    """Play turns of the model against `act(agent)`, then a plain turn."""

    async def main() -> tuple[Session, Any]:
        model = ScriptedModel(*turns, forever("fine"))
        async with Agent(model, tools=tools, plugins=plugins, **spec) as agent:
            result = await act(agent)
            await agent.idle()
            assert (await agent.run("and now?")).ok
            assert model.opened == model.closed
            return agent.session, result

    Unspeakable.mute = True
    try:
        session, result = run_virtual(main, backend=backend)
    finally:
        Unspeakable.mute = False
    intact(session)
    count("text: hostile values through a turn")
    return session, result


def of(session: Session, kind: type) -> list[Any]:
    """The events of a kind."""
    return [event for event in session.events if type(event) is kind]


def clean(value: str) -> str:
    """What a string must become."""
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def replaced(value: str) -> int:
    """How many characters of it cannot be kept."""
    return clean(value).count("\ufffd") - value.count("\ufffd")


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


# --- what tools return and raise --------------------------------------------------------------------

OUTPUTS: dict[str, Any] = {
    **STRINGS,
    "big": BIG,
    "nan": float("nan"),
    "infinity": {"a": [float("inf")]},
    "deep": DEEP,
    "bytes": b"\xff\xfe\x00",
    "lone in a list": {LONE: [LONE, {"x": LONE}]},
    "int keys": {1: "a", None: "b"},
    "huge int": 10**5_000,
    "set": {1, 2},
    "object": object(),
    "type": Unspeakable,
    "generator": (n for n in range(3)),
    "none": None,
    "empty": "",
    "surrogate bytes": "\udcff".encode("utf-8", "surrogatepass"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_L9_any_value_of_a_tool_becomes_a_result(name: str, backend: str) -> None:
    @tool
    async def give() -> Any:
        """Give something."""
        return OUTPUTS[name]

    session, result = played(lambda agent: agent.run("go"), call("give"), tools=[give], backend=backend)
    assert result.ok
    outcome = of(session, ToolResulted)[0]
    assert len(session.lines[outcome.seq]) < 200_000  # capped (X5)
    if name in STRINGS and replaced(STRINGS[name]):
        assert content_text(outcome.content) == clean(STRINGS[name])
        assert outcome.cleaned == replaced(STRINGS[name])


@pytest.mark.parametrize("name", sorted(STRINGS))
def test_L9_text_in_a_tools_own_outcome(name: str) -> None:
    """An Outcome is checked like any value; halves of a pair are joined in it too."""

    @tool
    async def give() -> Any:
        """Give something."""
        return Outcome.text(STRINGS[name])

    session, result = played(lambda agent: agent.run("go"), call("give"), tools=[give])
    assert result.ok
    outcome = of(session, ToolResulted)[0]
    assert not outcome.is_error
    if name not in ("nul", "controls"):  # those are described as binary (X5)
        assert content_text(outcome.content) == clean(STRINGS[name])
    assert outcome.cleaned == (replaced(STRINGS[name]) or None)


def cyclic() -> Any:
    """A list that holds itself."""
    out: list[Any] = []
    out.append(out)
    return out


def test_L9_a_value_that_holds_itself_is_an_error_result() -> None:
    @tool
    def give() -> Any:
        """Give something."""
        return cyclic()

    _, result = played(lambda agent: agent.run("go"), call("give"), tools=[give])
    assert result.ok


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("where", ["tool", "thread", "provider", "hook", "observer", "guard"])
@pytest.mark.parametrize("what", ["unspeakable", "lone", "big"])
def test_L9_exceptions_whose_text_cannot_be_had(where: str, what: str, backend: str) -> None:
    """str(exc) may raise, even SystemExit; it may hold surrogates, or ten megabytes."""

    def make() -> Exception:
        return {"unspeakable": Unspeakable, "lone": lambda: ValueError(LONE), "big": lambda: OSError(BIG)}[what]()

    @tool(name="fails")
    async def fails_async() -> str:
        """Raise."""
        raise make()

    @tool(name="fails")
    def fails_sync() -> str:
        """Raise."""
        raise make()

    class Plugin:
        name = "breaks"
        left = 1

        def fail(self, here: str) -> None:
            if where == here and self.left:
                self.left -= 1
                raise make()

        @hookimpl
        async def agent_request(self, request: Any) -> None:
            self.fail("hook")

        @hookimpl
        def session_event(self, event: Any) -> None:
            if event.type == "step/start":
                self.fail("observer")

        @hookimpl
        def tools_guard(self, call: Any) -> Any:
            self.fail("guard")
            return Deny(LONE) if where == "guard" else None

    first = [text("x"), error(make())] if where == "provider" else call("fails")
    tools = [fails_sync if where == "thread" else fails_async]
    session, result = played(lambda agent: agent.run("go"), first, tools=tools, plugins=[Plugin()], backend=backend)
    assert result.reason.error != "internal"
    assert max(map(len, session.lines)) < 200_000
    assert bool(of(session, PluginFaulted)) == (where in ("hook", "observer", "guard"))


# --- plugins' own events ----------------------------------------------------------------------------

FREE = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "bytes": b"x",
    "set": {1},
    "object": object(),
    "int keys": {1: "a"},
    "tuple": (1, 2),
}


@pytest.mark.parametrize("name", sorted(FREE))
def test_L2_what_is_no_json_is_refused_with_its_path(name: str) -> None:
    async def act(agent: Any) -> Any:
        before = len(agent.session)
        try:
            agent.session.append_free("mine/thing", {"a": [{"b": FREE[name]}]})
        except RefusedAtAppend as exc:
            assert "a" in str(exc) and "b" in str(exc)  # noqa: PT018
            assert len(agent.session) == before
        else:
            assert name in ("int keys", "tuple")  # what JSON can carry is made plain
        return await agent.run("go")

    _, result = played(act)
    assert result.ok


@pytest.mark.parametrize("name", sorted(STRINGS))
def test_L9_plugins_events_are_cleaned_and_counted(name: str) -> None:
    value = STRINGS[name]

    async def act(agent: Any) -> Any:
        fields = {"a": value, "message": {"role": "user", "content": f"note {value}"}}
        agent.session.append_free("mine/thing", fields, plugin="mine")
        return await agent.run("go")

    session, result = played(act)
    assert result.ok
    event = next(event for event in session.events if event.type == "mine/thing")
    assert event.fields["a"] == clean(value)
    assert event.fields.get("cleaned") == (2 * replaced(value) or None)


def test_L2_deep_and_cyclic_plugin_events_are_refused_or_shortened() -> None:
    async def act(agent: Any) -> Any:
        for value in (DEEP, cyclic()):
            try:
                agent.session.append_free("mine/thing", {"a": value})
            except RefusedAtAppend:
                pass
        return await agent.run("go")

    _, result = played(act)
    assert result.ok


# --- anything ---------------------------------------------------------------------------------------

ANY_TEXT = st.text(st.characters(codec=None), max_size=30)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(said=ANY_TEXT, pieces=st.lists(ANY_TEXT, max_size=4), given_=ANY_TEXT, raised=ANY_TEXT)
def test_L9_any_text_anywhere(said: str, pieces: list[str], given_: str, raised: str) -> None:
    """Any str at all, surrogates included, at every border at once."""

    @tool
    async def give() -> str:
        """Give something."""
        return given_

    @tool
    async def fails() -> str:
        """Raise."""
        raise ValueError(raised)

    turn = [*(TextChunk(0, piece) for piece in pieces), call("give"), call("fails"), call("give", raw=said)]
    _, result = played(lambda agent: agent.run("go " + said), turn, tools=[give, fails])
    assert result.ok
