"""The world of a replay: a provider, tools, a person and a plugin that do again what the log says (see replay.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import msgspec

from . import events as ev
from .agents import AgentSpec, Approver
from .calls import Call, Outcome, Proceed
from .chunks import (
    CallChunk,
    Chunk,
    FinishChunk,
    MetadataChunk,
    OpaqueChunk,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from .config.types import HarnessConfig, SessionConfig
from .decisions import Ask, Continue, Retry, Stop
from .errors import ConfigError, ProviderError
from .hookspecs import hookimpl
from .messages import CallBlock, Content, Edit, OpaqueBlock, Request, TextBlock, ThinkingBlock, ToolSchema
from .requests import apply_edits
from .tools import Tool

if TYPE_CHECKING:
    from .agents import AgentLike, Approval
    from .replay import Tape
    from .tools import ToolContext

__all__ = ["world"]


UNUSABLE = ("ConfigError", "CredentialsError")  # the codes of turns whose model could not be used


@asynccontextmanager
async def world(tape: Tape) -> AsyncIterator[AgentLike]:
    """A harness with one agent over the tape."""
    from .harness import Harness

    names = {event.provider for event in tape.log if type(event) is ev.RequestHeader} | _named(tape) or {"replay"}
    harness = Harness(
        providers=[_Provider(name, tape) for name in sorted(names)],
        tools=[*_tools(tape)],
        plugins=[_Plugin(tape)],
        config=HarnessConfig(session=SessionConfig(store="memory")),
        found=(),
    )
    harness.specs = []
    async with harness:
        harness.provide(Approver, _Person(tape))
        tape.hooks, tape.on_fault = harness.hooks, harness.hooks.observer_fault
        yield await harness._admit(_spec(tape, sorted(names)[0]), tape)


def _named(tape: Tape) -> set[str]:
    """The providers that inputs name, but for those of turns that could not use theirs: not all came to a header."""
    models = {e.id: (e.options or {}).get("model") for e in tape.log if type(e) is ev.InboxAccepted}
    found: set[str] = set()
    turn: set[str] = set()
    for event in tape.log:
        if type(event) is ev.TurnStart:
            said = [models.get(id_) for id_ in event.trigger.get("ids", ())]
            turn = {str(model).partition(":")[0] for model in said if model is not None}
            found |= turn
        elif type(event) is ev.TurnEnd and event.reason.code in UNUSABLE:
            found -= turn
    return found


def _spec(tape: Tape, provider: str) -> AgentSpec:
    """An agent whose limits the tape sets as it goes."""
    header = next((event for event in tape.log if type(event) is ev.RequestHeader), None)
    return AgentSpec(
        id="replay",
        model=f"{header.provider}:{header.model}" if header is not None else f"{provider}:replay",
        max_steps=0,
        max_parallel_tool_calls=1_000,  # each call waits for its own events
    )


async def _stopped(tape: Tape) -> NoReturn:
    """Somebody outside ended the turn here: end it, and wait for that."""
    tape.cancel()
    await anyio.sleep_forever()
    raise AssertionError  # nothing wakes it but the cancellation


# --- the model -------------------------------------------------------------------------------------------


class _Provider:
    def __init__(self, name: str, tape: Tape) -> None:
        self.name = name
        self._tape = tape

    def missing(self) -> None:
        return None

    def default_model(self) -> str:
        return "replay"

    def window_tokens(self, model: str) -> None:
        return None

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Say again what was said."""
        thinking: dict[int, ev.AssistantThinking] = {}
        end: ev.RequestEnd | None = None
        said: ev.AssistantAnswer | ev.AssistantPartial | None = None
        for event in self._tape.ahead():
            if type(event) is ev.AssistantThinking:
                thinking[event.index] = event
            elif type(event) is ev.RequestEnd:
                end = event
            elif isinstance(event, (ev.AssistantAnswer, ev.AssistantPartial)):
                said = event
                break
            elif isinstance(event, (ev.RequestStart, ev.StepEnd, ev.TurnEnd)):
                break
        for chunk in self._chunks(said, thinking):
            yield chunk
        if end is None:
            await _stopped(self._tape)
        if end.outcome == "ok" and said is None:  # `step_result` failed, and there was no text to keep
            yield OpaqueChunk(len(thinking), {})
        if end.usage is not None:
            yield UsageChunk(end.usage)
        if end.outcome == "ok":
            yield FinishChunk(end.finish_reason or "stop", end.request_id, end.lenient_finish)
        elif end.error is None:
            await self._given_up()
        elif end.error.code == "EMPTY_RESPONSE":
            yield FinishChunk("stop")
        elif end.error.code != "TORN":
            raise ProviderError(end.error.message, kind=end.error.kind, code=end.error.code)

    async def _given_up(self) -> NoReturn:
        """The stream was left: by us, because it brought nothing, or because the turn was ended from outside."""
        if _is_retried(self._tape):
            raise ProviderError("the stream brought nothing", kind="timeout", code="IDLE")
        end = self._tape.ending()
        if end is not None and end.reason.kind == "error":
            raise ProviderError(end.reason.message or "", kind=end.reason.error or "stream", code=end.reason.code)
        await _stopped(self._tape)

    def _chunks(
        self, said: ev.AssistantAnswer | ev.AssistantPartial | None, thinking: dict[int, ev.AssistantThinking]
    ) -> Iterator[Chunk]:
        content: Content = []
        if isinstance(said, ev.AssistantAnswer):
            content = list(said.content)
            dropped = said.dropped or ()
            content += [CallBlock("", str(one.get("name")), str(one.get("arguments"))) for one in dropped]
            if said.provider_metadata is not None:
                yield MetadataChunk(said.provider_metadata)
        else:
            content = [ThinkingBlock(index) for index in thinking]
            if said is not None:
                content.append(TextBlock(said.text))
        step = takewhile(lambda event: type(event) is not ev.StepEnd, self._tape.ahead())
        provider_ids = {event.call_id: event.provider_call_id for event in step if type(event) is ev.ToolCalled}
        for index, block in enumerate(content):
            metadata = getattr(block, "provider_metadata", None)
            if isinstance(block, TextBlock):
                yield TextChunk(index, block.text)
            elif isinstance(block, ThinkingBlock):
                burst = thinking.get(block.index)
                yield ThinkingChunk(index, burst.text if burst is not None else "")
                metadata = burst.provider_metadata if burst is not None else None
            elif isinstance(block, CallBlock):
                yield CallChunk(index, provider_ids.get(block.call_id), block.name, block.arguments)
            elif isinstance(block, OpaqueBlock):
                yield OpaqueChunk(index, block.data)
            if metadata is not None:
                yield MetadataChunk(metadata, index)


