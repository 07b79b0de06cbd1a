"""What the loop contained, and a test must still know: refused events and internal errors."""

from __future__ import annotations

from collections.abc import Iterable

from checkrein.errors import InvariantViolation
from checkrein.events import AnyEvent, PluginFaulted, TurnEnd

__all__ = ["contained"]


def contained(events: Iterable[AnyEvent]) -> list[str]:
    """Return what in these events was a broken rule that ended as a fault, or an internal error.

    Args:
        events: in the order of the log.
    """
    out = []
    for event in events:
        if isinstance(event, PluginFaulted) and event.error.name == InvariantViolation.__name__:
            out.append(f"contained at seq {event.seq}: plugin {event.plugin!r} in {event.hook}: {event.error.message}")
        elif isinstance(event, TurnEnd) and event.reason.error == "internal":
            out.append(f"turn {event.turn} ended with an internal error: {event.reason.message}")
    return out
