"""One model request: prepare it, log it, stream it, and make its answer (M1-M11).

A failed attempt leaves its events and its partial text; `request_error` may ask for another attempt
of the same step. Half an answer is never an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.lowlevel import checkpoint
from msgspec import Struct

from checkrein.chunks import Assembler, TextChunk
from checkrein.decisions import Retry
from checkrein.errors import CheckreinError, ProviderError
from checkrein.events import (
    AnyEvent,
    AssistantPartial,
    AssistantThinking,
    ErrorInfo,
    Reason,
    RequestEnd,
    RequestStart,
)
from checkrein.live import StepReset
from checkrein.messages import AssistantMessage, CallBlock, Content, OpaqueBlock, TextBlock, ThinkingBlock
from checkrein.owner import absorb, ours, stray, unwrapped
from checkrein.text import clean, describe

from .ends import StepFailed, of_provider
from .prepare import Prepared, prepare

if TYPE_CHECKING:
    from checkrein.providers import Provider
    from checkrein.session import Session

    from .agent import LoopAgent

__all__ = ["generate", "Generated"]

CLOSE_STREAM_S = 5.0
MAX_ATTEMPTS = 20
UNBROKEN_CHUNKS = 256  # after so many the other agents have their turn, if nothing suspended
_EVERY = UNBROKEN_CHUNKS - 1  # as a mask: a power of two less one


class Generated(Struct):
    """An answer: the message, what of it was dropped, and whether the turn must end with it."""

    message: AssistantMessage
    provider_ids: dict[str, str] = msgspec.field(default_factory=dict)
    dropped: list[dict[str, Any]] | None = None
    cleaned: int | None = None
    failure: Reason | None = None


async def generate(agent: LoopAgent, turn: int, step: int, options: dict[str, Any]) -> Generated:
    """Ask the model once, with as many attempts as `request_error` wants.

    Raises:
        StepFailed, PluginFault, GateClosed: the turn ends.
    """
    attempt = 1
    while True:
        # Anew for each attempt: a plugin may cut a history that was too long for the model (C14).
        prepared = await prepare(agent, turn, step, options)
        agent.session.append(
            RequestStart(
                turn=turn,
                step=step,
                attempt=attempt,
                header=prepared.header,
                messages=prepared.messages,
                digest=prepared.digest,
                edits=prepared.edits,
            )
        )
        if agent.hooks.session_flush is not None:
            await agent.flush("request")
        agent.checkpoint()
        assembler, error = await stream(agent, prepared, turn, step, attempt)
        if error is None:
            return answer_of(assembler, prepared.provider, turn, step)
        await retry_or_fail(agent, turn, step, error, attempt)
        for buffer in agent.live:
            buffer.push(len(agent.session.events), StepReset(turn, step, attempt + 1))
        attempt += 1


async def retry_or_fail(agent: LoopAgent, turn: int, step: int, error: ProviderError, attempt: int) -> None:
    """Return when the request is to be sent again.

    Raises:
        StepFailed: nobody wants to, or it was the last attempt a step has.
        TurnCancelled: the turn was cancelled before; what failed then may have failed because of it (T4).
    """
    agent.checkpoint()
    chain = agent.hooks.request_error
    if chain is not None:
        args = (agent, turn, step, error, attempt)
        retry, _ = await agent.hooks.first(chain, agent.session, args, _valid_retry)
        if retry is not None:
            if attempt >= MAX_ATTEMPTS:
                said = f"{MAX_ATTEMPTS} attempts failed, as many as one step has; the last one: {describe(error)}"
                raise StepFailed(Reason("error", error=error.kind, code="ATTEMPTS", message=said))
            if retry.after_s > 0:
                await anyio.sleep(retry.after_s)
            agent.checkpoint()
            return
    raise StepFailed(of_provider(error))


def _valid_retry(answer: Any) -> None:
    if not isinstance(answer, Retry):
        raise TypeError(f"expected Retry or None, got {type(answer).__name__}")


async def stream(
    agent: LoopAgent, prepared: Prepared, turn: int, step: int, attempt: int
) -> tuple[Assembler, ProviderError | None]:
    """Read one stream to its true end (M3) and log how it went.

    Returns:
        What was assembled, and the error if the attempt failed.
    """
    assembler = Assembler()
    clock = _Clock(agent, turn, step, attempt, assembler)
    try:
        await read(agent, prepared, assembler, clock)
        if agent.task is not None and agent.task.cancelling() and (left := await stray()) is not None:
            blame(agent, prepared.provider, left)
        error = None if assembler.finish is not None else torn()
    except BaseException as exc:
        if isinstance(exc, BaseExceptionGroup) and (interrupt := unwrapped(exc)) is not exc:
            record(clock, assembler, "cancelled", None)
            raise interrupt from None
        if ours(exc) or isinstance(exc, KeyboardInterrupt):
            record(clock, assembler, "cancelled" if agent.failure is None else "error", None)
            raise
        absorb()
        error = provider_error(exc, clock)
        if not isinstance(exc, Exception):
            blame(agent, prepared.provider, exc)
    if error is None and not answered(assembler):
        error = ProviderError(
            "the model's answer is empty: no text and no call", kind="output", code="EMPTY_RESPONSE", retryable=True
        )
    if error is None:
        try:
            record(clock, assembler, "ok", None)
        except BaseException:
            keep_partial(agent, turn, step, shown_text(assembler))
            raise
    else:
        record(clock, assembler, "interrupted" if error.code == "TORN" else "error", error)
    return assembler, error


async def read(agent: LoopAgent, prepared: Prepared, assembler: Assembler, clock: _Clock) -> None:
    """The hot path: every chunk passes here, to the assembler, the consumers and the observers."""
    push, texts, events = assembler.push, assembler.texts, agent.session.events
    turn, step = clock.turn, clock.step
    observers = agent.hooks.stream_chunk
    stream = prepared.provider.stream(prepared.request)  # it may raise: nothing is watched before it has not
    agent.streaming = clock  # what idle_watch looks at: a scope of its own would cost more than the rest of this
    ended, chunks = False, 0
    try:
        async for chunk in stream:
            if not chunks & _EVERY:
                if chunks:
                    await checkpoint()
                else:
                    clock.first = perf_counter()
            chunks += 1
            # Most chunks are one more piece of a text: that is written out here, a call would cost as much again.
            if type(chunk) is TextChunk and (pieces := texts.get(chunk.index)) is not None:
                pieces.append(text := chunk.text)
                for buffer in agent.live:
                    buffer.text(len(events), turn, step, chunk.index, text)
            else:
                push(chunk)
                for buffer in agent.live:
                    buffer.chunk(len(events), turn, step, chunk)
            if observers is not None:
                agent.hooks.observe(observers, agent.session, (agent, turn, step, chunk))
        ended = True
    finally:
        agent.streaming = None
        for buffer in agent.live:
            buffer.end_request(len(events), turn, step)
        if not ended:
            await close_stream(agent, prepared.provider, stream)


async def close_stream(agent: LoopAgent, provider: Provider, stream: Any) -> None:
    """Close a stream that did not end by itself, shielded, within a deadline (C6)."""
    close = getattr(stream, "aclose", None)
    if close is None:
        return
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSE_STREAM_S) as scope:
        try:
            await close()
        except BaseException as exc:
            if ours(exc) or isinstance(exc, KeyboardInterrupt):
                raise
            absorb()
            blame(agent, provider, exc)
    if scope.cancelled_caught:
        blame(agent, provider, TimeoutError(f"its stream did not close within {CLOSE_STREAM_S:g} s"))


class _Clock(Struct):
    """Where and when an attempt runs."""

    agent: LoopAgent
    turn: int
    step: int
    attempt: int
    assembler: Assembler
    began: float = msgspec.field(default_factory=perf_counter)
    first: float | None = None

    def progress(self) -> int:
        """How much has come of the answer; only ever more."""
        return sum(len(part.pieces) for part in self.assembler.parts.values()) + len(self.assembler.parts)


def record(clock: _Clock, assembler: Assembler, outcome: str, error: ProviderError | None) -> None:
    """Log thinking, request/end and, unless the attempt went well, the text that was shown."""
    turn, step, now = clock.turn, clock.step, perf_counter()
    owed: list[AnyEvent] = []
    for place, part in enumerate(assembler.parts.values()):
        if part.kind == "thinking":
            text, count = part.text()
            owed.append(
                AssistantThinking(
                    turn=turn,
                    step=step,
                    index=place,
                    text=text,
                    provider_metadata=part.metadata,
                    cleaned=count or None,
                )
            )
    finish, first = assembler.finish, clock.first
    request_id = finish.request_id if finish is not None else error.request_id if error is not None else None
    owed.append(
        RequestEnd(
            turn=turn,
            step=step,
            attempt=clock.attempt,
            outcome=outcome,
            finish_reason=None if finish is None else finish.reason,
            error=None if error is None else ErrorInfo(error.kind, describe(error), error.code),
            usage=assembler.usage,
            ttft_ms=None if first is None else int((first - clock.began) * 1000),
            duration_ms=int((now - clock.began) * 1000),
            request_id=request_id,
            lenient_finish=finish is not None and finish.lenient,
        )
    )
    if outcome != "ok":
        text, count = shown_text(assembler)
        if text:
            owed.append(AssistantPartial(turn=turn, step=step, text=text, cleaned=count or None))
    log_all(clock.agent.session, owed)


def log_all(session: Session, owed: Sequence[AnyEvent]) -> None:
    """Log events of which none may be missing: an observer's KeyboardInterrupt goes on behind the last (L4)."""
    held: KeyboardInterrupt | None = None
    for event in owed:
        logged = len(session.events)
        try:
            session.append(event)
        except KeyboardInterrupt as exc:
            held = exc
            if len(session.events) == logged:  # it struck before the commit
                session.append(event)
    if held is not None:
        raise held


