"""A builder of logs, one event at a time, as a loop would write them.

For tests: it numbers events, inputs, turns, steps and calls and knows what the rules ask for; it
checks nothing, so a wrong log is built as easily as a right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from checkrein.events import (
    AnyEvent,
    ApprovalAsked,
    ApprovalDecided,
    AssistantAnswer,
    AssistantPartial,
    AssistantThinking,
    Cause,
    CompactionEnd,
    CompactionStart,
    CompactionSummary,
    ContextInput,
    ErrorInfo,
    Event,
    Fault,
    FreeEvent,
    InboxAccepted,
    InboxDiscarded,
    PluginFaulted,
    PromptPart,
    Reason,
    RequestEnd,
    RequestHeader,
    RequestStart,
    SessionCreated,
    SteeringInput,
    StepEnd,
    StepStart,
    ToolCalled,
    ToolEnded,
    ToolErrorInfo,
    ToolResulted,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserInput,
)
from checkrein.messages import USER, CallBlock, Content, Source, TextBlock, ThinkingBlock, Usage, as_content

__all__ = ["LogBuilder", "renumber"]

_EPOCH_MS = 1_800_000_000_000


class LogBuilder:
    """Writes a log.

    Attributes:
        events: what was written so far.
        turn: the number of the open turn, or of the last one.
        step: the number of the open step, or of the last one.
    """

    def __init__(self, session: str = "s1", agent: str = "main") -> None:
        self.events: list[AnyEvent] = []
        self.turn = 0
        self.step = 0
        self._inputs: dict[str, tuple[Content, Source]] = {}
        self._calls = 0
        self._attempt = 0
        self._header = -1
        self._messages = 0
        self._compactions = 0
        self.add(SessionCreated, format=1, session=session, agent=agent, version="0")

    def add(self, cls: type[Event], /, **members: Any) -> int:
        """Write an event of this kind; returns its seq."""
        seq = len(self.events)
        self.events.append(cls(seq=seq, time=_EPOCH_MS + seq, **members))  # type: ignore[arg-type]
        return seq

    def free(self, word: str, /, **fields: Any) -> int:
        """Write an event of a type we do not know; returns its seq."""
        seq = len(self.events)
        self.events.append(FreeEvent(word, seq, _EPOCH_MS + seq, fields))
        return seq

    def _step_event(self, cls: type[Event], /, **members: Any) -> int:
        return self.add(cls, turn=self.turn, step=self.step, **members)

    # --- input -----------------------------------------------------------------------------------------

    def accept(self, text: str = "hello", kind: str = "queued", source: Source = USER, **members: Any) -> str:
        """Write an accepted input; returns its id."""
        input_id = f"i{len(self._inputs) + 1}"
        content = as_content(text)
        self._inputs[input_id] = (content, source)
        self.add(InboxAccepted, id=input_id, kind=kind, content=content, source=source, **members)
        return input_id

    def discard(self, input_id: str, reason: str = "withdrawn") -> int:
        """Write that a pending input will not be taken."""
        return self.add(InboxDiscarded, id=input_id, reason=reason)

    # --- turns and steps -------------------------------------------------------------------------------

    def start_turn(self, *ids: str, mark: str | None = None) -> int:
        """Start the next turn, taking these queued inputs; without any, one is accepted first."""
        ids = ids or (self.accept(),)
        self.turn += 1
        self.step = 0
        seq = self.add(TurnStart, turn=self.turn, trigger={"kind": "input", "ids": list(ids)})
        for input_id in ids:
            content, source = self._inputs[input_id]
            self.add(UserInput, turn=self.turn, id=input_id, content=content, source=source, mark=mark)
            self._messages += 1
        return seq

    def end_turn(self, kind: str = "completed", **members: Any) -> int:
        """End the turn; `cancelled` and `error` get a cause and a kind if none is given."""
        if kind == "cancelled":
            members.setdefault("cause", Cause("user"))
        elif kind == "error":
            members.setdefault("error", "generate")
        elif kind == "step_limit":
            members.setdefault("max_steps", self.step)
        return self.add(TurnEnd, turn=self.turn, reason=Reason(kind, **members), steps=self.step)

    def start_step(self) -> int:
        """Start the next step of the turn."""
        self.step += 1
        self._calls = self._attempt = 0
        return self._step_event(StepStart)

    def end_step(self) -> int:
        """End the step."""
        return self._step_event(StepEnd)

    def steer(self, input_id: str) -> int:
        """Take a steering input at this step's beginning."""
        content, source = self._inputs[input_id]
        self._messages += 1
        return self._step_event(SteeringInput, id=input_id, content=content, source=source)

    def context(self, input_id: str | None = None, text: str = "context", plugin: str = "notes") -> int:
        """Take injected context at this step's beginning, or write what a plugin brought."""
        self._messages += 1
        if input_id is None:
            source = Source("plugin", name=plugin)
            return self._step_event(ContextInput, content=as_content(text), source=source, plugin=plugin)
        content, source = self._inputs[input_id]
        return self._step_event(ContextInput, id=input_id, content=content, source=source)

    # --- requests --------------------------------------------------------------------------------------

    def header(
        self, reason: str = "initial", model: str = "m1", provider: str = "scripted", system: str = "Be brief."
    ) -> int:
        """Write the system prompt's part, if it is new, and a request header."""
        part = sha256(system.encode()).hexdigest()[:16]
        if not any(isinstance(event, PromptPart) and event.id == part for event in self.events):
            self.add(PromptPart, id=part, kind="system", content=system)
        self._header = self._step_event(
            RequestHeader, reason=reason, provider=provider, model=model, settings={}, system=[part], tools=[]
        )
        return self._header

    def start_request(self, **members: Any) -> int:
        """Start the next attempt; the first one of the log writes its header before it."""
        if self._header < 0:
            self.header()
        self._attempt += 1
        members = {"messages": max(1, self._messages), "digest": "0" * 64, **members}
        return self._step_event(RequestStart, attempt=self._attempt, header=self._header, **members)

    def think(self, text: str = "hmm", index: int = 0) -> int:
        """Write a burst of thinking."""
        return self._step_event(AssistantThinking, index=index, text=text)

    def end_request(self, outcome: str = "ok", **members: Any) -> int:
        """End the attempt; one that failed gets an error, one that did not gets usage."""
        if outcome == "ok":
            members = {"finish_reason": "stop", "usage": Usage(input=10, output=5), **members}
        elif outcome == "error":
            members.setdefault("error", ErrorInfo("stream", "connection lost"))
        return self._step_event(RequestEnd, attempt=self._attempt, outcome=outcome, duration_ms=5, **members)

    def answer(
        self, text: str = "hi", calls: Sequence[tuple[str, str]] = (), thinking: Sequence[int] = ()
    ) -> list[str]:
        """Write the answer and its tool/call events.

        Args:
            text: its text; none if empty.
            calls: name and raw arguments of each call.
            thinking: the indices of thinking bursts it holds.

        Returns:
            The ids of its calls.
        """
        content: Content = [ThinkingBlock(index) for index in thinking]
        content += [TextBlock(text)] if text else []
        blocks = [CallBlock(self._call_id(), name, arguments) for name, arguments in calls]
        self._step_event(AssistantAnswer, content=[*content, *blocks])
        self._messages += 1 + len(blocks)
        for block in blocks:
            self._step_event(ToolCalled, call_id=block.call_id, name=block.name)
        return [block.call_id for block in blocks]

    def partial(self, text: str = "half") -> int:
        """Write text that was shown but is no answer."""
        return self._step_event(AssistantPartial, text=text)

    # --- calls -----------------------------------------------------------------------------------------

    def _call_id(self) -> str:
        self._calls += 1
        return f"c{self.turn}.{self.step}.{self._calls}"

    def nested(self, parent: str, name: str = "inner") -> str:
        """Write a nested call; returns its id."""
        call_id = self._call_id()
        self._step_event(ToolCalled, call_id=call_id, name=name, parent=parent)
        return call_id

    def start(self, call_id: str, effect: str = "effectful", attempt: int = 1) -> int:
        """Write that a call begins to run."""
        return self._step_event(ToolStarted, call_id=call_id, attempt=attempt, effect=effect)

    def end(self, call_id: str, text: str = "done", is_error: bool = False) -> int:
        """Write that a call ended while an earlier one is open."""
        return self._step_event(ToolEnded, call_id=call_id, content=as_content(text), is_error=is_error)

    def result(self, call_id: str, text: str = "done", code: str | None = None, **members: Any) -> int:
        """Write a call's result; with a code it is an error, with `end=` its content stands in a tool/end."""
        if "end" not in members:
            members["content"] = as_content(text)
        error = None if code is None else ToolErrorInfo(code, code)
        members.setdefault("is_error", code is not None)
        return self._step_event(ToolResulted, call_id=call_id, error=error, **members)

    def ask(self, call_id: str, approval: str) -> int:
        """Write that somebody must allow a call."""
        return self.add(ApprovalAsked, id=approval, call_id=call_id, summary="run it?")

    def decide(self, approval: str, outcome: str = "allowed_once") -> int:
        """Write the answer to an approval."""
        return self.add(ApprovalDecided, id=approval, outcome=outcome)

    # --- the rest --------------------------------------------------------------------------------------

    def fault(self, plugin: str = "bad", hook: str = "session_event", action: str = "contained", **members: Any) -> int:
        """Write a plugin's fault."""
        return self.add(
            PluginFaulted, plugin=plugin, hook=hook, error=Fault("ValueError", "boom"), action=action, **members
        )

    def compact(self, first: int, last: int, before: int = 1_000, after: int = 100, text: str = "summary") -> int:
        """Write a whole compaction of a range of seqs; returns the summary's seq."""
        self._compactions += 1
        name, span = f"k{self._compactions}", (first, last)
        self._messages = 1
        self.add(CompactionStart, id=name, range=span)
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        seq = self.add(
            CompactionSummary, id=name, range=span, message=message, tokens_before=before, tokens_after=after
        )
        self.add(CompactionEnd, id=name, range=span, outcome="ok")
        return seq

    # --- whole stretches -------------------------------------------------------------------------------

    def simple_turn(self, text: str = "hello", answer: str = "hi") -> LogBuilder:
        """Write a whole turn of one step without calls."""
        self.start_turn(self.accept(text))
        self.start_step()
        self.start_request()
        self.end_request()
        self.answer(answer)
        self.end_step()
        self.end_turn()
        return self

    def change(self, seq: int, **members: Any) -> None:
        """Replace members of an event that is written already."""
        self.events[seq] = msgspec.structs.replace(self.events[seq], **members)  # type: ignore[type-var]


def renumber(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """Make a log of its own of these events: seqs contiguous from 0, and what refers to one put right.

    Args:
        events: any events, each with a seq of its own.
    """
    new = {event.seq: i for i, event in enumerate(events)}
    out: list[AnyEvent] = []
    for i, event in enumerate(events):
        if isinstance(event, FreeEvent):
            out.append(FreeEvent(event.type, i, event.time, event.fields))
            continue
        changes: dict[str, Any] = {"seq": i}
        if isinstance(event, RequestStart):
            changes["header"] = new.get(event.header, -1)
        elif isinstance(event, ToolResulted) and event.end is not None:
            changes["end"] = new.get(event.end, -1)
        elif isinstance(event, CompactionStart | CompactionSummary | CompactionEnd):
            changes["range"] = tuple(new.get(seq, min(seq, i)) for seq in event.range)
        out.append(msgspec.structs.replace(event, **changes))
    return out
