"""L5-L7, L9 and P4: what comes back out of a log, of any type, for any reader; what text it takes, and whose it is."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sessionkit import HELLO, TYPES, check_agrees, dump, session, steps, whole

from checkrein import Agent, Harness, hookimpl, tool
from checkrein import events as ev
from checkrein.agents import AgentSpec
from checkrein.closing import closed
from checkrein.codec import DamagedLine, decode, encode, seal
from checkrein.derive import is_object
from checkrein.errors import InvariantViolation, RefusedAtAppend
from checkrein.events import FreeEvent
from checkrein.messages import USER, CallBlock, TextBlock, UserMessage
from checkrein.recovery import recover
from checkrein.requests import rebuild
from checkrein.session import Session
from checkrein.testing import ScriptedModel, call, text, thinking

# --- L5 -----------------------------------------------------------------------------------------------------


def test_L5_whatever_append_accepted_loads_byte_for_byte():
    held = whole()
    found = recover_lines(held.lines)
    assert found.events == held.events and found.lines == held.lines and not found.gaps
    assert [seal(encode(event)) for event in found.events] == held.lines


def test_L1_L2_an_event_gets_its_place_when_it_is_appended_and_never_another():
    held = session()
    event = ev.InboxAccepted(id="i1", kind="queued", content=HELLO, source=USER)
    assert (event.seq, event.time) == (-1, 0)
    assert held.append(event) is event and held.events[-1] is event
    assert event.seq == len(held.events) - 1 and event.time > 0
    for refused in (event, ev.InboxDiscarded(7, 1, id="i1", reason="x")):  # one of this log, and one of another
        with pytest.raises(RefusedAtAppend, match="without seq, or seq 2"):
            held.append(refused)
    check_agrees(held)
    held.append(ev.InboxDiscarded(2, 1, id="i1", reason="x"))  # as a replay does: its own seq and time
    assert held.events[-1].time == 1
    check_agrees(held)


@pytest.mark.parametrize("body", [b'{"type":"step/start","time":5,"turn":1,"step":1}', b'{"type":"x/y","time":5}'])
def test_L5_a_line_without_seq_is_damage_and_no_event(body):
    with pytest.raises(DamagedLine, match="lacks"):
        decode(seal(body))
    found = recover_lines([seal(body), *session().lines])
    assert [event.seq for event in found.events] == [0] and found.skipped_bytes


def recover_lines(lines: list[bytes]) -> Any:
    from checkrein.store import StoredLog

    return recover(StoredLog(lines))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150)
@given(st.dictionaries(st.text(), JSON, max_size=5), st.text(min_size=1, max_size=20))
def test_L5_any_plain_json_of_any_type_word_comes_back(fields, word):
    held = session()
    try:
        held.append_free(word, fields)
    except RefusedAtAppend:
        assert any(name in fields for name in ("type", "seq", "time", "crc")) or word in ev.KNOWN or _surrogate(word)
        return
    again = recover_lines(held.lines).events[-1]
    assert again == held.events[-1] and seal(encode(again)) == held.lines[-1]


def _surrogate(word: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in word)


def test_L5_unknown_types_and_unknown_words_are_kept_opaque():
    """A later version's log opens here, and is written on without a change to its bytes."""
    held = whole()
    closed(held, ev.Reason("interrupted"))
    future = [
        {"type": "step/pause", "seq": 0, "time": 1, "turn": 3, "why": ["new", {"a": None}]},
        {"type": "turn/start", "seq": 0, "time": 1, "turn": 3, "trigger": {"kind": "telepathy"}, "mood": "good"},
        {"type": "turn/end", "seq": 0, "time": 1, "turn": 3, "reason": "a word", "steps": 0},
    ]
    lines = list(held.lines)
    for fields in future:
        fields["seq"] = len(lines)
        lines.append(seal(msgspec.json.encode(fields)))
    found = recover_lines(lines)
    assert found.lines == lines and not found.gaps
    again = Session.load("s", found.events, found.lines, dict(TYPES))
    assert type(again.events[-3]) is FreeEvent and type(again.events[-1]) is FreeEvent
    assert not again.state.turn_open and again.state.turn == 3, "structural members are read all the same"
    again.append(ev.InboxAccepted(id="i9", kind="queued", content=HELLO, source=USER))
    assert again.lines[: len(lines)] == lines


# --- L6 -----------------------------------------------------------------------------------------------------


