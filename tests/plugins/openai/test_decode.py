"""What the decoder makes of answers of every make: counts, labels, endings, and what is no answer (M7, M10, M11)."""

from __future__ import annotations

import json

import pytest

from checkrein.errors import ProviderError
from checkrein_openai.decode import Decoder
from checkrein_openai.errors import from_response


def stream(*frames: object, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(frame)}\n\n" for frame in frames]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def delta(finish: str | None = None, **members: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": members, "finish_reason": finish}]}


def calls(*entries: object) -> dict[str, object]:
    return delta(tool_calls=list(entries))


FINISH = delta("tool_calls")


def test_M10_thinking_that_is_not_in_the_output_is_added(play):
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 35,
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    got = play(stream(delta("stop", content="x"), {"usage": usage})).assembler.usage
    assert (got.input, got.output, got.reasoning) == (10, 25, 20)


@pytest.mark.parametrize("usage", [{}, None, 7, {"prompt_tokens": -1}, {"prompt_tokens": True}, {"prompt_tokens": 1.5}])
def test_M10_absent_is_absent(play, usage):
    assert play(stream(delta("stop", content="x"), {"usage": usage})).assembler.usage is None


def test_an_empty_answer_is_an_error_that_may_pass(play):
    for body in (stream(delta("stop")), stream(delta(reasoning="hm"), delta("stop"))):
        played = play(body)
        assert played.error.code == "EMPTY_RESPONSE"
        assert played.error.retryable
    assert play(stream(delta("length"))).ending == "finish max_tokens"


@pytest.mark.parametrize("id_", [7, "", None, {}, True])
def test_M7_ids_of_any_kind(play, id_):
    played = play(stream(calls({"index": 0, "id": id_, "function": {"name": "f", "arguments": "{}"}}), FINISH))
    assert played.calls == [("7" if id_ == 7 else None, "f", "{}")]


