"""A live session under watch: what needs the running agent (O13, O14, O23, O24) or the derived history (O15 to O18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkrein import events as ev
from checkrein.chunks import (
    CallChunk,
    FinishChunk,
    MetadataChunk,
    OpaqueChunk,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from checkrein.events import AnyEvent
from checkrein.log import Page, Pages
from checkrein.messages import USER, CallBlock, OpaqueBlock, TextBlock, Usage
from checkrein.requests import Digester, header_bytes
from checkrein.rules import fold_all
from checkrein.session import Session, projections
from checkrein_invariants import Watch


def header_of(session: Session) -> bytes:
    header = session.state.header
    assert header is not None
    from checkrein.messages import Request

    request = Request(header.model, (), settings=header.settings, provider=header.provider)
    return header_bytes(request, header.system, header.tools)


class Live:
    """A real session, driven by hand as a loop drives it."""

    def __init__(self, **options: Any) -> None:
        self.session = Session("s1")
        self.watch = Watch(self.session, **options)
        self.session.observe(self.watch)
        self.append(ev.SessionCreated(format=1, session="s1", agent="main"))

    def append(self, event: ev.AnyEvent) -> ev.AnyEvent:
        return self.session.append(event)

    def begin(self) -> None:
        """Everything up to the open request."""
        state = self.session.state
        turn = state.turn + 1
        name = self.session.next_input()
        self.append(ev.InboxAccepted(id=name, kind="queued", content=[TextBlock("hi")], source=USER))
        self.append(ev.TurnStart(turn=turn, trigger={"kind": "input", "ids": [name]}))
        self.append(ev.UserInput(turn=turn, id=name, content=[TextBlock("hi")], source=USER))
        self.append(ev.StepStart(turn=turn, step=1))
        self.request()

    def request(self) -> None:
        state = self.session.state
        where = {"turn": state.turn, "step": state.step}
        if state.header is None:
            self.append(
                ev.RequestHeader(
                    **where,
                    reason="initial",
                    provider="p",
                    model="m",
                    settings={"temperature": 0.5},
                    system=[],
                    tools=[],
                )
            )
        assert state.header is not None
        view = state.history.view()
        digest = Digester().digest(header_of(self.session), view, 0, None)
        attempt = state.attempt + 1
        self.append(
            ev.RequestStart(
                **where,
                attempt=attempt,
                header=state.header.seq,
                messages=len(view),
                digest=digest,
            )
        )

    def end_request(self, outcome: str = "ok", **members: Any) -> None:
        state = self.session.state
        members = {"usage": Usage(input=3, output=2), **members}
        self.append(ev.RequestEnd(turn=state.turn, step=state.step, attempt=state.attempt, outcome=outcome, **members))

    def answer(self, *content: Any) -> None:
        state = self.session.state
        self.append(ev.AssistantAnswer(turn=state.turn, step=state.step, content=list(content)))
        for block in content:
            if isinstance(block, CallBlock):
                self.append(ev.ToolCalled(turn=state.turn, step=state.step, call_id=block.call_id, name=block.name))

    def end(self, kind: str = "completed", **members: Any) -> None:
        state = self.session.state
        self.append(ev.StepEnd(turn=state.turn, step=state.step))
        self.append(ev.TurnEnd(turn=state.turn, reason=ev.Reason(kind, **members), steps=state.step))

    def turn(self) -> None:
        self.begin()
        self.end_request()
        self.answer(TextBlock("hello"))
        self.end()

    def rules(self) -> set[str]:
        assert self.watch.failure is None, self.watch.failure
        found = self.watch.finish()
        assert self.watch.failure is None, self.watch.failure
        return {violation.rule for violation in found}


def test_a_right_session_has_no_violation() -> None:
    live = Live(deep=True)
    live.turn()
    live.begin()
    live.end_request()
    live.answer(TextBlock("I read"), CallBlock("c2.1.1", "read", "{}"), OpaqueBlock("p", {"x": 1}))
    where = {"turn": 2, "step": 1, "call_id": "c2.1.1"}
    live.append(ev.ToolStarted(**where, attempt=1, effect="effectful"))
    live.append(ev.ToolResulted(**where, content=[TextBlock("text")], is_error=False))
    live.append(ev.StepEnd(turn=2, step=1))
    live.append(ev.StepStart(turn=2, step=2))
    live.request()
    live.end_request()
    live.answer(TextBlock("done"))
    live.end()
    assert live.rules() == set()


# --- O13, O14 ----------------------------------------------------------------------------------------


def test_O13_only_closing_events_after_disposal_began() -> None:
    live = Live()
    live.begin()
    live.watch.status("disposed")
    live.end_request("cancelled")
    live.end("disposed")
    assert live.rules() == set()
    live.append(ev.InboxAccepted(id="i9", kind="queued", content=[TextBlock("late")], source=USER))
    assert live.rules() == {"O13"}


def test_O13_nothing_after_the_agent_is_gone() -> None:
    live = Live()
    live.turn()
    live.watch.status("disposed")
    live.watch.disposed()
    live.append(ev.PluginFaulted(plugin="p", hook="agent_disposed", error=ev.Fault("E", "x"), action="contained"))
    assert live.rules() == set()
    live.append(ev.Decision(turn=1, step=1, hook="h", outcome="stop"))
    assert live.rules() == {"O13"}


@pytest.mark.parametrize("words", [["running", "running"], ["idle", "idle"], ["disposed", "idle"], ["asleep"]])
def test_O14_illegal_status(words: list[str]) -> None:
    live = Live()
    for word in words:
        live.watch.status(word)
    live.turn()
    assert live.rules() - {"O13"} == {"O14"}


def test_O14_never_idle_in_an_open_turn() -> None:
    live = Live()
    live.watch.status("running")
    live.begin()
    live.watch.status("idle")
    live.end_request("cancelled")
    live.end("cancelled", cause=ev.Cause("user"))
    assert live.rules() == {"O14"}


# --- O23 -----------------------------------------------------------------------------------------------

DONE = FinishChunk("stop")
STREAMS: list[tuple[str, list[Any]]] = [
    ("torn", [TextChunk(0, "a")]),
    ("after finish", [DONE, TextChunk(0, "a")]),
    ("two types", [TextChunk(0, "a"), ThinkingChunk(0, "b"), DONE]),
    ("two usages", [UsageChunk(Usage()), UsageChunk(Usage()), DONE]),
    ("metadata of nothing", [MetadataChunk("x", 3), DONE]),
    ("a strange word", [FinishChunk("bored")]),
    ("no chunk", ["text", DONE]),
]
WHOLE = [
    ThinkingChunk(0, "a"),
    MetadataChunk("x", 0),
    TextChunk(1, "b"),
    CallChunk(2, "id", "n"),
    OpaqueChunk(3, {}),
    MetadataChunk("y"),
    UsageChunk(Usage()),
    DONE,
]


@pytest.mark.parametrize(("what", "chunks"), STREAMS, ids=[what for what, _ in STREAMS])
@pytest.mark.parametrize("outcome", ["ok", "error"])
def test_O23_only_a_whole_stream_gives_an_answer(what: str, chunks: list[Any], outcome: str) -> None:
    live = Live(stream=True)
    live.begin()
    for chunk in chunks:
        live.watch.chunk(chunk)
    live.end_request(outcome)
    live.end("error", error="stream")
    assert live.rules() == ({"O23"} if outcome == "ok" else set())


def test_O23_a_whole_stream_and_the_next_attempt_are_right() -> None:
    live = Live(stream=True)
    live.begin()
    live.watch.chunk(TextChunk(0, "torn"))
    live.end_request("interrupted")
    live.request()
    for chunk in WHOLE:
        live.watch.chunk(chunk)
    live.end_request()
    live.answer(TextBlock("b"))
    live.end()
    assert live.rules() == set()


# --- O15 to O18, O24 -------------------------------------------------------------------------------------


def change_history(live: Live) -> None:
    live.session.state.history.messages.pop()


def change_content(live: Live) -> None:
    event = next(event for event in live.session.events if isinstance(event, ev.AssistantAnswer))
    event.content[0] = TextBlock("something else")


def change_usage(live: Live) -> None:
    live.session.state.usage = Usage(input=1)


def change_pending(live: Live) -> None:
    live.session.state.pending["i7"] = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (change_history, {"O15"}),
        (change_content, {"O15", "O24"}),
        (change_usage, {"O18"}),
        (change_pending, {"O15"}),
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_what_changed_behind_the_log_is_found(change: Callable[[Live], None], rules: set[str], deep: bool) -> None:
    live = Live(deep=deep)
    live.turn()
    change(live)
    assert live.rules() <= rules
    assert live.rules()


def test_L3_a_session_that_was_folded_again_is_the_same() -> None:
    live = Live(deep=True)
    live.turn()
    live.session._refold()
    live.turn()
    assert live.rules() == set()


@pytest.mark.parametrize("members", [{"digest": "0" * 64}, {"messages": 7}])
def test_O16_a_request_that_the_log_does_not_give(members: dict[str, Any]) -> None:
    live = Live(deep=True)
    live.begin()
    live.end_request("error")
    state = live.session.state
    assert state.header is not None
    fields = {"attempt": 2, "header": state.header.seq, "messages": 1, "digest": "1" * 64, **members}
    live.append(ev.RequestStart(turn=1, step=1, **fields))
    live.end_request()
    live.answer(TextBlock("x"))
    live.end()
    assert live.rules() == {"O16"}


def test_C2_a_result_that_the_history_lost_is_found() -> None:
    live = Live(deep=True)
    live.begin()
    live.end_request()
    live.answer(CallBlock("c1.1.1", "read", "{}"))
    where = {"turn": 1, "step": 1, "call_id": "c1.1.1"}
    live.append(ev.ToolStarted(**where, attempt=1, effect="read_only"))
    live.append(ev.ToolResulted(**where, content=[TextBlock("real")], is_error=False))
    kept = live.watch._deep
    assert kept is not None
    message = kept.state.history.messages[-1]
    message.content[0] = TextBlock("made up")  # type: ignore[union-attr]
    live.end("cancelled", cause=ev.Cause("user"))
    assert "O15" in live.rules()


# --- observing ---------------------------------------------------------------------------------------------


def test_a_loaded_log_is_read_but_not_judged() -> None:
    """Whoever resumes a stranger's broken log is not to blame for it (L8)."""
    live = Live()
    live.turn()
    events = [event for event in live.session.events if event.type != "step/end"]
    lines = [live.session.lines[event.seq] for event in events]
    session = Session.load("s1", events, lines)
    watch = Watch(session)
    session.observe(watch)
    assert watch.finish() == []
    session.append(ev.InboxAccepted(id="i7", kind="queued", content=[TextBlock("x")], source=USER))
    assert watch.finish() == []
    session.append(ev.TurnStart(turn=2, trigger={"kind": "input", "ids": []}))
    assert {violation.rule for violation in watch.finish()} == {"O2"}


