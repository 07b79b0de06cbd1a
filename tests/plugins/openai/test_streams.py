"""Recorded bodies: what they come to, cut at every byte and in every size (M2, M6, M11)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

STREAMS = Path(__file__).parent / "streams"
BODIES = {path.stem: path.read_bytes() for path in sorted(STREAMS.glob("*.body"))}
EXPECTED = json.loads((STREAMS / "expected.json").read_text())
QUIRKS = {"dsml": {"dsml": True}}


def test_every_body_is_written_down():
    assert set(BODIES) == set(EXPECTED)
    assert len(BODIES) >= 20


@pytest.mark.parametrize("name", BODIES)
def test_M2_a_body_comes_to_what_was_written_down(play, name):
    assert play(BODIES[name], QUIRKS.get(name)).picture() == EXPECTED[name]


@pytest.mark.parametrize("name", BODIES)
def test_every_cut_in_two_and_every_size_gives_the_same_chunks(play, name):
    body, quirks = BODIES[name], QUIRKS.get(name)
    whole = play(body, quirks)
    for cut in range(1, len(body)):
        assert play([body[:cut], body[cut:]], quirks).chunks == whole.chunks, cut
    for size in (*range(1, 40), 64, 128, 256, 512):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        played = play(pieces, quirks)
        assert (played.chunks, played.ending) == (whole.chunks, whole.ending), size


@pytest.mark.parametrize("name", BODIES)
def test_M6_a_body_cut_at_any_byte_is_never_a_whole_answer_too_early(play, name):
    body, quirks = BODIES[name], QUIRKS.get(name)
    whole = play(body, quirks)
    for cut in range(len(body)):
        played = play(body[:cut], quirks)
        finish = played.assembler.finish
        assert finish is None or played.chunks[-1] is finish
        if finish is None:
            # What was shown before the cut is the beginning of what would have been shown.
            shown = list(played.chunks)
            assert shown == whole.chunks[: len(shown)], cut
        else:
            assert finish.reason == whole.assembler.finish.reason
            assert b"finish_reason" in body[:cut]
            assert (played.text, played.calls) == (whole.text, whole.calls), cut


def test_M11_done_alone_is_no_ending_unless_the_server_is_known_for_it(play):
    assert play(BODIES["done-without-finish"]).ending == "torn"
    lenient = play(BODIES["done-without-finish"], {"lenient_finish": True})
    assert lenient.ending == "finish stop"
    assert lenient.assembler.finish.lenient
    assert play(b"data: [DONE]\n\n", {"lenient_finish": True}).ending == "torn"


def test_M11_a_finish_reason_is_an_ending_without_done(play):
    body = b'data: {"choices":[{"delta":{"content":"4"},"finish_reason":"stop"}]}\n\n'
    played = play(body, {"lenient_finish": True})
    assert played.ending == "finish stop"
    assert not played.assembler.finish.lenient
