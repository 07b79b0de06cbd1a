"""UsageTracker: token counts as a fold, also usable alone (M10)."""

from __future__ import annotations

from .events import AnyEvent, RequestEnd
from .messages import Usage

__all__ = ["UsageTracker"]


class UsageTracker:
    """Adds up what requests used; `session.observe(tracker.event)` feeds it from a log."""

    __slots__ = ("_latest", "_total")

    def __init__(self) -> None:
        self._latest: Usage | None = None
        self._total = Usage()

    def record(self, usage: Usage) -> None:
        """Count one request."""
        self._latest = usage
        self._total = self._total + usage

    def event(self, event: AnyEvent) -> None:
        """Count a logged event, if it is the end of a request that reported usage."""
        if type(event) is RequestEnd and event.usage is not None:
            self.record(event.usage)

    def latest(self) -> Usage | None:
        """The most recent request's counts; immutable, so it is detached from what comes."""
        return self._latest

    def total(self) -> Usage:
        """The sum of all."""
        return self._total
