"""When a tool has to stop by itself: its own time, the call's deadline, or nobody waits any more."""

from __future__ import annotations

from time import monotonic

from checkrein.tools import ToolContext

__all__ = ["MAX_RESULT_BYTES", "Clock"]

MAX_RESULT_BYTES = 48_000  # below the default of limits.output_max_bytes, so that pages end at whole lines


class Clock:
    """Tells whether to go on.

    Args:
        context: the call's.
        max_seconds: how long the tool may take.
    """

    __slots__ = ("_context", "_end")

    def __init__(self, context: ToolContext, max_seconds: float) -> None:
        self._context = context
        end = monotonic() + max_seconds
        self._end = end if context.deadline is None else min(end, context.deadline - 0.5)

    def over(self) -> bool:
        """Whether it is time to give what is there."""
        return self._context.cancelled() or monotonic() >= self._end
