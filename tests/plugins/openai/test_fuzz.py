"""Whatever bytes come: the grammar holds and there is one ending; the parser does not depend on the cuts (M2, M11)."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein.chunks import FINISH_REASONS
from checkrein_openai.finish import FINISH
from checkrein_openai.sse import Event, EventParser, TooLong

MANY = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
labels = st.sampled_from(["", "a", "b", 0, 1, 7, None, "call_1", True, 1.5])
arguments = st.sampled_from(["", "{}", '{"a"', ":1}", "[", None, {"a": 1}, "\ud83d", 3])
function = st.fixed_dictionaries({}, optional={"name": labels, "arguments": arguments, "x": junk})
entry = st.fixed_dictionaries({}, optional={"index": labels, "id": labels, "function": function | junk, "extra": junk})
text = st.sampled_from(["", "x", "\ud83d", "\ude00", "<", "<|DSML|tool_calls>", "</|DSML|tool_calls>", None]) | junk
delta = st.fixed_dictionaries(
    {},
    optional={
        "content": text
        | st.lists(
            st.fixed_dictionaries({"type": st.sampled_from(["text", "thinking", "z"]), "text": text}), max_size=2
        ),
        "reasoning_content": text,
        "reasoning": text,
        "refusal": text,
        "tool_calls": st.lists(entry | junk, max_size=3) | junk,
        "function_call": function | junk,
        "reasoning_details": junk,
    },
)
reason = st.sampled_from([None, "", "moon", 7, *FINISH])
choice = st.fixed_dictionaries(
    {}, optional={"index": labels, "delta": delta | junk, "message": delta, "finish_reason": reason}
)
frame = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(choice | junk, max_size=2) | junk,
        "usage": junk,
        "id": labels,
        "error": st.none() | junk,
    },
)
line = (frame | junk).map(lambda value: "data: " + json.dumps(value)) | st.sampled_from(
    ["data: [DONE]", ": ping", "event: error", "event: ping", "data: {", "data", "\ufeff", "retry: 1"]
)
body = st.lists(line, max_size=8).map(lambda lines: "\n\n".join(lines).encode("utf-8", "replace")) | st.binary(
    max_size=80
)
quirks = st.fixed_dictionaries({"dsml": st.booleans(), "lenient_finish": st.booleans()})


@MANY
@given(body, quirks, st.integers(1, 50))
def test_M2_any_body_has_exactly_one_ending(play, body, quirks, size):
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    played = play(pieces, quirks)  # the assembler refuses what breaks the grammar, with code PROTOCOL
    finish = played.assembler.finish
    if played.error is not None:
        assert played.error.code != "PROTOCOL"
        assert finish is None
    elif finish is not None:
        assert played.chunks[-1] is finish
        assert finish.reason in FINISH_REASONS
    whole = play(body, quirks)
    assert (whole.chunks, whole.ending) == (played.chunks, played.ending)


@MANY
@given(
    st.lists(
        st.sampled_from([b"data: a", b"data:", b"\n", b"\r", b"\r\n", b":c", b"event: e", b"\xef\xbb\xbf", b"\xff"]),
        max_size=20,
    ),
    st.data(),
)
def test_the_parser_does_not_depend_on_the_cuts(pieces, data):
    stream = b"".join(pieces)
    whole = EventParser()
    expected = whole.feed(stream) + whole.end()
    cut = EventParser()
    got: list[Event] = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        got += cut.feed(stream[at : at + size])
        at += size
    assert got + cut.end() == expected


def reference(stream: bytes) -> list[bytes]:
    """The standard's algorithm, written down plainly: over the whole stream at once."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    out, data = [], []
    for line in text.split(b"\n"):
        if line == b"":
            out += [b"\n".join(data)] if data else []
            data = []
        elif line == b"data" or line.startswith(b"data:"):
            value = line[5:]
            data.append(value[1:] if value.startswith(b" ") else value)
    return out + ([b"\n".join(data)] if data else [])


@MANY
@given(
    st.lists(
        st.sampled_from([b"data: a", b"data:b", b"data", b"\n", b"\r", b"\r\n", b":c", b"id: 1", b" "]), max_size=25
    ).map(b"".join)
)
def test_the_parser_agrees_with_the_standard(stream):
    parser = EventParser()
    assert [event.data for event in parser.feed(stream) + parser.end()] == reference(stream)


def test_lines_and_events_are_bounded():
    for stream in ([b"data: " + b"x" * 60] * 2, [b":" + b"x" * 120], [b"data: xxxxxxxxx\n"] * 20):
        parser = EventParser(max_bytes=100)
        try:
            for piece in stream:
                parser.feed(piece)
        except TooLong:
            continue
        raise AssertionError(stream)


def test_a_long_line_in_many_pieces_takes_linear_time(play):
    text = "x" * 400_000
    body = (
        "data: " + json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}) + "\n\n"
    ).encode()
    assert play([body[at : at + 7] for at in range(0, len(body), 7)]).text == text
