"""The events of guards and plugins: faults, approvals, compaction. events.py exports these names too."""

# Why annotations are no texts here: events.py.

from typing import Any

from .eventbase import Fault, Marked

__all__ = [
    "PluginFaulted",
    "ApprovalAsked",
    "ApprovalDecided",
    "CompactionStart",
    "CompactionSummary",
    "CompactionEnd",
]


class PluginFaulted(Marked, frozen=True, kw_only=True, tag="plugin/fault", gc=False):
    """A plugin's own failure: `plugin` names it; `action` is turn_ended, refused, contained or switched_off."""

    hook: str
    error: Fault
    action: str
    turn: int | None = None
    step: int | None = None


class ApprovalAsked(Marked, frozen=True, kw_only=True, tag="approval/asked", gc=False):
    """Somebody must allow a call; bound to the call and to a hash of its arguments."""

    id: str
    call_id: str
    summary: str
    rule: str | None = None
    arguments: str | None = None


class ApprovalDecided(Marked, frozen=True, kw_only=True, tag="approval/decided", gc=False):
    """The answer: allowed_once, allowed_rule, denied or closed."""

    id: str
    outcome: str
    rule: str | None = None


class CompactionStart(Marked, frozen=True, kw_only=True, tag="compaction/start", gc=False):
    """A compaction of the seq range [first, last] begins."""

    id: str
    range: tuple[int, int]


class CompactionSummary(Marked, frozen=True, kw_only=True, tag="compaction/summary", gc=False):
    """The message that replaces the range."""

    id: str
    range: tuple[int, int]
    message: dict[str, Any]
    tokens_before: int
    tokens_after: int


class CompactionEnd(Marked, frozen=True, kw_only=True, tag="compaction/end", gc=False):
    """The compaction ended."""

    id: str
    range: tuple[int, int]
    outcome: str