def shown_text(assembler: Assembler) -> tuple[str, int]:
    """The answer's text so far, cleaned, and how many characters were replaced."""
    parts = [part.text() for part in assembler.parts.values() if part.kind == "text"]
    return "".join(text for text, _ in parts), sum(count for _, count in parts)


def keep_partial(agent: LoopAgent, turn: int, step: int, shown: tuple[str, int]) -> None:
    """Keep what was shown of an answer that something came in the way of (C3)."""
    text, count = shown
    session, state = agent.session, agent.session.state
    if state.request_open:  # it came in the way of request/end too
        session.append(RequestEnd(turn=turn, step=step, attempt=state.attempt, outcome="error"))
    if text and state.step_open and not state.answered:
        session.append(AssistantPartial(turn=turn, step=step, text=text, cleaned=count or None))


def answered(assembler: Assembler) -> bool:
    """Whether there is anything to keep: text, a call or a part we do not know; a filter's silence counts too."""
    for part in assembler.parts.values():
        if part.kind == "text":
            if any(part.pieces):
                return True
        elif part.kind != "thinking":
            return True
    finish = assembler.finish
    return finish is not None and finish.reason in ("max_tokens", "content_filter", "refusal")


def answer_of(assembler: Assembler, provider: Provider, turn: int, step: int) -> Generated:
    """Make the answer of the assembled parts, in order of first sight (M2, M7)."""
    content: Content = []
    ids: dict[str, str] = {}
    cleaned = n = 0
    for place, part in enumerate(assembler.parts.values()):
        kind, count = part.kind, 0
        if kind == "text":
            text, count = part.text()
            content.append(TextBlock(text, part.metadata))
        elif kind == "call":
            n += 1
            call_id = f"c{turn}.{step}.{n}"
            text, count = part.text()
            content.append(CallBlock(call_id, clean(part.name)[0], text, part.metadata))
            if part.id:
                ids[call_id] = clean(str(part.id))[0]
        elif kind == "opaque":
            data, count = part.json()
            content.append(OpaqueBlock(provider.name, data, part.metadata))
        else:
            content.append(ThinkingBlock(place))
        cleaned += count
    finish = assembler.finish
    generated = Generated(AssistantMessage(content, provider_metadata=assembler.metadata), ids, cleaned=cleaned or None)
    if finish is not None and finish.reason in ("max_tokens", "content_filter", "refusal"):
        cut_off(generated, finish.reason)
    return generated


