"""From a neutral request to the wire's body: ids, names, roles, thinking, media, settings, quirks."""

from __future__ import annotations

import json

import pytest
from wirekit import answer, body, call, result, user, wire

from checkrein.errors import ProviderError
from checkrein.messages import (
    AssistantMessage,
    MediaBlock,
    OpaqueBlock,
    Request,
    TextBlock,
    ThinkingBlock,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from checkrein_openai.quirks import DEFAULTS, quirks_for, window_tokens
from checkrein_openai.request import build


def test_a_plain_request():
    assert body(user("hi"), system=("Be brief.", "Be kind.")) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "system", "content": "Be brief.\n\nBe kind."}, {"role": "user", "content": "hi"}],
    }


def test_tools_come_in_their_order_as_functions():
    made = body(user("x"), tools=(ToolSchema("b", "B.", {"type": "object", "required": []}), ToolSchema("a", "A.", {})))
    assert [tool["function"]["name"] for tool in made["tools"]] == ["b", "a"]
    assert made["tools"][1]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_neighbours_of_one_role_are_merged_by_quirk():
    messages = user("a"), user("b"), answer(TextBlock("c")), user("d", "e")
    assert wire(*messages) == [
        {"role": "user", "content": "a\n\nb"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d\ne"},
    ]
    assert len(wire(*messages, quirks={"merge_roles": False})) == 4


def test_answers_with_calls_are_never_merged_away():
    got = wire(
        user("a"), answer(call("c1.1.1")), result("c1.1.1"), answer(TextBlock("x")), answer(TextBlock("y")), user("z")
    )
    assert [message["role"] for message in got] == ["user", "assistant", "tool", "assistant", "user"]
    assert got[3]["content"] == "x\n\ny"


@pytest.mark.parametrize("arguments", ["", "[1]", "null", '{"a":', '"{}"', "NaN", "{} {}"])
def test_case_S15_S41_arguments_that_are_no_object_go_back_as_an_empty_one(arguments):
    got = wire(user("x"), answer(call("c1.1.1", arguments=arguments)), result("c1.1.1"))
    assert got[1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert got[1]["content"] is None


def test_arguments_that_are_an_object_go_back_byte_for_byte():
    raw = '{ "b" : 1.0,\n"a": "\\u00e9" }'
    got = wire(user("x"), answer(call("c1.1.1", arguments=raw)), result("c1.1.1"))
    assert got[1]["tool_calls"][0]["function"]["arguments"] == raw


@pytest.mark.parametrize("name", ["fs.read", "", "a b", "x" * 65, "日本"])
def test_tool_names_are_spelt_for_the_wire_and_known_again(name):
    request = Request(
        "m", [user("x"), answer(call("c1.1.1", name)), result("c1.1.1")], tools=(ToolSchema(name, "", {}),)
    )
    built = build(request, DEFAULTS)
    made = json.loads(built.body)
    spelt = made["tools"][0]["function"]["name"]
    assert made["messages"][1]["tool_calls"][0]["function"]["name"] == spelt
    assert len(spelt) <= 64
    assert spelt.isascii()
    assert built.names == {spelt: name}


def test_two_names_never_become_one():
    tools = tuple(ToolSchema(name, "", {}) for name in ("a.b", "a/b", "a_b"))
    names = [tool["function"]["name"] for tool in body(user("x"), tools=tools)["tools"]]
    assert len(set(names)) == 3


def test_stub_tools_by_quirk():
    messages = user("x"), answer(call("c1.1.1", "gone")), result("c1.1.1")
    assert "tools" not in body(*messages)
    assert body(*messages, quirks={"stub_tools": True})["tools"][0]["function"]["name"] == "gone"


# --- thinking and opaque data


THOUGHT = ThinkingBlock(0, "hm", "reasoning")


def test_case_R02_R18_thinking_goes_back_in_the_member_it_came_in():
    got = wire(user("x"), answer(THOUGHT, call("c1.1.1")), result("c1.1.1"))
    assert (got[1]["reasoning"], got[1]["content"]) == ("hm", None)
    plain = wire(user("x"), answer(ThinkingBlock(0, "hm"), TextBlock("y")), user("z"))
    assert plain[1]["reasoning_content"] == "hm"


def test_case_R01_deepseek_gets_reasoning_content_on_every_answer():
    quirks = quirks_for("api.deepseek.com", "deepseek-reasoner")
    thinking = ThinkingBlock(0, "think", "reasoning_content")
    got = wire(
        user("x"),
        answer(thinking, call("c1.1.1")),
        result("c1.1.1"),
        answer(call("c1.2.1")),
        result("c1.2.1"),
        answer(TextBlock("other"), provider="elsewhere"),
        user("y"),
        quirks=quirks,
    )
    assert [m["reasoning_content"] for m in got if m["role"] == "assistant"] == ["think", "", ""]


@pytest.mark.parametrize("changed", [{"provider": "other"}, {"model": "m2"}])
def test_M5_opaque_data_never_crosses_providers_or_models(changed):
    blocks = (
        THOUGHT,
        OpaqueBlock("openai", {"type": "reference"}),
        call("c1.1.1", metadata='{"extra_content":{"s":"S"}}'),
    )
    messages = user("x"), answer(*blocks, metadata='{"reasoning_details":[{"data":"D"}]}', **changed), result("c1.1.1")
    sent = json.dumps(wire(*messages))
    for secret in ("hm", "reference", "extra_content", "reasoning_details"):
        assert secret not in sent


def test_case_R04_R06_opaque_data_goes_back_as_it_came():
    details = [{"type": "reasoning.encrypted", "data": "AbC=", "index": 0}]
    signed = call("c1.1.1", metadata='{"extra_content":{"google":{"thought_signature":"AbC="}}}')
    got = wire(
        user("x"),
        answer(OpaqueBlock("openai", {"type": "reference", "ids": [1]}), TextBlock("t"), signed, call("c1.1.2"),
               metadata=json.dumps({"reasoning_details": details, "role": "system"})),
        result("c1.1.1"),
        result("c1.1.2"),
    )  # fmt: skip
    assert got[1]["content"] == [{"type": "reference", "ids": [1]}, {"type": "text", "text": "t"}]
    assert got[1]["reasoning_details"] == details
    assert got[1]["role"] == "assistant"
    first, second = got[1]["tool_calls"]
    assert first["extra_content"] == {"google": {"thought_signature": "AbC="}}
    assert "extra_content" not in second


def test_M5_metadata_of_a_stranger_changes_nothing():
    evil = call("c1.1.1", metadata='{"id":"evil","function":7}')
    got = wire(user("x"), answer(TextBlock("t"), evil, metadata="no json"), result("c1.1.1"))
    assert got[1]["tool_calls"][0]["id"] == "c1_1_1"
    assert got[1]["tool_calls"][0]["function"]["name"] == "f"


def test_mistral_thinking_goes_back_as_a_part():
    got = wire(user("x"), answer(ThinkingBlock(0, "hm", "thinking"), TextBlock("y")), user("z"))
    assert got[1]["content"][0] == {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


def test_thinking_is_dropped_where_the_server_refuses_it():
    got = wire(user("x"), answer(THOUGHT, TextBlock("y")), user("z"), quirks={"reasoning": "drop"})
    assert got[1] == {"role": "assistant", "content": "y"}


@pytest.mark.parametrize("source", ["log", "stream"])
def test_case_R05_what_the_stream_brought_survives_the_log(play, source):
    import msgspec

    deltas = [
        {"reasoning": text, "reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0}]}
        for text in "ab"
    ]
    frames = [{"choices": [{"delta": delta}]} for delta in deltas]
    frames.append({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]})
    body_ = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames).encode()
    assembler = play(body_).assembler
    thinking, text = assembler.parts.values()
    message = answer(
        ThinkingBlock(0, thinking.text()[0], thinking.metadata), TextBlock(text.text()[0]), metadata=assembler.metadata
    )
    if source == "log":
        message = msgspec.json.decode(msgspec.json.encode(message), type=AssistantMessage)
    got = wire(user("x"), message, user("y"))
    assert got[1]["reasoning"] == "ab"
    assert got[1]["reasoning_details"] == [{"type": "reasoning.text", "text": "ab", "index": 0}]


# --- media


def test_media_blocks():
    image = MediaBlock("image/png", data="QUJD")
    blocks = [
        TextBlock("look"),
        image,
        MediaBlock("audio/wav", data="QQ=="),
        MediaBlock("application/pdf", data="QQ==", name="a.pdf"),
    ]
    parts = wire(UserMessage(blocks))[0]["content"]
    assert parts[1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    assert parts[2] == {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}
    assert parts[3]["file"] == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="}
    assert wire(UserMessage([MediaBlock("image/png", blob="ab" * 32)]))[0]["content"] == "(image/png: not available)"


def test_media_of_tool_results_follow_all_results_of_the_step():
    image = MediaBlock("image/png", url="https://x.test/a.png")
    got = wire(
        user("x"), answer(call("c1.1.1"), call("c1.1.2")), result("c1.1.1", None, image), result("c1.1.2"), user("y")
    )
    assert [message["role"] for message in got] == ["user", "assistant", "tool", "tool", "user"]
    assert got[2]["content"] == "(media follows)"
    assert [part["type"] for part in got[4]["content"]] == ["text", "image_url", "text"]


# --- settings and quirks


def test_settings_by_name():
    settings = {"temperature": 0.5, "max_tokens": 9, "stop": ["x"], "seed": None, "anthropic": {"thinking": 1}}
    made = body(user("x"), settings=settings)
    assert (made["temperature"], made["max_tokens"], made["stop"]) == (0.5, 9, ["x"])
    assert "seed" not in made
    assert "anthropic" not in made
    official = body(user("x"), settings=settings, quirks=quirks_for("api.openai.com", "gpt-5"))
    assert official["max_completion_tokens"] == 9


def test_a_table_named_like_the_provider_goes_into_the_body():
    assert body(user("x"), settings={"openai": {"store": True}})["store"] is True
    assert body(user("x"), more={"stream": False, "cache_prompt": True})["stream"] is False


def test_an_unknown_setting_is_refused_with_the_nearest_name():
    with pytest.raises(ProviderError, match="temperature") as caught:
        body(user("x"), settings={"temprature": 1})
    assert caught.value.code == "BAD_REQUEST"


def test_tool_choice():
    tools = (ToolSchema("f.g", "", {}),)
    made = body(user("x"), tools=tools, settings={"tool_choice": "f.g", "parallel_tool_calls": False})
    assert made["tool_choice"]["function"]["name"] == made["tools"][0]["function"]["name"]
    assert made["parallel_tool_calls"] is False
    assert body(user("x"), tools=tools, settings={"tool_choice": "required"})["tool_choice"] == "required"
    assert "tool_choice" not in body(user("x"), settings={"tool_choice": "required"})


CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "properties": {"a": {"type": "object"}}}, False),
        ({"type": "array", "items": CLOSED}, True),
        ({"$ref": "#/$defs/answer", "$defs": {"answer": CLOSED}}, True),
    ],
)
def test_output_schema_is_strict_where_it_can_be(schema, strict):
    made = body(user("x"), settings={"output_schema": schema})
    sent = CLOSED if "$ref" in schema else schema
    assert made["response_format"]["json_schema"] == {"name": "answer", "schema": sent, "strict": strict}