def _is_retried(tape: Tape) -> bool:
    """Whether another attempt of the open step follows, or was about to when a plugin failed."""
    for event in tape.ahead():
        if isinstance(event, (ev.PromptPart, ev.RequestHeader, ev.RequestStart)):
            return True
        if type(event) is ev.PluginFaulted and event.hook == "agent_request" and tape.is_raised(event):
            return True
        if isinstance(event, (ev.StepEnd, ev.TurnEnd)):
            return False
    return False


# --- tools and people ------------------------------------------------------------------------------------


def _tools(tape: Tape) -> Iterator[Tool]:
    for name in sorted({event.name for event in tape.log if type(event) is ev.ToolCalled}):
        with suppress(ConfigError):  # a name no tool can have: the loop answers for it by itself, as then
            yield _Tool(name, tape)


class _Tool(Tool):
    """Takes any arguments, and returns what the log says."""

    __slots__ = ("_tape",)

    def __init__(self, name: str, tape: Tape) -> None:
        super().__init__(self._play, name=name, description="", parameters={"type": "object"}, idempotent=True)
        self._tape = tape
        self.is_async = True

    def decode(self, text: str) -> dict[str, Any]:
        try:
            arguments = msgspec.json.decode(text or "{}")
        except (ValueError, RecursionError):
            return {}
        return arguments if isinstance(arguments, dict) else {}

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        return self._play(context.call_id)

    async def _play(self, call_id: str) -> Outcome:
        return _outcome(await _next_of(self._tape, call_id))


async def _next_of(tape: Tape, call_id: str) -> ev.AnyEvent:
    """Wait until the next recorded event is this call's, and return it."""
    while True:
        event = tape.current
        if event is not None and getattr(event, "call_id", None) == call_id and not _is_closing(tape):
            return event
        if event is None or _is_closing(tape):
            await _stopped(tape)
        await tape.moved()


def _is_closing(tape: Tape) -> bool:
    """Whether the next recorded event is of a turn that was ended from outside: its results took no time."""
    event = tape.current
    if type(event) is ev.ApprovalDecided and event.outcome == "closed":
        asked = tape.state.approvals.get(event.id)
        for later in tape.ahead():
            if isinstance(later, (ev.ToolEnded, ev.ToolResulted)) and asked and later.call_id == asked.call_id:
                return later.duration_ms is None  # a tool/end has one: closing writes none
        return True
    return type(event) is ev.ToolResulted and event.duration_ms is None


def _outcome(event: ev.AnyEvent) -> Outcome:
    if isinstance(event, (ev.ToolEnded, ev.ToolResulted)) and event.content is not None:
        return Outcome(event.content, event.is_error, event.error, event.value, event.decision, event.by)
    return Outcome.text("")  # a plugin asked for the tool once more


