"""What the session tests share: dumping projections, one log with everything in it, striking at a line."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

import checkrein
from checkrein import events as ev
from checkrein.codec import encode, seal
from checkrein.eventtypes import Balance, EventType
from checkrein.messages import USER, CallBlock, TextBlock, Usage
from checkrein.session import Session

HELLO = [TextBlock("hello")]
HOME = Path(checkrein.__file__).parent
TYPES = {
    "job/open": EventType("job/open", balance=Balance("job/open", "job/close", "job", lambda e: {"why": "closed"})),
    "job/close": EventType("job/close"),
    "note/seen": EventType("note/seen", model_visible=True),
}


def session(session_id: str = "s") -> Session:
    """A session with plugins' event types, and its first event."""
    made = Session(session_id, dict(TYPES))
    made.append(ev.SessionCreated(format=1, session=session_id, agent="main", cwd="/w"))
    return made


def dump(value: Any) -> Any:
    """A value and all it is made of, as plain data."""
    if isinstance(value, (str, int, float, bytes, bool, type(None))):
        return value
    if isinstance(value, (list, tuple, deque)):
        return [dump(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, dict):
        return {str(key): dump(item) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        return [type(value).__name__, msgspec.to_builtins(value)]
    names = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())] or list(vars(value))
    return [type(value).__name__, {name: dump(getattr(value, name, None)) for name in names if name != "__weakref__"}]


def state_of(held: Session) -> Any:
    """A session's projections as data, without the registered types."""
    return {name: dump(item) for name, item in held.state.members().items() if name not in ("types", "closes")}


def check_agrees(held: Session) -> None:
    """State, bytes and events say the same (L3)."""
    assert len(held.lines) == len(held.events)
    assert [event.seq for event in held.events] == list(range(len(held.events)))
    assert held.lines == [seal(encode(event)) for event in held.events]
    assert state_of(held) == state_of(Session.load(held.id, held.events, held.lines, held.types))
    assert not held.notifying