@pytest.mark.checkrein_oracle_off(reason="appends that are refused are the subject")
def test_L6_a_plugins_pairs_are_balanced_by_its_rule():
    held = session()
    held.append_free("job/open", {"job": "a"}, plugin="jobs")
    with pytest.raises(InvariantViolation, match="O22"):
        held.append_free("job/open", {"job": "a"})
    with pytest.raises(InvariantViolation, match="O22"):
        held.append_free("job/close", {"job": "b"})
    held.append(ev.InboxAccepted(id="i1", kind="queued", content=HELLO, source=USER))
    held.append(ev.TurnStart(turn=1, trigger={}))
    closed(held, ev.Reason("interrupted"))
    closing = next(event for event in held.events if event.type == "job/close")
    assert isinstance(closing, FreeEvent) and closing.fields == {"why": "closed", "job": "a", "plugin": "jobs"}


def test_L6_a_model_visible_event_is_seen_with_and_without_its_plugin():
    held = whole()
    stranger = Session.load("s", held.events, held.lines, {})
    assert dump(list(stranger.state.history.view())) == dump(list(held.state.history.view()))


# --- L7 -----------------------------------------------------------------------------------------------------


def test_L7_every_request_can_be_rebuilt_to_its_digest(run):
    @tool(read_only=True)
    async def look(n: int) -> str:
        """Look."""
        return f"saw {n}"

    class Changes:
        @hookimpl
        def agent_request(self, request: Any, step: int) -> Any:
            messages = [UserMessage([TextBlock(f"step {step}")]), *request.messages[-2 * step :]]
            return request.replace(settings={"step": step}, messages=messages)

    model = ScriptedModel(
        [thinking("hm", metadata="c2ln"), call("look", {"n": 1})], call("look", {"n": 2}), "done", record=True
    )

    async def main() -> list[Any]:
        async with Agent(model, tools=[look], plugins=[Changes()], system_prompt="be brief") as agent:
            (await agent.run("go")).check()
            return list(agent.session.events)

    events = run(main)
    starts = [event for event in events if type(event) is ev.RequestStart]
    assert len(starts) == 3
    for start, sent in zip(starts, model.requests, strict=True):
        request, digest = rebuild(events, start.seq)
        assert digest == start.digest
        assert list(request.messages) == list(sent.messages) and request.settings == sent.settings


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (ev.RequestHeader, {"provider": "other"}),
        (ev.RequestHeader, {"model": "other"}),
        (ev.RequestHeader, {"settings": {"temperature": 1}}),
        (ev.RequestHeader, {"system": []}),
        (ev.RequestHeader, {"tools": []}),
        (ev.UserInput, {"content": [TextBlock("stop")]}),
        (ev.AssistantAnswer, {"content": [TextBlock("other"), CallBlock("c1.1.1", "look", "{}")]}),
        (ev.ToolResulted, {"content": [TextBlock("other")]}),
    ],
)
def test_L7_a_digest_is_of_all_that_was_sent(run, kind, change):
    """A log in which any part of a request says something else has another digest than was recorded."""

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return "saw"

    async def main() -> list[Any]:
        async with Agent(
            ScriptedModel([text("well"), call("look")], "done"), tools=[look], system_prompt="be brief"
        ) as a:
            (await a.run("go")).check()
            return list(a.session.events)

    events = run(main)
    last = [event for event in events if type(event) is ev.RequestStart][-1]
    assert rebuild(events, last.seq)[1] == last.digest
    at = next(place for place, event in enumerate(events) if type(event) is kind)
    events[at] = msgspec.structs.replace(events[at], **change)
    assert rebuild(events, last.seq)[1] != last.digest


def test_a_call_block_is_known_from_the_answer_alone():
    """R2: calls are known from the answers' blocks, not only from tool/call."""
    held = session()
    for step in steps(held)[:43]:
        step()
    assert type(held.events[-1]) is ev.AssistantAnswer and isinstance(held.events[-1].content[0], CallBlock)
    assert list(held.state.due) == ["c2.1.1", "c2.1.2"]
    closed(held, ev.Reason("interrupted"))
    codes = [e.error.code for e in held.events if type(e) is ev.ToolResulted and e.error]
    assert codes[-2:] == ["NOT_STARTED", "NOT_STARTED"]


# --- L9 -----------------------------------------------------------------------------------------------------


