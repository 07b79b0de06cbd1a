"""Hypothesis strategies: right logs, and right histories, from a small grammar of what a loop does.

    @given(logs())
    def test_x(log): assert not check_events(log.events)

Needs hypothesis, which is no dependency of checkrein.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from checkrein.events import Cause
from checkrein.messages import (
    AssistantMessage,
    Block,
    CallBlock,
    MediaBlock,
    Message,
    OpaqueBlock,
    Source,
    TextBlock,
    ThinkingBlock,
    ToolMessage,
    Usage,
    UserMessage,
)

from .builder import LogBuilder

__all__ = ["logs", "histories", "texts"]

_SOURCES = (Source("user"), Source("plugin", name="p"), Source("agent", id="a"), Source("schedule", id="s"))
_EFFECTS = ("read_only", "idempotent", "effectful")
_CODES = ("NOT_STARTED", "OUTCOME_UNKNOWN", "DENIED", "UNKNOWN_TOOL", "INVALID_ARGUMENTS", "TIMEOUT", "TOOL_ERROR")


def texts() -> st.SearchStrategy[str]:
    """Text that UTF-8 can carry, not empty."""
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@st.composite
def logs(draw: st.DrawFn, max_turns: int = 4) -> LogBuilder:
    """A right log of up to `max_turns` turns, each of any shape and end; the builder that wrote it."""
    log = LogBuilder()
    for _ in range(draw(st.integers(0, max_turns))):
        _Turn(draw, log).write()
        if draw(st.integers(0, 5)) == 0:
            log.compact(1, len(log.events) - 1)
    return log


class _Turn:
    """Draws one turn."""

    def __init__(self, draw: Any, log: LogBuilder) -> None:
        self.draw = draw
        self.log = log
        self.approvals = sum(event.type == "approval/asked" for event in log.events)

    def chance(self, one_in: int) -> bool:
        return bool(self.draw(st.integers(1, one_in)) == 1)

    def accept(self, kind: str = "queued") -> str:
        return self.log.accept(self.draw(texts()), kind=kind, source=self.draw(st.sampled_from(_SOURCES)))

    def write(self) -> None:
        log = self.log
        if self.chance(4):
            log.discard(self.accept())
        log.start_turn(*[self.accept() for _ in range(self.draw(st.integers(1, 2)))])
        ends = "completed"
        for _ in range(self.draw(st.integers(0, 3))):
            ends = self.step()
            if ends != "calls":
                break
        if not log.step or ends == "calls":
            ends = self.draw(st.sampled_from(("cancelled", "step_limit"))) if log.step else "cancelled"
        self.end(ends)

    def end(self, ends: str) -> None:
        members: dict[str, Any] = {}
        if ends == "failed":
            ends = self.draw(st.sampled_from(("error", "interrupted", "disposed")))
            members = {"error": "stream", "code": "X"} if ends == "error" else {}
        elif ends == "cancelled":
            members = {"cause": Cause(self.draw(st.sampled_from(("user", "parent", "signal", "task"))))}
        self.log.end_turn(ends, **members)

    def step(self) -> str:
        """Write a step; returns `calls`, `completed`, `failed` or `cancelled`."""
        log = self.log
        log.start_step()
        if self.chance(4):
            log.steer(self.accept("steering"))
        if self.chance(4):
            log.context(self.accept("context") if self.chance(2) else None)
        ends = self.request()
        if ends == "ok":
            calls = self.draw(st.integers(0, 3))
            thinking = [0] if self.thought else []
            ids = log.answer(self.draw(texts()), [("tool", "{}")] * calls, thinking)
            ends = "calls" if ids else "completed"
            self.run(ids)
        log.end_step()
        return ends

    def request(self) -> str:
        log, draw = self.log, self.draw
        while True:
            if self.chance(6):
                log.header("change", model=draw(st.sampled_from(("m3", "m4"))) + str(len(log.events)))
            log.start_request()
            self.thought = self.chance(3)
            if self.thought:
                log.think(draw(texts()))
            outcome = draw(st.sampled_from(("ok", "ok", "ok", "error", "interrupted", "cancelled")))
            if outcome == "ok":
                log.end_request(usage=Usage(input=draw(st.integers(0, 9)), output=9, reasoning=draw(st.integers(0, 9))))
                return "ok"
            log.end_request(outcome)
            if self.chance(2):
                log.partial(draw(texts()))
            if outcome == "cancelled" or not self.chance(2):
                return "cancelled" if outcome == "cancelled" else "failed"

    def run(self, ids: list[str]) -> None:
        """Run the calls in any order; results go in the model's."""
        log, draw = self.log, self.draw
        ends: dict[str, tuple[int, bool]] = {}
        due = list(ids)
        for call_id in draw(st.permutations(ids)):
            if draw(st.booleans()):
                self.begin(call_id)
                code = None
            else:
                code = draw(st.sampled_from(_CODES))
            if call_id != due[0]:
                ends[call_id] = (log.end(call_id, draw(texts()), is_error=code is not None), code is not None)
                continue
            log.result(call_id, draw(texts()), code)
            due.pop(0)
            while due and due[0] in ends:
                seq, failed = ends[due[0]]
                log.result(due.pop(0), end=seq, is_error=failed)

    def begin(self, call_id: str) -> None:
        log = self.log
        if self.chance(4):
            self.approvals += 1
            log.ask(call_id, f"a{self.approvals}")
            log.decide(f"a{self.approvals}")
        effect = self.draw(st.sampled_from(_EFFECTS))
        log.start(call_id, effect)
        if effect != "effectful" and self.chance(4):
            log.start(call_id, effect, attempt=2)
        if self.chance(5):
            inner = log.nested(call_id)
            log.start(inner, effect)
            log.result(inner)


# --- histories -------------------------------------------------------------------------------------


def _media() -> st.SearchStrategy[Block]:
    return st.sampled_from(
        (
            MediaBlock("image/png", data="aGk="),
            MediaBlock("audio/wav", data="aGk="),
            MediaBlock("text/csv", blob="0" * 64),
        )
    )


@st.composite
def histories(draw: st.DrawFn, max_turns: int = 3) -> list[Message]:
    """A right derived history: neutral messages that may be sent."""
    out: list[Message] = []
    text: st.SearchStrategy[Block] = texts().map(TextBlock)
    content = st.lists(text | _media(), min_size=1, max_size=2)
    for turn in range(1, draw(st.integers(1, max_turns)) + 1):
        out.append(UserMessage(draw(content)))
        for step in range(1, draw(st.integers(0, 2)) + 1):
            extra: list[Block] = [ThinkingBlock(0, "hm"), OpaqueBlock("x", {"a": 1})]
            blocks = draw(st.lists(st.sampled_from(extra), max_size=2)) + draw(st.lists(text, max_size=1))
            calls = [
                CallBlock(f"c{turn}.{step}.{n}", draw(texts()), draw(st.sampled_from(("{}", '{"a": [1]}'))))
                for n in range(1, draw(st.integers(1, 3)) + 1)
            ]
            out.append(AssistantMessage([*blocks, *calls], "x", "m"))
            out += [ToolMessage(call.call_id, call.name, draw(content), draw(st.booleans())) for call in calls]
        if draw(st.booleans()):
            out.append(AssistantMessage([draw(text)], "x", "m"))
    if isinstance(out[-1], AssistantMessage):
        out.append(UserMessage([draw(text)]))
    return out
