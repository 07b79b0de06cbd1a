"""The scripted model."""

from __future__ import annotations

import threading

import anyio
import pytest

from checkrein.chunks import Assembler, CallChunk, FinishChunk, MetadataChunk, OpaqueChunk, TextChunk, UsageChunk
from checkrein.errors import ProviderError
from checkrein.messages import Request, TextBlock, Usage, UserMessage, View
from checkrein.providers import Provider
from checkrein.testing import (
    ScriptedModel,
    call,
    check,
    error,
    finish,
    forever,
    hang,
    metadata,
    opaque,
    run_virtual,
    text,
    thinking,
    torn,
    usage,
    wait,
)

ASKED = Request("m", [UserMessage([TextBlock("hi")])])


async def drain(model, request=ASKED):
    return [chunk async for chunk in model.stream(request)]


def play(model, turns=1, **options):
    async def main():
        return [await drain(model) for _ in range(turns)]

    return run_virtual(main, **options)


def never_suspends(model):
    """Play one turn by hand: a coroutine that suspends would not stop at once."""
    with pytest.raises(StopIteration) as stop:
        drain(model).send(None)
    return stop.value.value


def test_it_is_a_provider():
    model = ScriptedModel("hi", name="other", window_tokens=8)

    assert isinstance(model, Provider)
    assert (model.name, model.missing(), model.default_model(), model.window_tokens("x")) == (
        "other",
        None,
        "script",
        8,
    )


def test_a_str_is_a_text_answer():
    assert never_suspends(ScriptedModel("hello")) == [TextChunk(0, "hello"), FinishChunk("stop")]


def test_each_request_plays_the_next_turn():
    model = ScriptedModel("one", "two")

    assert [chunks[0].text for chunks in play(model, 2)] == ["one", "two"]
    assert (model.opened, model.closed, model.remaining) == (2, 2, 0)
    model.verify()


def test_the_vocabulary_makes_blocks_in_order():
    model = ScriptedModel(
        [
            thinking("let me see", pieces=2, metadata="sig"),
            text("abcdefg", pieces=3),
            call("weather", {"city": "Paris"}, pieces=2),
            call("none"),
            opaque({"type": "new"}),
            metadata("whole", message=True),
            usage(input=3, output=4, cache_read=5),
        ]
    )
    assembler = Assembler()
    for chunk in never_suspends(model):
        assembler.push(chunk)

    parts = assembler.parts
    assert [(part.kind, part.text()[0]) for part in parts.values()][:4] == [
        ("thinking", "let me see"),
        ("text", "abcdefg"),
        ("call", '{"city":"Paris"}'),
        ("call", "{}"),
    ]
    assert len(parts[1].pieces) == 3
    assert parts[0].metadata == "sig"
    assert parts[4].data == {"type": "new"}
    assert assembler.metadata == "whole"
    assert assembler.usage == Usage(input=3, output=4, cache_read=5)
    assert assembler.finish == FinishChunk("tool_calls")


def test_call_ids_are_unique_in_the_script_unless_given():
    model = ScriptedModel([call("a"), call("b"), call("c", id=""), call("d", id="same")], repeat=True)
    ids = [[chunk.id for chunk in chunks if isinstance(chunk, CallChunk)] for chunks in play(model, 2)]

    assert ids == [["call_1_1", "call_1_2", None, "same"], ["call_2_1", "call_2_2", None, "same"]]


def test_raw_arguments_come_as_they_are():
    chunks = never_suspends(ScriptedModel(call("t", raw='{"a":')))
    assert chunks[0] == CallChunk(0, "call_1_1", "t", '{"a":')
    with pytest.raises(ValueError, match="got both"):
        call("t", {}, raw="{}")


def test_a_block_is_continued_by_its_index():
    chunks = never_suspends(ScriptedModel([text("a", index=0), thinking("t"), text("b", index=0)]))
    assert [chunk.index for chunk in chunks[:3]] == [0, 1, 0]


def test_raw_chunks_pass_through():
    raw = [CallChunk(7, None, "t", "{"), UsageChunk(Usage(output=1)), TextChunk(2, "x"), OpaqueChunk(9, 1)]
    assert never_suspends(ScriptedModel([*raw, text("next")])) == [
        *raw,
        TextChunk(10, "next"),
        FinishChunk("tool_calls"),
    ]


def test_metadata_goes_to_the_block_before():
    assert never_suspends(ScriptedModel([text("a"), metadata("m")]))[1] == MetadataChunk("m", 0)


def test_finish_can_be_chosen_and_torn_leaves_it_out():
    assert never_suspends(ScriptedModel(["a", finish("max_tokens")]))[-1] == FinishChunk("max_tokens")
    assert never_suspends(ScriptedModel(["a", torn()])) == [TextChunk(0, "a")]


@pytest.mark.parametrize(("before", "kind"), [([], "generate"), (["a"], "stream")])
def test_an_error_code_becomes_a_provider_error(before, kind):
    with pytest.raises(ProviderError) as raised:
        play(ScriptedModel([*before, error("RATE_LIMIT", status=429, retry_after_s=2.5)]))

    got = raised.value
    assert (got.kind, got.code, got.retryable, got.status, got.retry_after_s) == (kind, "RATE_LIMIT", True, 429, 2.5)