def test_L9_text_is_cleaned_at_the_border_and_counted(run):
    @tool(read_only=True)
    async def odd() -> str:
        """Return half a character."""
        return "half \ud83d"

    async def main() -> list[Any]:
        model = ScriptedModel([text("smile \ud83d\ude00 half \ud800"), call("odd")], "done")
        async with Agent(model, tools=[odd], system_prompt="be \udfff brief") as agent:
            (await agent.run("in \ud800put")).check()
            return list(agent.session.events)

    events = run(main)
    said = {type(e): e for e in events}
    assert said[ev.InboxAccepted].content[0].text == "in \ufffdput" and said[ev.InboxAccepted].cleaned == 1
    first = next(e for e in events if type(e) is ev.AssistantAnswer)
    assert first.content[0].text == "smile \U0001f600 half \ufffd" and first.cleaned == 1
    assert said[ev.ToolResulted].content[0].text == "half \ufffd" and said[ev.ToolResulted].cleaned == 1


def test_L9_a_surrogate_that_reaches_append_is_refused_and_says_what_to_do():
    held = session()
    with pytest.raises(RefusedAtAppend, match="clean"):
        held.append(ev.InboxAccepted(id="i1", kind="queued", content=[TextBlock("\ud800")], source=USER))
    check_agrees(held)


# --- P4 -----------------------------------------------------------------------------------------------------


def test_P4_two_harnesses_in_one_process_share_nothing(run):
    class Counts:
        def __init__(self) -> None:
            self.seen: list[str] = []

        @hookimpl
        def session_event(self, session: Any, event: Any) -> None:
            self.seen.append(session.id)

    @tool
    async def one() -> str:
        """One."""
        return "1"

    @tool(name="one")
    async def other() -> str:
        """Another of this name."""
        return "2"

    async def main() -> None:
        a, b = Counts(), Counts()
        options: dict[str, Any] = {"found": (), "overrides": {"model": "scripted:x"}}
        first = Harness(tools=[one], plugins=[a], providers=[ScriptedModel(call("one"), "a")], **options)
        second = Harness(tools=[other], plugins=[b], providers=[ScriptedModel(call("one"), "b")], **options)
        first.specs = second.specs = [AgentSpec(model="scripted:x")]
        async with first, second:
            x, y = first.agents["main"], second.agents["main"]
            results: list[Any] = []
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: _run(x, results))
                group.start_soon(lambda: _run(y, results))
            assert sorted(result.text for result in results) == ["a", "b"]
            assert set(a.seen) == {x.session.id} and set(b.seen) == {y.session.id}
            first.plugins.unregister(first.plugins.names()[0])
            assert second.plugins.names() and not first.plugins.names()
            outcomes = [e.content[0].text for s in (x, y) for e in s.session.events if type(e) is ev.ToolResulted]
            assert outcomes == ["1", "2"]
            assert x.session.state.types is not y.session.state.types

    async def _run(agent: Any, results: list[Any]) -> None:
        results.append(await agent.run("go"))

    run(main)


@pytest.mark.checkrein_oracle_off(reason="observers append what stands in the log already")
@pytest.mark.parametrize("kind", ["known", "free"])
def test_L2_L4_an_observer_cannot_give_an_event_of_the_log_another_place(kind):
    """The one it is told of, or one of its own handed over twice: a fault of the observer, and the log is as it was."""
    held = session()
    faults: list[str] = []
    held.on_fault = lambda of, plugin, exc, event: faults.append(f"{type(exc).__name__}: {exc}")
    own = FreeEvent("x/own", -1, 0, {}) if kind == "free" else ev.InboxDiscarded(id="i1", reason="x")

    def appends(event: Any) -> None:
        if event.type == "inbox/accepted":
            for again in (event, own, own):
                held.append(again)
            held.append_free("x/last", {})

    held.observe(appends)
    accepted = held.append(ev.InboxAccepted(id="i1", kind="queued", content=HELLO, source=USER))
    assert [event.type for event in held.events[1:]] == ["inbox/accepted", own.type, "x/last"]
    assert (accepted.seq, own.seq) == (1, 2) and len(faults) == 2, faults
    assert all("without seq" in fault for fault in faults)
    check_agrees(held)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", True),
        ('{"a":"\\ud800"}', True),  # half a character, as it is replaced everywhere
        ('{"a":' + "9" * 400 + "}", True),
        ('{"a":NaN}', False),
        ('{"a":1e400}', False),
        ("[1]", False),
        ("null", False),
        ('{"a":1}x', False),
        ("", False),
    ],
)
def test_L8_which_arguments_stay_as_the_model_wrote_them(text, expected):
    """Those that are one JSON object which can be sent again; others become {} in the derivation."""
    assert is_object(text) == expected