def test_output_schema_in_words_where_the_server_takes_no_schema():
    made = body(user("x"), settings={"output_schema": CLOSED}, system=("S",), quirks={"output_schema": "json_object"})
    assert made["response_format"] == {"type": "json_object"}
    assert "JSON Schema" in made["messages"][0]["content"]
    assert "response_format" not in body(
        user("x"), settings={"output_schema": CLOSED}, quirks={"output_schema": "words"}
    )


def test_a_lone_surrogate_never_stops_a_request():
    made = body(user("x"), system=("bad \udc97",))
    assert made["messages"][0]["content"] == "bad \ufffd"


def test_M11_quirks_are_layered():
    assert quirks_for("example.test", "m") == DEFAULTS
    assert quirks_for("api.mistral.ai", "m").stream_usage is False
    assert quirks_for("notapi.mistral.ai.evil.test", "m").stream_usage is True
    assert quirks_for("openrouter.ai", "deepseek/deepseek-v4").dsml is True
    assert quirks_for("opencode.ai", "muse-spark-1.2").lenient_finish is True
    assert quirks_for("api.deepseek.com", "deepseek-chat", {"reasoning": "drop"}).reasoning == "drop"
    assert "stream_options" not in body(user("x"), quirks=quirks_for("api.mistral.ai", "m"))