def test_M7_one_index_for_all_calls(play):
    entries = [{"index": 0, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in (1, 2)]
    assert play(stream(*map(calls, entries), FINISH)).calls == [("c1", "f", "{}"), ("c2", "f", "{}")]


def test_M7_the_name_and_id_repeated_with_each_delta(play):
    pieces = ['{"a"', ": {", '"b": 1}', "}"]
    frames = [calls({"index": 0, "id": "c", "function": {"name": "f", "arguments": piece}}) for piece in pieces]
    assert play(stream(*frames, FINISH)).calls == [("c", "f", "".join(pieces))]


def test_names_changed_for_the_wire_come_back_as_ours(play):
    body = stream(calls({"index": 0, "id": "c", "function": {"name": "fs_read_1a", "arguments": "{}"}}), FINISH)
    assert play(body, None, {"fs_read_1a": "fs.read"}).calls == [("c", "fs.read", "{}")]


def test_more_calls_than_anybody_needs_are_refused(play):
    entries = [{"index": n, "id": f"c{n}", "function": {"name": "f"}} for n in range(1_030)]
    assert play(stream(calls(*entries), FINISH)).ending == "error MALFORMED_RESPONSE stream"


@pytest.mark.parametrize("body", [b"", b"\n\n", b": keep-alive\n\n", b"Service Unavailable", b"data: {\n"])
def test_a_body_that_says_nothing_is_torn(play, body):
    assert play(body).ending == "torn"


@pytest.mark.parametrize(
    "data", [b"data: oops\n\n", b'data: "text"\n\n', b"data: 7\n\n", b"[1]", b"{", b'{"a":' * 200_000]
)
def test_a_body_that_is_not_the_wire_is_malformed(play, data):
    played = play(data)
    assert played.error.code == "MALFORMED_RESPONSE"
    assert played.error.retryable


@pytest.mark.parametrize("depth", [90, 150, 400, 900, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"message":', '{"text":'])
@pytest.mark.parametrize(
    "frame",
    [
        '{"choices":[{"delta":{"content":%s}}]}',
        '{"choices":[{"delta":{"reasoning":%s}}]}',
        '{"choices":[{"delta":{"reasoning_details":%s}}]}',
        '{"choices":[{"delta":{"tool_calls":[{"id":"a","x":%s}]}}]}',
        '{"error":%s}',
        "%s",
    ],
)
def test_deep_nesting_anywhere_is_contained(play, frame, opening, depth):
    deep = opening * depth + "1" + ("]" if opening == "[" else "}") * depth
    body = f"data: {frame % deep}\n\n".encode() * 2 + stream(delta("stop", content="x"))
    ending = play(body).ending
    assert ending.split()[1] in ("stop", "tool_calls", "MALFORMED_RESPONSE", "SERVER")
    assert from_response(500, {}, (frame % deep).encode(), host="h").code == "SERVER"


def test_a_page_instead_of_an_answer_says_so(play):
    assert "is base_url right?" in str(play(b"<html>login</html>").error)


def test_frames_of_pings_are_ignored(play):
    assert play(b"event: ping\ndata: 12:00\n\n" + stream(delta("stop", content="x"))).ending == "finish stop"


def test_a_message_behind_the_deltas_does_not_double_the_text(play):
    whole = {"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}
    assert play(stream(delta(content="Hello"), whole)).text == "Hello"


def test_other_choices_are_not_ours(play):
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    assert play(stream(delta(content="yes"), other, delta("stop"))).text == "yes"


@pytest.mark.parametrize("word", ["error", "abort", "insufficient_system_resource", "network_error"])
def test_a_finish_reason_that_says_failure_is_an_error(play, word):
    played = play(stream(delta(content="x"), delta(word)))
    assert played.ending == "error SERVER stream"
    assert played.error.retryable


@pytest.mark.parametrize("noise", [b"<html>Bad Gateway</html>", b'"[DONE]"', b"null", b"0", b"[]"])
def test_noise_behind_a_whole_answer_does_not_take_it_back(play, noise):
    played = play(stream(delta(content="x"), delta("stop"), done=False) + b"data: " + noise + b"\n\n")
    assert (played.text, played.ending) == ("x", "finish stop")


@pytest.mark.parametrize("said", ["Internal error: the model is overloaded", "upstream connect error <html>"])
def test_an_error_event_may_be_plain_text(play, said):
    played = play(f"event: error\ndata: {said}\n\n".encode())
    assert played.error.code != "MALFORMED_RESPONSE" and said in str(played.error)


def test_an_unknown_finish_reason_is_other(play):
    assert play(stream(delta("moon", content="x"))).ending == "finish other"


def test_M7_a_second_whole_call_under_the_same_labels_is_a_second_call(play):
    entry = {"index": 0, "function": {"name": "f", "arguments": '{"a":1}'}}
    assert play(stream(calls(entry), calls(entry), FINISH)).calls == [(None, "f", '{"a":1}')] * 2


def test_M7_an_index_that_comes_late_or_as_text(play):
    played = play(
        stream(
            calls({"id": "a", "function": {"name": "f", "arguments": "{"}}),
            calls({"index": "0", "function": {"arguments": '"x":'}}),
            calls({"index": 0, "function": {"arguments": "1}"}}),
            calls({"index": "1", "id": "b", "function": {"name": "g", "arguments": "{}"}}),
            calls({}, None, 7),
            FINISH,
        )
    )
    assert played.calls == [("a", "f", '{"x":1}'), ("b", "g", "{}")]


def test_a_single_call_without_a_list(play):
    entry = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    assert play(stream(delta(tool_calls=entry), FINISH)).calls == [("a", "f", "{}")]


def test_content_as_a_list_of_parts(play):
    parts = ["plain ", {"type": "text", "text": "text"}, {"type": "text"}, {"type": "image_url", "image_url": "u"}, 7]
    played = play(stream(delta(content=parts), delta("stop")))
    assert (played.text, [part.data for part in played.parts("opaque")]) == ("plain text", [parts[3]])
    refused = play(stream(delta(content=[{"type": "refusal", "refusal": "no"}]), delta("stop")))
    assert (refused.text, refused.ending) == ("no", "finish refusal")


def test_half_a_pair_at_the_end_of_a_block_is_counted_not_lost(play):
    played = play(stream(delta(reasoning="a\ud83d"), delta(content="b\ud83d"), delta("stop")))
    assert [part.text() for part in played.assembler.parts.values()] == [("a\ufffd", 1), ("b\ufffd", 1)]


def test_an_error_inside_a_choice(play):
    choice = {"index": 0, "delta": {}, "error": {"code": 429, "message": "slow down"}}
    played = play(stream({"choices": [choice]}))
    assert (played.error.code, played.error.status, played.error.retryable) == ("RATE_LIMIT", 429, True)


def test_what_was_raised_is_raised_again():
    decoder = Decoder()
    assert len(decoder.feed(stream(delta(content="x"), {"error": "overloaded"}))) == 1
    for act in (lambda: decoder.feed(b""), decoder.end):
        with pytest.raises(ProviderError, match="overloaded"):
            act()


def test_an_answer_is_bounded(play, monkeypatch):
    monkeypatch.setattr("checkrein_openai.decode.MAX_BODY_BYTES", 1_000)
    assert play([b": ping\n\n" * 100] * 2).ending == "error MALFORMED_RESPONSE generate"
    monkeypatch.setattr("checkrein_openai.dsml.MAX_MARKUP_CHARS", 50)
    markup = "<|DSML|tool_calls>" + "x" * 60
    assert (
        play(stream(delta(content=markup), delta("stop")), {"dsml": True}).ending == "error MALFORMED_RESPONSE generate"
    )


def test_an_event_is_bounded(play):
    pieces = [b"data: ", *[b"x" * 1_000_000] * 17]
    assert play(pieces).ending == "error MALFORMED_RESPONSE generate"


def test_dsml_values_that_are_no_json_are_texts(play):
    invoke = '<|DSML|invoke name="f"><|DSML|parameter name="p">ls -l</|DSML|parameter></|DSML|invoke>'
    markup = f"<|DSML|tool_calls>{invoke}</|DSML|tool_calls>"
    assert play(stream(delta(content=markup), delta("stop")), {"dsml": True}).calls == [(None, "f", '{"p":"ls -l"}')]


def test_an_error_may_be_a_field_of_its_own(play):
    """What llama.cpp sent until late 2025, under status 200: no field of the standard."""
    said = (
        b'error: {"code":400,"message":"the request exceeds the available context size","type":"invalid_request"}\n\n'
    )
    played = play(said + b"data: [DONE]\n\n")
    assert (played.error.code, played.error.kind) == ("CONTEXT_WINDOW_EXCEEDED", "generate")
    assert play(stream(delta(content="x"), done=False) + said).error.kind == "stream"


@pytest.mark.parametrize("nothing", [None, "", "null", False])
def test_M11_no_reason_yet_in_any_spelling_is_no_end(play, nothing):
    going_on = delta(nothing, content="x")
    assert play(stream(going_on, delta("length"))).ending == "finish max_tokens"
    assert play(stream(going_on, going_on)).ending == "torn"


@pytest.mark.parametrize(
    ("document", "code", "said"),
    [
        ({"code": 1113, "msg": "insufficient balance"}, "QUOTA", "insufficient balance"),
        ({"detail": "Not found"}, "SERVER", "Not found"),
        ({"success": False, "message": "model overloaded"}, "SERVER", "model overloaded"),
        ({"choices": [], "message": "rate limit reached"}, "RATE_LIMIT", "rate limit reached"),
        ({"model": "m", "response": "hi", "done": True}, "MALFORMED_RESPONSE", '"response":"hi"'),
        ({}, "MALFORMED_RESPONSE", "{}"),
    ],
)
def test_a_document_without_an_answer_is_an_error_in_its_own_words(play, document, code, said):
    played = play(json.dumps(document).encode())
    assert (played.error.code, played.error.kind) == (code, "generate")
    assert said in str(played.error)


def test_M7_M10_whole_numbers_may_be_written_as_fractions(play):
    """As proxies in Java do: Gson makes 1.0 of each 1."""
    entries = [
        {"index": n, "id": id_, "function": {"name": "f", "arguments": "{"}} for n, id_ in [(0.0, "a"), (1.0, "b")]
    ]
    more = [{"index": n, "function": {"arguments": f'"x":{int(n)}}}'}} for n in (0.0, 1.0)]
    usage = {"choices": [], "usage": {"prompt_tokens": 12.0, "completion_tokens": 3.0, "total_tokens": 15.5}}
    played = play(stream(calls(*entries), calls(*more), FINISH, usage))
    assert played.calls == [("a", "f", '{"x":0}'), ("b", "f", '{"x":1}')]
    assert (played.assembler.usage.input, played.assembler.usage.output) == (12, 3)


def test_M10_counts_in_the_dialect_of_anthropic_are_disjoint_already(play):
    counts = {
        "input_tokens": 10,
        "cache_read_input_tokens": 1_000,
        "cache_creation_input_tokens": 200,
        "output_tokens": 5,
    }
    usage = play(stream(delta("stop", content="x"), {"choices": [], "usage": counts})).assembler.usage
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (10, 1_000, 200, 5)
    details = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5}
    usage = play(stream(delta("stop", content="x"), {"choices": [], "usage": details})).assembler.usage
    assert (usage.input, usage.cache_read) == (6, 4)