def steps(held: Session) -> list[Callable[[], Any]]:
    """The appends of a log in which everything happens once, one function each; the last step stays open."""
    append, state = held.append, held.state
    at = {"turn": 1, "step": 1}
    call = {**at, "call_id": "c1.1.1"}
    other = {**at, "call_id": "c1.1.2"}
    answer = [TextBlock("let me"), CallBlock("c1.1.1", "act", '{"n":1}'), CallBlock("c1.1.2", "act", "{}")]
    header = {"provider": "p", "model": "m", "settings": {}, "system": ["a" * 16], "tools": []}
    request = {"attempt": 1, "messages": 1, "digest": "d"}
    summary = {"message": {"role": "user", "content": "short"}, "tokens_before": 9, "tokens_after": 1}
    second = {"turn": 2, "step": 1}
    return [
        lambda: append(ev.InboxAccepted(id="i1", kind="queued", content=HELLO, source=USER)),
        lambda: append(ev.InboxAccepted(id="i2", kind="steering", content=HELLO, source=USER)),
        lambda: append(ev.InboxAccepted(id="i3", kind="context", content=HELLO, source=USER)),
        lambda: append(ev.InboxAccepted(id="i4", kind="queued", content=HELLO, source=USER, key="k")),
        lambda: append(ev.InboxReplaced(id="i4", content=[TextBlock("other")])),
        lambda: append(ev.InboxDiscarded(id="i4", reason="withdrawn")),
        lambda: append(ev.TurnStart(turn=1, trigger={"kind": "input", "ids": ["i1"]})),
        lambda: append(ev.UserInput(turn=1, id="i1", content=HELLO, source=USER)),
        lambda: append(ev.StepStart(**at)),
        lambda: append(ev.SteeringInput(**at, id="i2", content=HELLO, source=USER)),
        lambda: append(ev.ContextInput(**at, id="i3", content=HELLO, source=USER)),
        lambda: append(ev.PromptPart(id="a" * 16, kind="system", content="be brief")),
        lambda: append(ev.RequestHeader(**at, reason="initial", **header)),
        lambda: append(ev.RequestStart(**at, header=state.header.seq, **request)),
        lambda: append(ev.AssistantThinking(**at, index=0, text="hm")),
        lambda: append(ev.RequestEnd(**at, attempt=1, outcome="ok", usage=Usage(input=3, output=2))),
        lambda: append(ev.AssistantAnswer(**at, content=answer)),
        lambda: append(ev.ToolCalled(**call, name="act")),
        lambda: append(ev.ToolCalled(**other, name="act")),
        lambda: append(ev.ToolStarted(**other, attempt=1, effect="effectful")),
        lambda: append(ev.ToolCalled(**at, call_id="c1.1.2.1", name="act", parent="c1.1.2")),
        lambda: append(ev.ToolStarted(**at, call_id="c1.1.2.1", attempt=1, effect="read_only")),
        lambda: append(ev.ToolResulted(**at, call_id="c1.1.2.1", content=HELLO, is_error=False)),
        lambda: append(ev.ToolEnded(**other, content=HELLO, is_error=False)),
        lambda: held.append_free("job/open", {"job": "j1"}, plugin="jobs"),
        lambda: append(ev.ApprovalAsked(id="a1", call_id="c1.1.1", summary="?")),
        lambda: append(ev.ApprovalDecided(id="a1", outcome="denied")),
        lambda: append(ev.ToolResulted(**call, content=HELLO, is_error=True)),
        lambda: append(ev.ToolResulted(**other, end=held.state.calls["c1.1.2"].end.seq, is_error=False)),
        lambda: held.append_free("job/close", {"job": "j1"}, plugin="jobs"),
        lambda: append(ev.StepEnd(**at)),
        lambda: append(ev.TurnEnd(turn=1, reason=ev.Reason("completed"), steps=1)),
        lambda: held.append_free("note/seen", {"message": {"role": "user", "content": "seen"}}, plugin="notes"),
        lambda: append(ev.CompactionStart(id="k1", range=(0, 5))),
        lambda: append(ev.CompactionSummary(id="k1", range=(0, 5), **summary)),
        lambda: append(ev.CompactionEnd(id="k1", range=(0, 5), outcome="ok")),
        lambda: append(ev.InboxAccepted(id="i5", kind="queued", content=HELLO, source=USER)),
        lambda: append(ev.TurnStart(turn=2, trigger={"kind": "input", "ids": ["i5"]})),
        lambda: append(ev.UserInput(turn=2, id="i5", content=HELLO, source=USER)),
        lambda: append(ev.StepStart(**second)),
        lambda: append(ev.RequestStart(**second, header=state.header.seq, **request)),
        lambda: append(ev.RequestEnd(**second, attempt=1, outcome="ok", usage=Usage(input=1, output=1))),
        lambda: append(
            ev.AssistantAnswer(**second, content=[CallBlock("c2.1.1", "act", "{}"), CallBlock("c2.1.2", "act", "{}")])
        ),
        lambda: append(ev.ToolCalled(**second, call_id="c2.1.1", name="act")),
        lambda: append(ev.ToolCalled(**second, call_id="c2.1.2", name="act")),
        lambda: append(ev.ToolStarted(**second, call_id="c2.1.1", attempt=1, effect="effectful")),
        lambda: append(ev.ToolCalled(**second, call_id="c2.1.1.1", name="act", parent="c2.1.1")),
        lambda: append(ev.ApprovalAsked(id="a2", call_id="c2.1.2", summary="?")),
        lambda: held.append_free("job/open", {"job": "j2"}, plugin="jobs"),
        lambda: append(ev.CompactionStart(id="k2", range=(0, 5))),
    ]


def whole() -> Session:
    """A session in which all of that happened."""
    held = session()
    for step in steps(held):
        step()
    return held


class Strike:
    """Raises at the k-th line executed in some of checkrein's modules while it is on, and counts lines.

    Args:
        k: which line, from 0; None only counts.
        exc: what is raised.
        modules: the modules' names, without `.py`.
        times: how many lines in a row are struck.
    """

    def __init__(self, k: int | None, exc: type[BaseException], modules: tuple[str, ...], times: int = 1) -> None:
        self.k = k
        self.exc = exc
        self.files = {str(HOME / f"{name}.py") for name in modules}
        self.times = times
        self.lines = 0
        self.struck: list[str] = []

    def __enter__(self) -> Strike:
        sys.settrace(self._call)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename in self.files else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            n = self.lines
            self.lines += 1
            if self.k is not None and self.k <= n < self.k + self.times:
                self.struck.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
                raise self.exc(f"struck at {self.struck[-1]}")
        return self._line