class _Person:
    """Decides as was decided."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    async def decide(self, agent: AgentLike, approval: Approval) -> str:
        while True:
            event = self._tape.current
            if event is None or _is_closing(self._tape):
                await _stopped(self._tape)
            if type(event) is ev.ApprovalDecided and event.id == approval.id:
                return event.outcome
            await self._tape.moved()


# --- plugins ---------------------------------------------------------------------------------------------


class _Plugin:
    """Votes, changes and fails as the session's plugins did."""

    name = "replay"

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._parts = {e.id: e.content for e in tape.log if type(e) is ev.PromptPart}
        self._headers: dict[int, dict[str, Any]] = {}

    def _fails(self, hook: str) -> None:
        event = self._tape.current
        if type(event) is ev.PluginFaulted and event.hook == hook and self._tape.is_raised(event):
            raise RuntimeError(event.error.message)

    @hookimpl
    async def agent_request(self, request: Request) -> Request:
        self._fails("agent_request")
        step: list[Any] = []
        for event in self._tape.ahead():
            step.append(event)
            if isinstance(event, (ev.RequestStart, ev.StepEnd)):
                break
        start = step[-1] if step else None
        if type(start) is not ev.RequestStart:
            return await self._unsent(request, step)
        header = self._header(start.header)
        if start.edits is None:
            return request.replace(**header)
        messages = apply_edits(start.edits, request.messages, request.seqs)
        edit = Edit(tuple(start.edits["drop"]), start.edits["marker"]) if "drop" in start.edits else None
        return request.replace(**header, messages=messages, edit=edit)

    async def _unsent(self, request: Request, step: list[Any]) -> Request:
        """The request of a step that never sent one: it was refused, or the process died while it was logged."""
        header = next((event for event in step if type(event) is ev.RequestHeader), None)
        if header is not None:
            return request.replace(**self._header(header.seq))
        parts = [event for event in step if type(event) is ev.PromptPart]
        if parts:
            system = tuple(str(part.content) for part in parts if part.kind == "system")
            tools = tuple(msgspec.convert(part.content, ToolSchema) for part in parts if part.kind == "tool")
            return request.replace(system=system, tools=tools)
        end = self._tape.ending()
        if end is None or end.reason.kind != "error":
            await _stopped(self._tape)
        return request.replace(messages=[])

    def _header(self, seq: int) -> dict[str, Any]:
        """What a header says; the same objects each time, so that nothing is hashed twice."""
        if seq not in self._headers:
            header = self._tape.at(seq)
            if type(header) is not ev.RequestHeader:
                return {}
            self._headers[seq] = {
                "provider": header.provider,
                "model": header.model,
                "settings": header.settings,
                "system": tuple(str(self._parts.get(part, "")) for part in header.system),
                "tools": tuple(msgspec.convert(self._parts.get(part), ToolSchema) for part in header.tools),
            }
        return self._headers[seq]

    @hookimpl
    def request_error(self, attempt: int) -> Retry | None:
        return Retry() if _is_retried(self._tape) else None

    @hookimpl
    async def step_result(self) -> None:
        self._fails("step_result")
        for event in self._tape.ahead():
            if isinstance(event, (ev.AssistantAnswer, ev.PluginFaulted)):
                return
            if type(event) is ev.StepEnd:
                await _stopped(self._tape)

    @hookimpl
    async def tools_execute(self, call: Call, proceed: Proceed) -> Outcome:
        while True:
            event = await _next_of(self._tape, call.call_id)
            if isinstance(event, (ev.ToolEnded, ev.ToolResulted)):
                return _outcome(event)
            await proceed(call)

    @hookimpl
    def tools_guard(self, call: Call) -> Ask | None:
        event = self._tape.current
        if type(event) is ev.ApprovalAsked and event.call_id == call.call_id:
            return Ask(event.summary, event.rule)
        return None

    @hookimpl
    def turn_continuation(self) -> Stop | Continue | None:
        self._fails("turn_continuation")
        event = self._tape.current
        if type(event) is not ev.Decision:
            return None
        if event.outcome == "continue":
            brought = next((e for e in self._tape.ahead() if type(e) is ev.ContextInput), None)
            return Continue(event.reason or "", brought.content if brought is not None else "?")
        end = self._tape.ending()
        cause = end.reason.cause if end is not None else None
        if cause is None:
            return Stop(event.reason or "")
        return Stop(event.reason or "", cause.which, cause.limit, cause.used)

    @hookimpl
    def session_flush(self) -> None:
        self._fails("session_flush")
