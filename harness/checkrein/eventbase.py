"""What events are made of: the base record, reasons and errors, and the event of a type we do not know.

The vocabulary itself is events.py, which exports these names too.
"""

# Why annotations are no texts here: events.py.

from typing import Any, ClassVar

from msgspec import Struct

__all__ = ["Event", "Marked", "ErrorInfo", "ToolErrorInfo", "Cause", "Reason", "Fault", "FreeEvent"]


class Event(Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    """Base of all events: `seq` is the order, `time` is Unix ms UTC and may go backwards.

    An event that is in no log yet has no seq (-1); appending it fills in both, and from there on it never changes.
    What events hold was encoded as JSON, so it has no cycles: none of them needs the garbage collector.
    """

    TYPE: ClassVar[str] = ""

    seq: int = -1
    time: int = 0

    @property
    def type(self) -> str:
        """The event's type word, as `turn/start`."""
        return type(self).__struct_config__.tag  # type: ignore[return-value]


class Marked(Event, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """Members that may stand on any event: the plugin that appended it, how many characters were replaced."""

    plugin: str | None = None
    cleaned: int | None = None


class ErrorInfo(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a request failed."""

    kind: str
    message: str
    code: str | None = None


class ToolErrorInfo(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a call has an error result: the exception's or rule's name, and a code."""

    name: str
    code: str


class Cause(Struct, frozen=True, omit_defaults=True, gc=False):
    """Who cancelled: user, parent, hook (plugin, reason), budget (which, limit, used), signal, task."""

    kind: str
    plugin: str | None = None
    reason: str | None = None
    which: str | None = None
    limit: float | None = None
    used: float | None = None


class Reason(Struct, frozen=True, omit_defaults=True, gc=False):
    """How a turn ended (T4): one of completed, cancelled, error, step_limit, interrupted, disposed.

    Attributes:
        cause: who cancelled, with `cancelled`.
        error: generate, stream, timeout, max_tokens, refused, output, plugin, store or internal, with `error`.
    """

    kind: str
    cause: Cause | None = None
    error: str | None = None
    code: str | None = None
    message: str | None = None
    plugin: str | None = None
    max_steps: int | None = None

    @property
    def cause_text(self) -> str:
        """Who cancelled, in a word or two; empty otherwise."""
        if self.cause is None:
            return ""
        return " ".join(part for part in dict.fromkeys((self.cause.kind, self.cause.plugin, self.cause.reason)) if part)


class Fault(Struct, frozen=True, gc=False):
    """What a plugin raised."""

    name: str
    message: str


class FreeEvent:
    """An event of a type (or with words) we do not know, or a plugin's own; its bytes are kept as they came.

    Attributes:
        type: its type word.
        seq: its place in the log.
        time: Unix ms, UTC.
        fields: all other members.
    """

    __slots__ = ("type", "seq", "time", "fields")

    def __init__(self, type: str, seq: int, time: int, fields: dict[str, Any]) -> None:  # noqa: A002 - the log's word
        self.type = type
        self.seq = seq
        self.time = time
        self.fields = fields

    @property
    def plugin(self) -> str | None:
        """The plugin that appended it, if it says so."""
        name = self.fields.get("plugin")
        return name if isinstance(name, str) else None

    def __repr__(self) -> str:
        return f"FreeEvent(type={self.type!r}, seq={self.seq}, fields={self.fields!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FreeEvent) and (self.type, self.seq, self.time, self.fields) == (
            other.type,
            other.seq,
            other.time,
            other.fields,
        )

    __hash__ = None  # type: ignore[assignment]
