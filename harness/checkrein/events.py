"""The vocabulary of the session log: one frozen record per event type (docs/events.md).

Every event starts with `type`, `seq`, `time`; absent optional members are left out. `FreeEvent` is
everything else: a plugin's own event, a later version's, or one whose words we do not know (L5).
"""

# No `from __future__ import annotations` here and in eventbase and eventplugins: msgspec would evaluate hundreds of
# texts one by one before the first log is read.

from typing import Any, TypeAlias

from .eventbase import Cause, ErrorInfo, Event, Fault, FreeEvent, Marked, Reason, ToolErrorInfo
from .eventplugins import (
    ApprovalAsked,
    ApprovalDecided,
    CompactionEnd,
    CompactionStart,
    CompactionSummary,
    PluginFaulted,
)
from .messages import Content, Source, Usage

__all__ = [
    "Event",
    "FreeEvent",
    "SessionCreated",
    "SessionResumed",
    "SessionRepaired",
    "LogGap",
    "InboxAccepted",
    "InboxReplaced",
    "InboxDiscarded",
    "TurnStart",
    "UserInput",
    "StepStart",
    "SteeringInput",
    "ContextInput",
    "PromptPart",
    "RequestHeader",
    "RequestStart",
    "AssistantThinking",
    "RequestEnd",
    "AssistantPartial",
    "AssistantAnswer",
    "ToolCalled",
    "ToolStarted",
    "ToolEnded",
    "ToolResulted",
    "ToolLate",
    "Decision",
    "StepEnd",
    "TurnEnd",
    "PluginFaulted",
    "ApprovalAsked",
    "ApprovalDecided",
    "CompactionStart",
    "CompactionSummary",
    "CompactionEnd",
    "Cause",
    "Fault",
    "Marked",
    "Reason",
    "AnyEvent",
    "KnownEvent",
    "ErrorInfo",
    "ToolErrorInfo",
    "FORMAT",
    "DERIVATION",
    "KNOWN",
]

FORMAT = 1
DERIVATION = 1  # whoever writes it names it: what a line leaves out is 1 for ever, also when this has grown


# --- the session -----------------------------------------------------------------------------------


class SessionCreated(Marked, frozen=True, kw_only=True, tag="session/created", gc=False):
    """First event: who and where, with which plugins."""

    format: int
    session: str
    agent: str
    cwd: str = ""
    origin: dict[str, Any] | None = None
    version: str = ""
    derivation: int = 1
    plugins: list[dict[str, str]] = []
    config: str = ""


class SessionResumed(Marked, frozen=True, kw_only=True, tag="session/resumed", gc=False):
    """A process opened the session to continue it."""

    version: str = ""
    derivation: int = 1
    plugins: list[dict[str, str]] = []
    config: str = ""


class SessionRepaired(Marked, frozen=True, kw_only=True, tag="session/repaired", gc=False):
    """Calls of earlier, closed turns that had no result: answered here and in the derivation (R2)."""

    calls: list[dict[str, Any]]
    set_aside_bytes: int | None = None


class LogGap(Marked, frozen=True, kw_only=True, tag="log/gap", gc=False):
    """Damage in the middle: `after` is the last good seq before, `before` the first behind (R1)."""

    after: int
    before: int
    skipped_bytes: int


# --- input -----------------------------------------------------------------------------------------


class InboxAccepted(Marked, frozen=True, kw_only=True, tag="inbox/accepted", gc=False):
    """An input was accepted; `kind` is queued, steering or context."""

    id: str
    kind: str
    content: Content
    source: Source
    own_turn: bool = False
    options: dict[str, Any] | None = None
    key: str | None = None


class InboxReplaced(Marked, frozen=True, kw_only=True, tag="inbox/replaced", gc=False):
    """A pending input's content was replaced."""

    id: str
    content: Content


class InboxDiscarded(Marked, frozen=True, kw_only=True, tag="inbox/discarded", gc=False):
    """A pending input will not be taken, and why."""

    id: str
    reason: str


# --- turns and steps -------------------------------------------------------------------------------


class TurnStart(Marked, frozen=True, kw_only=True, tag="turn/start", gc=False):
    """A turn began; `trigger` is {kind, ids}."""

    turn: int
    trigger: dict[str, Any]


class UserInput(Marked, frozen=True, kw_only=True, tag="user/message", gc=False):
    """A queued input was taken: this event is the claim, by `id`."""

    turn: int
    id: str
    content: Content
    source: Source
    mark: str | None = None


class StepStart(Marked, frozen=True, kw_only=True, tag="step/start", gc=False):
    """A step began."""

    turn: int
    step: int


class SteeringInput(Marked, frozen=True, kw_only=True, tag="steering/message", gc=False):
    """A steering input was taken at a step boundary."""

    turn: int
    step: int
    id: str
    content: Content
    source: Source


class ContextInput(Marked, frozen=True, kw_only=True, tag="context/message", gc=False):
    """Injected context, or what a Continue vote brought."""

    turn: int
    content: Content
    source: Source
    step: int | None = None
    id: str | None = None


class PromptPart(Marked, frozen=True, kw_only=True, tag="prompt/part", gc=False):
    """A system section or tool schema, written once per distinct content."""

    id: str
    kind: str
    content: Any