def cut_off(generated: Generated, reason: str) -> None:
    """Keep a truncated or refused answer as text: all its calls are dropped, none runs (M6)."""
    message = generated.message
    generated.dropped = [{"name": call.name, "arguments": call.arguments} for call in message.calls] or None
    kept = [block for block in message.content if type(block) is not CallBlock]
    generated.message = AssistantMessage(kept, provider_metadata=message.provider_metadata)
    if reason == "max_tokens":
        text = "the answer was cut off at the model's output limit"
        generated.failure = Reason("error", error="max_tokens", code="MAX_TOKENS", message=text)
    else:
        text = "the provider withheld the answer" if reason == "content_filter" else "the model refused to answer"
        generated.failure = Reason("error", error="refused", code=reason.upper(), message=text)


def torn() -> ProviderError:
    """The error of a stream that ended without its terminal frame (M6)."""
    return ProviderError(
        "the provider's stream ended without a terminal frame", kind="stream", code="TORN", retryable=True
    )


def provider_error(exc: BaseException, clock: _Clock) -> ProviderError:
    """Make a ProviderError of whatever a provider raised; before the first chunk it is of kind generate."""
    exc = real_error(exc)
    if isinstance(exc, ProviderError):
        # A provider may have a number here, as an HTTP status: the log holds words.
        exc.code, exc.request_id = (
            None if word is None else clean(str(word))[0] for word in (exc.code, exc.request_id)
        )
        return exc
    kind = "timeout" if isinstance(exc, TimeoutError) else "generate" if clock.first is None else "stream"
    code = "CREDENTIALS" if isinstance(exc, CheckreinError) else type(exc).__name__
    error = ProviderError(f"{type(exc).__name__}: {describe(exc)}", kind=kind, code=code)
    error.__cause__ = exc
    return error


def real_error(exc: BaseException) -> BaseException:
    """What a provider's own task group wrapped: the real error, further ones as its notes."""
    while isinstance(exc, BaseExceptionGroup):
        real = [each for each in exc.exceptions if not isinstance(each, anyio.get_cancelled_exc_class())]
        first, *others = real or exc.exceptions
        for other in others:
            first.add_note(f"and {type(other).__name__}: {describe(other)}")
        exc = first
    return exc


def blame(agent: LoopAgent, provider: Provider, exc: BaseException) -> None:
    """Record what no provider may raise, or a stream that does not close, as a fault of the provider (C7, C10)."""
    agent.hooks.faults.write(provider.name, "provider", exc, agent.session, "contained")