def test_an_error_can_be_any_exception_and_again():
    mine = LookupError("mine")
    model = ScriptedModel(error(mine), error(mine), error(OSError, "gone"), error(KeyError))
    for expected in (LookupError, LookupError, OSError, KeyError):
        with pytest.raises(expected):
            never_suspends(model)
    assert mine.__traceback__ is not None
    assert model.opened == model.closed == 4


def test_an_exhausted_script_says_how_many_turns_were_played():
    model = ScriptedModel("one")
    play(model)
    with pytest.raises(ProviderError, match="has 1 turns, all were played, and request 2 came") as raised:
        play(model)
    assert raised.value.code == "SCRIPT_EXHAUSTED"
    assert not raised.value.retryable


def test_repeat_and_forever():
    assert [c[0].text for c in play(ScriptedModel("a", "b", repeat=True), 5)] == ["a", "b", "a", "b", "a"]
    assert [c[0].text for c in play(ScriptedModel("a", forever("z")), 4)] == ["a", "z", "z", "z"]
    assert ScriptedModel("a", forever("z")).remaining is None
    assert ScriptedModel("a", repeat=True).remaining is None
    with pytest.raises(ProviderError, match="exhausted"):
        play(ScriptedModel(repeat=True))


def test_a_turn_can_be_a_function_of_the_request():
    async def later(request):
        await anyio.sleep(60)
        return [text(request.model), call("t")]

    model = ScriptedModel(lambda request: f"{len(request.messages)} messages", forever(later))
    first, second, third = play(model, 3)

    assert first[0] == TextChunk(0, "1 messages")
    assert second[1].id == "call_2_1"
    assert third[1].id == "call_3_1"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_wait_pauses_the_stream(backend):
    async def main():
        event = anyio.Event()
        reached = []

        async def slowly():
            reached.append(anyio.current_time())
            await anyio.sleep(1)

        model = ScriptedModel([text("a"), wait(5), wait(event), wait(slowly), text("b")])
        async with anyio.create_task_group() as group:
            group.start_soon(drain, model)
            await anyio.sleep(60)
            event.set()
        return reached, model.closed

    (reached,), closed = run_virtual(main, backend=backend)
    assert reached >= 60
    assert closed == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_C6_a_hanging_stream_counts_as_closed_when_it_is_closed(backend):
    async def main():
        model = ScriptedModel([text("a"), hang()])
        with anyio.move_on_after(3):
            await drain(model)
        return model.opened, model.closed

    assert run_virtual(main, backend=backend) == (1, 1)


def test_wait_refuses_what_would_block_the_loop():
    for wrong in (threading.Event(), "soon"):
        with pytest.raises(TypeError, match=r"anyio\.Event"):
            wait(wrong)


def test_a_failed_check_is_recorded_and_raised():
    def two(request):
        assert len(request.messages) == 2, "two messages"

    model = ScriptedModel([check(lambda r: r.model == "m"), check(two), "never"], check(lambda r: False))
    for words in ("two messages", "returned False"):
        with pytest.raises(ProviderError, match=words) as raised:
            play(model)
        assert raised.value.code == "SCRIPT_CHECK"
    assert [type(failure) for failure in model.failures] == [AssertionError, AssertionError]
    with pytest.raises(AssertionError, match="two messages"):
        model.verify()


def test_a_check_that_raises_anything_did_not_hold():
    model = ScriptedModel([check(lambda request: request.messages[9]), "never"])
    with pytest.raises(ProviderError, match="the check of request 1 raised IndexError") as raised:
        play(model)
    assert raised.value.code == "SCRIPT_CHECK"
    with pytest.raises(AssertionError, match="IndexError"):
        model.verify()


def test_verify_wants_every_turn_played():
    with pytest.raises(AssertionError, match="got 1 turns left"):
        ScriptedModel("a").verify()


def test_requests_are_recorded_and_copied_if_asked():
    history = [UserMessage([TextBlock("hi")])]
    request = Request("m", View(history))
    kept, copied = ScriptedModel("a"), ScriptedModel("a", record=True)
    for model in (kept, copied):
        model.stream(request)
    history[0] = UserMessage([TextBlock("changed")])

    assert kept.requests[0] is request
    assert copied.requests[0].messages == (UserMessage([TextBlock("hi")]),)


def test_a_bad_script_is_refused_when_it_is_written():
    with pytest.raises(TypeError, match="in a script, got 3"):
        ScriptedModel([text("a"), 3])
    with pytest.raises(TypeError, match=r"in a script, got \{.text.: .hello.\}"):  # a turn as data
        ScriptedModel({"text": "hello"})
    with pytest.raises(ValueError, match="message=True"):
        ScriptedModel([metadata("m")])


def test_turns_can_be_added():
    model = ScriptedModel()
    model.add("a", "b")
    assert [c[0].text for c in play(model, 2)] == ["a", "b"]


def test_the_script_is_deterministic():
    script = [thinking("a" * 50, pieces=7), text("b" * 50, pieces=9), call("t", {"x": 1}, pieces=3)]
    assert play(ScriptedModel(script, repeat=True), 3) == play(ScriptedModel(script, repeat=True), 3)