def test_context_windows():
    assert window_tokens("gpt-4o-mini") == 128_000
    assert window_tokens("openai/gpt-4.1-nano") == 1_047_576
    assert window_tokens("llama-9") is None


def test_an_answer_may_only_be_merged_where_nothing_is_lost():
    orphan = ToolMessage("c9.9.9", "f", [TextBlock("late")])
    twice = answer(call("c1.1.1")), answer(call("c1.1.2"))
    got = wire(user("x"), *twice, result("c1.1.2"), orphan, answer(MediaBlock("image/png", data="QQ==", name="a.png")))
    assert [message["role"] for message in got] == ["user", "assistant", "assistant", "tool", "tool", "assistant"]
    assert (got[4]["tool_call_id"], got[5]["content"]) == ("c9_9_9", "(a.png)")
    assert "tool_calls" in wire(user("x"), answer(call("c1"), call("c1")), result("c1"))[1]


def test_what_cannot_be_shown_becomes_words():
    blocks = [OpaqueBlock("openai", {}), MediaBlock("text/csv", url="https://x.test/a.csv")]
    content = wire(UserMessage(blocks))[0]["content"]
    assert content == "(content that cannot be shown here)\n(text/csv: https://x.test/a.csv)"


@pytest.mark.parametrize("quirks", [{}, {"reasoning": "always"}])
def test_an_answer_of_which_nothing_can_be_shown_is_words(quirks):
    """Of another vendor's parts alone: an empty answer is refused by Mistral and others."""
    got = wire(user("x"), answer(OpaqueBlock("other", {"type": "x"}), provider="other"), user("y"), quirks=quirks)
    assert [message["role"] for message in got] == ["user", "assistant", "user"]
    assert got[1]["content"] == "(content that cannot be shown here)"
