# ruff: noqa: RUF001 (bars of many spellings)
"""Public bug reports about streams and thinking, each by its id: what the decoder has to make of them."""

from __future__ import annotations

import json

import pytest


def stream(*frames: object, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(frame)}\n\n" for frame in frames]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def delta(finish: str | None = None, **members: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": members, "finish_reason": finish}]}


def calls(*entries: object) -> dict[str, object]:
    return delta(tool_calls=list(entries))


FINISH = delta("tool_calls")


def test_case_S01_a_call_without_index(play):
    entry = {"id": "fn-1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    played = play(stream(calls(entry), FINISH))
    assert (played.calls, played.ending) == ([("fn-1", "f", '{"a":1}')], "finish tool_calls")


def test_case_S01_a_delta_of_arguments_alone_goes_on_with_the_last_call(play):
    first = calls({"id": "a", "function": {"name": "f", "arguments": '{"x"'}})
    played = play(stream(first, calls({"function": {"arguments": ":1}"}}), FINISH))
    assert played.calls == [("a", "f", '{"x":1}')]


def test_case_S02_calls_with_and_without_index_stay_apart_in_order(play):
    played = play(
        stream(
            calls({"id": "a", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}),
            calls({"id": "b", "function": {"name": "get_time", "arguments": '{"tz":"JST"}'}}),
            calls({"index": 0, "id": "c", "function": {"name": "x", "arguments": "{}"}}),
            FINISH,
        )
    )
    assert played.calls == [
        ("a", "get_weather", '{"city":"Paris"}'),
        ("b", "get_time", '{"tz":"JST"}'),
        ("c", "x", "{}"),
    ]


def test_case_S04_arguments_before_the_name(play):
    played = play(
        stream(
            calls({"id": "c1", "function": {"arguments": '{"q":'}}),
            calls({"id": "c1", "function": {"name": "search", "arguments": "1}"}}),
            FINISH,
        )
    )
    assert played.calls == [("c1", "search", '{"q":1}')]


def test_case_S04_a_name_that_never_comes_is_a_call_without_name(play):
    assert play(stream(calls({"id": "c", "function": {"arguments": "{}"}}), FINISH)).calls == [("c", "", "{}")]


def test_case_S05_a_clean_end_without_finish_reason_is_torn(play):
    body = b'data: {"choices":[{"delta":{"content":"The answer is"}}]}\n\n'
    assert play(body).ending == "torn"
    assert play(body + stream(delta("stop"), done=False)).ending == "finish stop"


def test_case_S10_an_error_event_is_classified(play):
    error = {"type": "error", "error": {"code": "context_length_exceeded", "message": "exceeds the context window"}}
    played = play(f"event: error\ndata: {json.dumps(error)}\n\n".encode())
    assert played.error.code == "CONTEXT_WINDOW_EXCEEDED"
    assert not played.error.retryable


@pytest.mark.parametrize("arguments", [{"city": "Paris"}, '{"city":"Paris"}'])
def test_case_S11_arguments_as_object_or_text(play, arguments):
    message = {"tool_calls": [{"id": "x", "type": "function", "function": {"name": "w", "arguments": arguments}}]}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()
    assert play(body).calls == [("x", "w", '{"city":"Paris"}')]


def test_case_S12_a_call_without_id_and_type(play):
    message = {"content": "", "tool_calls": [{"function": {"name": "w", "arguments": {"unit": "celsius"}}}]}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
    played = play(body)
    assert (played.calls, played.ending) == ([(None, "w", '{"unit":"celsius"}')], "finish tool_calls")


@pytest.mark.parametrize("arguments", ["", None])
def test_case_S16_empty_arguments_stay_empty_for_the_harness_to_read_as_none(play, arguments):
    assert play(stream(calls({"id": "h", "function": {"name": "health", "arguments": arguments}}), FINISH)).calls == [
        ("h", "health", "")
    ]


def test_case_S17_arguments_cut_by_the_token_limit_end_as_max_tokens(play):
    body = stream(
        calls({"index": 0, "id": "c1", "function": {"name": "w", "arguments": '{"text": "abc'}}), delta("length")
    )
    assert play(body).ending == "finish max_tokens"


def test_case_S18_cr_and_lf_in_different_chunks(play):
    from checkrein_openai.sse import EventParser

    parser = EventParser()
    pieces = [b"data: A\r\n", b"data: B\r", b"\n", b"data: C\r\n", b"\r\n"]
    assert [event.data for piece in pieces for event in parser.feed(piece)] == [b"A\nB\nC"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_case_S19_every_line_ending(play, end):
    body = stream(delta("stop", content="x")).replace(b"\n", end.encode())
    assert (play(body).text, play(body).ending) == ("x", "finish stop")


def test_case_S21_no_space_comments_and_a_last_event_without_blank_line(play):
    body = b'data:{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n: keep-alive\n\ndata:[DONE]'
    assert play(body).ending == "finish stop"
    cut = b'data:{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}'
    assert play(cut).ending == "finish stop"


def test_case_S23_one_id_twice_is_two_calls(play):
    entries = [{"index": n, "id": "dup", "function": {"name": "a", "arguments": "{}"}} for n in (0, 1)]
    assert play(stream(calls(*entries), FINISH)).calls == [("dup", "a", "{}")] * 2
    for entry in entries:
        del entry["index"]
    assert play(stream(calls(*entries), FINISH)).calls == [("dup", "a", "{}")] * 2


def test_case_S25_empty_ids_do_not_overwrite_each_other(play):
    entries = [{"id": "", "function": {"name": name, "arguments": "{}"}} for name in ("first", "second")]
    expected = [(None, "first", "{}"), (None, "second", "{}")]
    assert play(stream(calls(*entries), FINISH)).calls == expected
    assert play(stream(*[calls(entry) for entry in entries], FINISH)).calls == expected


@pytest.mark.parametrize("choices", [{"choices": []}, {"choices": None}, {}])
def test_case_S27_frames_without_choices(play, choices):
    played = play(
        stream(
            {**choices, "prompt_filter_results": []},
            delta(content="hi"),
            delta("stop"),
            {**choices, "usage": {"prompt_tokens": 611, "completion_tokens": 13}},
        )
    )
    assert (played.text, played.ending) == ("hi", "finish stop")
    assert (played.assembler.usage.input, played.assembler.usage.output) == (611, 13)


def test_case_S29_tool_calls_without_calls_is_no_answer(play):
    played = play(stream(delta(content="I'll read the brief file first."), delta("tool_calls", tool_calls=[])))
    assert played.ending == "error MALFORMED_RESPONSE stream"
    assert played.error.retryable


def test_case_S33_surrogate_halves_over_frames_are_joined(play):
    body = (
        b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n'
        b'data: {"choices":[{"delta":{"content":"\\ude00"}}]}\n\n'
        b'data: {"choices":[{"delta":{"content":"\\udc97"},"finish_reason":"stop"}]}\n\n'
    )
    played = play(body)
    assert played.parts("text")[0].text() == ("\U0001f600\ufffd", 1)
    assert [chunk.text for chunk in played.chunks[:1]] == ["\U0001f600"]


def test_case_S34_an_escaped_emoji_in_arguments_is_one_code_point(play):
    arguments = json.dumps({"code": "print('\U0001f378')"})
    played = play(stream(calls({"id": "c", "function": {"name": "run", "arguments": arguments}}), FINISH))
    assert json.loads(played.calls[0][2])["code"] == "print('\U0001f378')"


@pytest.mark.parametrize("arguments", ['{"path": "/tmp/x", "recursive": tr', '["oops"]', "1", "null", '"x"'])
def test_case_S40_S42_arguments_are_never_repaired(play, arguments):
    played = play(stream(calls({"id": "c", "function": {"name": "f", "arguments": arguments}}), FINISH))
    assert played.calls == [("c", "f", arguments)]


def test_case_R06_unknown_members_of_a_call_are_kept(play):
    extra = {"google": {"thought_signature": "AbC="}}
    entry = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{}"}, "extra_content": extra}
    [part] = play(stream(calls(entry), FINISH)).parts("call")
    assert json.loads(part.metadata) == {"extra_content": extra}


DSML = (
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="exec_command">\n'
    '<｜DSML｜parameter name="cmd" string="true">ls</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)


def test_case_R07_call_markup_in_the_text_becomes_a_call(play):
    played = play(stream(delta(content=DSML), delta("stop")), {"dsml": True})
    assert (played.text, played.calls) == ("", [(None, "exec_command", '{"cmd":"ls"}')])
    assert played.ending == "finish tool_calls"


@pytest.mark.parametrize(
    "markup", [DSML[:-10], "<｜DSML｜tool_calls></｜DSML｜tool_calls>", DSML.replace("invoke", "invok", 1)]
)
def test_case_R07_markup_that_cannot_be_read_is_no_answer(play, markup):
    played = play(stream(delta(content="See: " + markup), delta("stop")), {"dsml": True})
    assert played.ending == "error MALFORMED_RESPONSE stream"
    assert "DSML" not in played.text


@pytest.mark.parametrize("bars", ["‖", "｜｜", "|", "｜"])
def test_case_R08_markup_split_anywhere_and_in_every_spelling(play, bars):
    text = "hello" + DSML.replace("｜", bars) + "world <|not DSML|>"
    for cut in range(1, len(text)):
        played = play(stream(delta(content=text[:cut]), delta(content=text[cut:]), delta("stop")), {"dsml": True})
        assert (played.text, len(played.calls)) == ("helloworld <|not DSML|>", 1), cut


def test_case_R08_an_unclosed_mark_never_leaks(play):
    for cut in range(1, len("hello<‖DSML‖tool_calls>world")):
        text = "hello<‖DSML‖tool_calls>world"
        played = play(stream(delta(content=text[:cut]), delta(content=text[cut:]), delta("stop")), {"dsml": True})
        assert (played.text, played.ending) == ("hello", "error MALFORMED_RESPONSE stream"), cut


def test_case_R16_thinking_and_text_in_one_frame(play):
    played = play(
        stream(
            delta(reasoning_content="Well"), delta(reasoning_content=" done.", content="V"), delta("stop", content="oy")
        )
    )
    assert (played.thinking, played.text) == ("Well done.", "Voy")
    assert [part.kind for part in played.assembler.parts.values()] == ["thinking", "text"]


def test_case_R17_text_in_the_frame_of_the_finish_reason(play):
    assert play(stream(delta("stop", content="end."))).text == "end."


@pytest.mark.parametrize(
    ("piece", "member"),
    [({"reasoning": "I nee"}, "reasoning"), ({"reasoning_content": {"text": "I nee"}}, "reasoning_content")],
)
def test_case_R18_thinking_in_every_dialect(play, piece, member):
    played = play(stream(delta(**piece), delta("stop", content="x")))
    [part] = played.parts("thinking")
    assert (part.text()[0], part.metadata) == ("I nee", member)