def test_what_is_in_the_store_is_not_read_and_what_comes_is_judged() -> None:
    """A resumed session with its older events behind pages: its first event may be of any kind."""
    live = Live()
    live.turn()
    live.turn()

    def unread() -> Any:
        raise AssertionError("an old event was asked for")

    events, lines = live.session.events, live.session.lines
    count = len(events) - 2
    state = projections({})
    fold_all(state, events)
    session = Session.load(
        "s1",
        Pages([Page(count, unread)], list(events[count:])),
        Pages([Page(count, unread)], list(lines[count:])),
        state=state,
    )
    watch = Watch(session, stream=True)
    session.observe(watch)
    watch.status("idle")
    for input_id in ("i3", "i4"):
        session.append(ev.InboxAccepted(id=input_id, kind="queued", content=[TextBlock("x")], source=USER))
    session.append(ev.TurnStart(turn=3, trigger={"kind": "input", "ids": ["i3"]}))
    session.append(ev.UserInput(turn=3, id="i3", content=[TextBlock("x")], source=USER))
    session.append(ev.StepStart(turn=3, step=1))
    assert watch.finish(open_ok=True, whole=False) == [] and watch.failure is None
    assert {violation.rule for violation in watch.finish(whole=False)} == {"O2", "O3"}
    assert watch.failure is None


def test_a_watch_never_raises_and_says_what_failed() -> None:
    live = Live()

    def broken(event: AnyEvent) -> None:
        raise RuntimeError("a bug of the oracle")

    live.watch._oracle.feed = broken  # type: ignore[method-assign]
    live.turn()
    live.watch.status("running")
    assert isinstance(live.watch.failure, RuntimeError)
    assert live.watch.finish() == []


def test_observers_events_are_read_in_the_order_of_the_log() -> None:
    live = Live()
    session = live.session

    def chatty(event: AnyEvent) -> None:
        if event.type == "turn/start":
            session.append_free("chat/note", {"n": 1})

    session.observe(chatty)
    live.turn()
    assert live.rules() == set()
    assert "chat/note" in [event.type for event in session.events]
