"""Rules O15 to O17 as far as they need the derived history: it is derived anew, event by event, and validated.

The derivation is the harness's own (a stranger's would prove nothing about it); what judges its
output is not: validators.py, the results in the log, and the digests recorded there.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from checkrein.derive import NO_OUTPUT
from checkrein.events import (
    DERIVATION,
    KNOWN,
    AnyEvent,
    AssistantAnswer,
    FreeEvent,
    LogGap,
    RequestHeader,
    RequestStart,
    SessionCreated,
    StepEnd,
    ToolEnded,
    ToolResulted,
)
from checkrein.eventtypes import EventType
from checkrein.messages import AssistantMessage, Content, MediaBlock, Message, OpaqueBlock, TextBlock, ToolMessage
from checkrein.requests import apply_edits
from checkrein.rules import apply
from checkrein.state import State

from .rules import Report
from .validators import validate_history

__all__ = ["Deep", "NEVER", "STEPS", "EVERY", "request_of"]

NEVER, STEPS, EVERY = "never", "steps", "every"
_SHOWN = 5
_canonical = msgspec.json.Encoder(order="sorted").encode


class Deep:
    """Derives the history beside the oracle and checks it.

    Args:
        report: where violations go.
        types: event types that plugins registered.
        when: `steps` validates the history and rebuilds the request at each request and step's end,
            `every` validates it after every event that changed it (cost: the history's length each
            time), `never` only when finished.
    """

    def __init__(self, report: Report, types: dict[str, EventType] | None = None, when: str = STEPS) -> None:
        self._report = report
        closes = {kind.balance.closes: kind.balance for kind in (types or {}).values() if kind.balance is not None}
        self._state = State(types or {}, closes)
        self._when = when
        self._headers: dict[int, RequestHeader] = {}
        self._results: dict[str, tuple[int, Content, bool]] = {}  # of the open step, as logged
        self._ends: dict[int, Content] = {}
        self._answer: AssistantAnswer | None = None
        self._blind = False  # events are missing, or are another derivation's: digests prove nothing
        self._before: tuple[Any, list[Message]] | None = None  # the request before, and what it depended on
        self._unnamed: set[tuple[int, int]] = set()
        self._seen = (0, 0)
        self._dead = False

    def feed(self, event: AnyEvent) -> None:
        """Derive on by this event, and check."""
        if self._dead:
            return
        state, kind = self._state, type(event)
        if event.seq != state.next_seq:
            self._unnamed.add((state.next_seq - 1, event.seq))
        try:
            if kind is RequestStart and self._when != NEVER:
                self._request(event)  # type: ignore[arg-type]
            apply(state, event)
            self._note(event)
            if kind is StepEnd:
                self._check_results()
            if self._due(kind):
                self._validate()
        except Exception as exc:  # derivation is total (L8): whatever it raises is the violation
            self._report.add("O15", f"deriving the history failed: {type(exc).__name__}: {exc}")
            self._dead = True

    def finish(self) -> None:
        """Validate the history as the log leaves it."""
        if not self._dead:
            self._validate()

    @property
    def state(self) -> State:
        """The harness's projections, folded anew from the log."""
        return self._state

    # --- reading ---------------------------------------------------------------------------------------

    def _note(self, event: Any) -> None:
        if isinstance(event, ToolResulted):
            content = event.content if event.content is not None else self._ends.get(event.end or -1)
            if content is not None and event.call_id not in self._results:
                self._results[event.call_id] = (event.seq, content, event.is_error)
        elif isinstance(event, ToolEnded):
            self._ends[event.seq] = event.content
        elif isinstance(event, AssistantAnswer):
            self._answer = event
        elif isinstance(event, RequestHeader):
            self._headers = {event.seq: event}
        elif isinstance(event, LogGap):
            self._unnamed.discard((event.after, event.before))
        elif isinstance(event, SessionCreated):
            self._blind = self._blind or event.derivation != DERIVATION
        elif isinstance(event, FreeEvent) and event.type in KNOWN:
            self._blind = True

    def _due(self, kind: type) -> bool:
        if self._when == STEPS:
            return kind is StepEnd or kind is RequestStart
        if self._when == NEVER:
            return False
        history = self._state.history
        seen, self._seen = self._seen, (history.epoch, len(history.messages))
        return seen != self._seen

    # --- O15 -------------------------------------------------------------------------------------------

    def _validate(self) -> None:
        problems = validate_history(self._state.history.view())
        for problem in problems[:_SHOWN]:
            self._report.add("O15", f"the derived history is not valid, {problem}")

    def _check_results(self) -> None:
        """What a call really gave stands in the history (C2), and opaque data as it came (M5)."""
        derived: dict[str, ToolMessage] = {}
        answer: AssistantMessage | None = None
        history = self._state.history
        first = self._answer.seq if self._answer is not None else self._state.next_seq
        for message, seq in zip(reversed(history.messages), reversed(history.seqs), strict=True):
            if seq < first:
                break
            if isinstance(message, ToolMessage):
                derived[message.call_id] = message
            elif isinstance(message, AssistantMessage):
                answer = message
        for call_id, (seq, content, is_error) in self._results.items():
            got = derived.get(call_id)
            if got is not None and (got.content, got.is_error) != (_readable(content), is_error):
                self._report.add("O15", f"the history does not hold what {call_id} gave", seq)
        self._check_opaque(answer)
        self._results, self._ends, self._answer = {}, {}, None

    def _check_opaque(self, answer: AssistantMessage | None) -> None:
        event, header = self._answer, self._state.header
        if event is None or answer is None or header is None or self._unnamed:
            return
        logged = [block for block in event.content if type(block) is OpaqueBlock]
        kept = [block for block in answer.content if type(block) is OpaqueBlock]
        if logged != kept or answer.provider_metadata != event.provider_metadata:
            self._report.add("O17", "the history does not hold the answer's opaque data as it came", event.seq)
        elif answer.provider != (header.provider or None):
            self._report.add("O17", f"the history says {answer.provider!r} gave the answer of {header.provider!r}")

    # --- O16 -------------------------------------------------------------------------------------------

    def _request(self, event: RequestStart) -> None:
        header = self._headers.get(event.header)
        if header is None or self._blind or self._unnamed:
            return
        messages = _sent(self._state, event.edits)
        digest = _digest(header, messages)
        if len(messages) != event.messages:
            count = len(messages)
            self._report.add("O16", f"the log gives {count} messages, the request had {event.messages}", header.seq)
        elif digest != event.digest:
            self._report.add("O16", f"the log gives a request of digest {digest[:12]}…, sent was {event.digest[:12]}…")
        self._extends(messages, (self._state.history.epoch, event.edits, header.seq))

    def _extends(self, messages: list[Message], key: Any) -> None:
        """O26, for what the counts of messages do not show."""
        before, self._before = self._before, (key, messages)
        if before is not None and before[0] == key and messages[: len(before[1])] != before[1]:
            self._report.add("O26", "the request does not begin with the messages of the one before")


def request_of(state: State, header: RequestHeader, edits: dict[str, Any] | None) -> tuple[int, str]:
    """How many messages a request sent at this point of the log has, and its digest."""
    messages = _sent(state, edits)
    return len(messages), _digest(header, messages)


def _sent(state: State, edits: dict[str, Any] | None) -> list[Message]:
    return list(apply_edits(edits, state.history.view(), state.history.seqs))


def _digest(header: RequestHeader, messages: list[Message]) -> str:
    """Computed on its own, as EVENTS.md defines it: each message, then the header, as canonical JSON."""
    chain = sha256()
    for message in messages:
        chain.update(_canonical(message) + b"\n")
    chain.update(_canonical([header.provider, header.model, header.settings, header.system, header.tools]))
    return chain.hexdigest()


def _readable(content: Content) -> Content:
    blocks: Content = [b for b in content if type(b) is MediaBlock or (type(b) is TextBlock and b.text)]
    return blocks or [TextBlock(NO_OUTPUT)]
