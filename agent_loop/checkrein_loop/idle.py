"""The last bound on a provider that hangs: one watch a harness, and only while agents run.

Providers have timeouts of their own, which can be retried; this one ends the turn. A cancel scope for
each stream would cost a step more than all of its events do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from checkrein.events import Reason

if TYPE_CHECKING:
    from checkrein.harness import Harness

__all__ = ["idle_watch"]


async def idle_watch(harness: Harness) -> None:
    """End turns whose stream has brought nothing for `stream_idle_s` (at most a quarter more)."""
    idle_s = harness.stream_idle_s
    seen: dict[str, tuple[Any, int, int]] = {}
    while any(getattr(agent, "driven", False) for agent in harness.agents):
        await anyio.sleep(idle_s / 4)
        current: dict[str, tuple[Any, int, int]] = {}
        for agent in harness.agents:
            clock = getattr(agent, "streaming", None)
            if clock is None:
                continue
            before = seen.get(agent.id)
            progress = clock.progress()
            still = before is not None and before[0] is clock and before[1] == progress
            quiet = before[2] + 1 if still and before is not None else 0
            current[agent.id] = (clock, progress, quiet)
            if quiet >= 4:
                text = f"the model's stream brought nothing for {idle_s:g} s (limits.stream_idle_s)"
                agent.fail(Reason("error", error="timeout", code="IDLE", message=text))  # type: ignore[attr-defined]
        seen = current