class RequestHeader(Marked, frozen=True, kw_only=True, tag="request/header", gc=False):
    """Everything of a request but its messages; written when it changed."""

    turn: int
    step: int
    reason: str
    provider: str
    model: str
    settings: dict[str, Any]
    system: list[str]
    tools: list[str]


class RequestStart(Marked, frozen=True, kw_only=True, tag="request/start", gc=False):
    """A model request is about to be sent; the request can be rebuilt to `digest` (L7)."""

    turn: int
    step: int
    attempt: int
    header: int
    messages: int
    digest: str
    edits: dict[str, Any] | None = None


class AssistantThinking(Marked, frozen=True, kw_only=True, tag="assistant/thinking", gc=False):
    """One contiguous burst of thinking, at its place among the answer's blocks (M4)."""

    turn: int
    step: int
    index: int
    text: str
    provider_metadata: str | None = None


class RequestEnd(Marked, frozen=True, kw_only=True, tag="request/end", gc=False):
    """The request ended; `outcome` is ok, error, interrupted or cancelled."""

    turn: int
    step: int
    attempt: int
    outcome: str
    finish_reason: str | None = None
    error: ErrorInfo | None = None
    usage: Usage | None = None
    ttft_ms: int | None = None
    duration_ms: int | None = None
    request_id: str | None = None
    lenient_finish: bool = False


class AssistantPartial(Marked, frozen=True, kw_only=True, tag="assistant/partial", gc=False):
    """Text that was shown but is no answer."""

    turn: int
    step: int
    text: str


class AssistantAnswer(Marked, frozen=True, kw_only=True, tag="assistant/message", gc=False):
    """The model's answer; thinking bursts stand at their place by index."""

    turn: int
    step: int
    content: Content
    provider_metadata: str | None = None
    replaced: dict[str, Any] | None = None
    dropped: list[dict[str, Any]] | None = None


# --- calls -----------------------------------------------------------------------------------------


class ToolCalled(Marked, frozen=True, kw_only=True, tag="tool/call", gc=False):
    """A call is open; it owes a result."""

    turn: int
    step: int
    call_id: str
    name: str
    provider_call_id: str | None = None
    parent: str | None = None


class ToolStarted(Marked, frozen=True, kw_only=True, tag="tool/start", gc=False):
    """A call begins to run; `effect` is read_only, idempotent or effectful."""

    turn: int
    step: int
    call_id: str
    attempt: int
    effect: str
    arguments: dict[str, Any] | None = None
    changed_by: list[str] | None = None


class ToolEnded(Marked, frozen=True, kw_only=True, tag="tool/end", gc=False):
    """A call ended while an earlier sibling is still open; its `tool/result` follows in order (X1)."""

    turn: int
    step: int
    call_id: str
    content: Content
    is_error: bool
    error: ToolErrorInfo | None = None
    value: Any = None
    decision: str | None = None
    by: str | None = None
    duration_ms: int | None = None


class ToolResulted(Marked, frozen=True, kw_only=True, tag="tool/result", gc=False):
    """The one result of a call; `end` names the `tool/end` that holds its content, if there is one."""

    turn: int
    step: int
    call_id: str
    content: Content | None = None
    end: int | None = None
    is_error: bool
    error: ToolErrorInfo | None = None
    value: Any = None
    decision: str | None = None
    by: str | None = None
    duration_ms: int | None = None


class ToolLate(Marked, frozen=True, kw_only=True, tag="tool/late", gc=False):
    """What came back after its call was closed; not model-visible."""

    turn: int
    step: int
    call_id: str
    error: ToolErrorInfo | None = None


class Decision(Marked, frozen=True, kw_only=True, tag="decision", gc=False):
    """A vote's outcome and its author."""

    turn: int
    step: int
    hook: str
    outcome: str
    reason: str | None = None


class StepEnd(Marked, frozen=True, kw_only=True, tag="step/end", gc=False):
    """The step ended; every call in it has a result."""

    turn: int
    step: int


class TurnEnd(Marked, frozen=True, kw_only=True, tag="turn/end", gc=False):
    """The turn ended."""

    turn: int
    reason: Reason
    steps: int


KnownEvent: TypeAlias = (
    SessionCreated
    | SessionResumed
    | SessionRepaired
    | LogGap
    | InboxAccepted
    | InboxReplaced
    | InboxDiscarded
    | TurnStart
    | UserInput
    | StepStart
    | SteeringInput
    | ContextInput
    | PromptPart
    | RequestHeader
    | RequestStart
    | AssistantThinking
    | RequestEnd
    | AssistantPartial
    | AssistantAnswer
    | ToolCalled
    | ToolStarted
    | ToolEnded
    | ToolResulted
    | ToolLate
    | Decision
    | StepEnd
    | TurnEnd
    | PluginFaulted
    | ApprovalAsked
    | ApprovalDecided
    | CompactionStart
    | CompactionSummary
    | CompactionEnd
)
AnyEvent: TypeAlias = KnownEvent | FreeEvent

KNOWN: dict[str, type[Event]] = {cls.__struct_config__.tag: cls for cls in KnownEvent.__args__}
