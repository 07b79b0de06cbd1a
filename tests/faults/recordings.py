"""Recorded logs: every script of world.py played once, and once more cut short by a cancel in its middle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import world
from stage import play, stage

from checkrein.events import AnyEvent
from checkrein.testing import run_virtual
from checkrein.testing.faults import FaultPlan, Seams

__all__ = ["Recording", "recordings"]


@dataclass(frozen=True)
class Recording:
    """A log as it was written."""

    name: str
    events: Sequence[AnyEvent]
    lines: Sequence[bytes]


def _record(name: str, plan: FaultPlan | None) -> tuple[Recording, int]:
    seams = Seams(plan)

    async def counted() -> Recording:
        async with stage(world.SCRIPTS[name], seams) as on:
            seams.actions["cancel"] = on.agent.cancel
            await play(on)
            await on.agent.idle()
            session = on.agent.session
        title = name if plan is None else f"{name}, cancelled"
        return Recording(title, tuple(session.events), tuple(session.lines))

    return run_virtual(counted, on_pass=seams.on_pass, seed=0), seams.passes


@cache
def recordings() -> tuple[Recording, ...]:
    """All recordings; made once, outside of any loop."""
    out: list[Recording] = []
    for name in world.SCRIPTS:
        plain, passes = _record(name, None)
        out.append(plain)
        cut, _ = _record(name, FaultPlan(max(1, passes // 2), "cancel", "pass"))
        if [event.type for event in cut.events] != [event.type for event in plain.events]:
            out.append(cut)
    return tuple(out)
