"""The strict validators: right histories pass in all forms, broken ones are found, any JSON gets an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein.messages import AssistantMessage, CallBlock, MediaBlock, Message, TextBlock, ToolMessage, UserMessage
from checkrein_invariants import (
    to_anthropic,
    to_openai_chat,
    to_openai_responses,
    validate_anthropic,
    validate_history,
    validate_messages,
    validate_openai_chat,
    validate_openai_responses,
)
from checkrein_invariants.strategies import histories

FAST = settings(max_examples=100, derandomize=True)


def user(text: str = "hi") -> UserMessage:
    return UserMessage([TextBlock(text)])


def calls(*ids: str, arguments: str = "{}") -> AssistantMessage:
    return AssistantMessage([CallBlock(call_id, "read", arguments) for call_id in ids])


def result(call_id: str, text: str = "done") -> ToolMessage:
    return ToolMessage(call_id, "read", [TextBlock(text)])


@FAST
@given(histories())
def test_L8_right_histories_pass_in_every_form(messages: list[Message]) -> None:
    assert validate_history(messages) == []


@FAST
@given(histories(), st.data())
def test_a_history_without_one_of_its_results_is_found_in_every_form(messages: list[Message], data: Any) -> None:
    results = [i for i, message in enumerate(messages) if isinstance(message, ToolMessage)]
    if not results:
        return
    gone = data.draw(st.sampled_from(results))
    problems = " ".join(validate_history(messages[:gone] + messages[gone + 1 :]))
    assert all(form in problems for form in ("neutral:", "openai chat:", "openai responses:", "anthropic:"))


BROKEN: list[tuple[str, list[Message]]] = [
    ("a call without result, P02 P04 P05", [user(), calls("a"), user()]),
    ("one of two calls without result, P03", [user(), calls("a", "b"), result("a"), user()]),
    ("a result without call, P07", [user(), result("a")]),
    ("a result of an older call", [user(), calls("a"), result("a"), user(), result("a")]),
    ("a result twice, P07", [user(), calls("a"), result("a"), result("a")]),
    ("something between call and result, P19", [user(), calls("a"), user(), result("a")]),
    ("an unanswered call at the end, P10", [user(), calls("a")]),
    ("an id twice in one answer, S23", [user(), calls("a", "a"), result("a"), result("a")]),
    ("an id used again later, S24", [user(), calls("a"), result("a"), user(), calls("a"), result("a")]),
    ("an assistant message first, P10", [calls("a"), result("a")]),
    ("an assistant message last", [user(), AssistantMessage([TextBlock("hi")])]),
    ("arguments that are no object, S40", [user(), calls("a", arguments="[1]"), result("a")]),
    ("arguments that are no JSON, S17 S41", [user(), calls("a", arguments='{"x":'), result("a")]),
    ("empty arguments, S15", [user(), calls("a", arguments=""), result("a")]),
]


@pytest.mark.parametrize(("what", "messages"), BROKEN, ids=[what for what, _ in BROKEN])
def test_each_broken_history_is_found_in_every_form(what: str, messages: list[Message]) -> None:
    assert validate_messages(messages)
    assert validate_openai_chat(to_openai_chat(messages))
    assert validate_openai_responses(to_openai_responses(messages))
    assert validate_anthropic(to_anthropic(messages))


def test_empty_content_is_found_in_the_neutral_form() -> None:
    assert validate_messages([UserMessage([])])
    assert validate_messages([UserMessage([TextBlock("")])])
    assert validate_messages([user(), AssistantMessage([]), user()])
    assert validate_messages([user(), calls("a"), ToolMessage("a", "read", [])])


def test_an_empty_history_is_never_sent_and_is_fine() -> None:
    assert validate_history([]) == []
    assert (
        validate_messages([]) and validate_openai_chat([]) and validate_openai_responses([]) and validate_anthropic([])
    )


def chat_call(call_id: Any = "a", name: Any = "read", arguments: Any = "{}", kind: Any = "function") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": call_id, "type": kind, "function": function}]}


USER = {"role": "user", "content": "hi"}
RESULT_CHAT = {"role": "tool", "tool_call_id": "a", "content": "x"}

CHAT: list[tuple[str, Any]] = [
    ("no list", {"role": "user"}),
    ("no object", [USER, "hi"]),
    ("an unknown role", [{"role": "robot", "content": "hi"}, USER]),
    ("a role that is no word", [{"role": ["user"], "content": "hi"}, USER]),
    ("empty user text", [{"role": "user", "content": ""}]),
    ("no content", [{"role": "user"}]),
    ("an empty list of parts", [{"role": "user", "content": []}]),
    ("an unknown part", [{"role": "user", "content": [{"type": "hologram"}]}]),
    ("an image without url", [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
    ("an assistant without content and calls", [USER, {"role": "assistant", "content": None}, USER]),
    ("an empty list of calls", [USER, {"role": "assistant", "tool_calls": []}, USER]),
    ("an empty call id", [USER, chat_call(""), {"role": "tool", "tool_call_id": "", "content": "x"}]),
    ("a number as call id", [USER, chat_call(7), {"role": "tool", "tool_call_id": 7, "content": "x"}]),
    ("a long call id", [USER, chat_call("x" * 41), {"role": "tool", "tool_call_id": "x" * 41, "content": "x"}]),
    ("a name with a blank", [USER, chat_call(name="my tool"), RESULT_CHAT]),
    ("another kind of call", [USER, chat_call(kind="x"), RESULT_CHAT]),
    (
        "arguments as object, S11",
        [USER, chat_call(arguments={}), RESULT_CHAT],
    ),
    ("an empty result", [USER, chat_call(), {"role": "tool", "tool_call_id": "a", "content": ""}]),
    ("calls of a user", [{**chat_call(), "role": "user", "content": "hi"}]),
    ("only a system prompt", [{"role": "system", "content": "be brief"}]),
]


@pytest.mark.parametrize(("what", "body"), CHAT, ids=[what for what, _ in CHAT])
def test_openai_chat_refuses(what: str, body: Any) -> None:
    assert validate_openai_chat(body)


def test_openai_chat_takes_a_system_prompt_first() -> None:
    assert validate_openai_chat([{"role": "system", "content": "be brief"}, USER]) == []


CALL = {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "x"}
ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}

RESPONSES: list[tuple[str, Any]] = [
    ("no list", "hi"),
    ("an unknown item", [ITEM, {"type": "hologram"}]),
    ("an output part from the user", [{**ITEM, "content": [{"type": "output_text", "text": "hi"}]}]),
    ("an empty message", [{**ITEM, "content": []}]),
    ("a reasoning item between call and output", [ITEM, CALL, THOUGHT, OUTPUT]),
    ("a reasoning item without its answer", [ITEM, THOUGHT, ITEM]),
    ("a reasoning item without summary", [ITEM, {"type": "reasoning"}, CALL, OUTPUT]),
    ("an output before its call", [ITEM, OUTPUT, CALL]),
    ("a second group before the first is answered", [ITEM, CALL, ITEM, {**CALL, "call_id": "b"}, OUTPUT]),
    ("a call id with dots", [ITEM, {**CALL, "call_id": "c1.2"}, {**OUTPUT, "call_id": "c1.2"}]),
]


@pytest.mark.parametrize(("what", "body"), RESPONSES, ids=[what for what, _ in RESPONSES])
def test_openai_responses_refuses(what: str, body: Any) -> None:
    assert validate_openai_responses(body)


def test_openai_responses_takes_reasoning_before_its_calls() -> None:
    second = {**CALL, "call_id": "b"}
    assert validate_openai_responses([ITEM, THOUGHT, CALL, second, OUTPUT, {**OUTPUT, "call_id": "b"}]) == []


USE = {"type": "tool_use", "id": "a", "name": "read", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
TEXT = {"type": "text", "text": "hi"}
UNSIGNED = {"type": "thinking", "thinking": "x"}


def claude(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def answer(*blocks: Any) -> dict[str, Any]:
    return claude(*blocks, role="assistant")


ANTHROPIC: list[tuple[str, Any]] = [
    ("a system message", [{"role": "system", "content": "x"}, claude(TEXT)]),
    ("two user messages in a row", [claude(TEXT), claude(TEXT)]),
    ("blank text", [claude({"type": "text", "text": " \n"})]),
    ("empty content", [claude()]),
    ("text before the results", [claude(TEXT), answer(USE), claude(TEXT, RESULT)]),
    ("a call of a user", [claude(TEXT, USE)]),
    ("a result of an assistant", [claude(TEXT), answer(RESULT), claude(TEXT)]),
    ("an id with a colon", [claude(TEXT), answer({**USE, "id": "a:1"}), claude({**RESULT, "tool_use_id": "a:1"})]),
    ("arguments as text", [claude(TEXT), answer({**USE, "input": "{}"}), claude(RESULT)]),
    (
        "thinking without signature, R12",
        [claude(TEXT), answer({"type": "thinking", "thinking": "x"}, TEXT), claude(TEXT)],
    ),
    ("thinking last", [claude(TEXT), answer({"type": "thinking", "thinking": "x", "signature": "s"}), claude(TEXT)]),
    ("a result that is a number", [claude(TEXT), answer(USE), claude({**RESULT, "content": 7})]),
    ("an image without source", [claude({"type": "image"})]),
    ("a result two messages later", [claude(TEXT), answer(USE), claude(TEXT), answer(TEXT), claude(RESULT)]),
]


@pytest.mark.parametrize(("what", "body"), ANTHROPIC, ids=[what for what, _ in ANTHROPIC])
def test_anthropic_refuses(what: str, body: Any) -> None:
    assert validate_anthropic(body)


def test_anthropic_takes_text_behind_the_results() -> None:
    thought = {"type": "thinking", "thinking": "x", "signature": "s"}
    assert validate_anthropic([{"role": "user", "content": "hi"}, answer(thought, USE), claude(RESULT, TEXT)]) == []


def test_conversion_keeps_ids_apart_and_in_the_alphabet() -> None:
    messages: list[Message] = [user(), calls("c1.2", "c1_2", "", "x" * 99)]
    ids = [call["id"] for call in to_openai_chat(messages)[1]["tool_calls"]]
    assert len(set(ids)) == 4 and all(len(call_id) <= 40 for call_id in ids)


def test_conversion_shows_media_where_the_wire_has_a_place_and_names_it_elsewhere() -> None:
    image = MediaBlock("image/png", data="aGk=")
    messages: list[Message] = [UserMessage([image]), calls("a"), ToolMessage("a", "read", [image])]
    chat = to_openai_chat(messages)
    assert chat[0]["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]
    assert chat[2]["content"] == "[image/png]"
    assert to_anthropic(messages)[2]["content"][0]["content"][0]["type"] == "image"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["role", "type", "content", "tool_calls", "id", "call_id", "tool_call_id", "text", "x"])
        , inner, max_size=4
    ),
    max_leaves=20,
)  # fmt: skip
MEMBERS = ["role", "type", "content", "tool_calls"]
WORDS = ["user", "assistant", "tool", "message", "function_call", "function_call_output", "tool_use", "tool_result"]


@FAST
@given(
    st.lists(st.dictionaries(st.sampled_from(["role", "type", "content", "tool_calls"]), JSON | st.sampled_from(WORDS)))
)
def test_any_json_gets_an_answer(body: Any) -> None:
    checks: list[Callable[[Any], list[str]]] = [validate_openai_chat, validate_openai_responses, validate_anthropic]
    for check in checks:
        assert all(isinstance(problem, str) for problem in check(body))
