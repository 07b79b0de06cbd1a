"""Mending a session on resume. A call whose outcome a crash left unknown is settled by its tool's `reconcile` (R2).

    @tool(reconcile=lookup)      # lookup(arguments) -> Outcome, or None if nobody knows
    def pay(...): ...

What a tool cannot say, or does not say in time, stays OUTCOME_UNKNOWN.
"""

from __future__ import annotations

from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any

import anyio

from .calls import Outcome
from .closing import repair
from .codec import copied
from .errors import InvalidArguments
from .events import AssistantAnswer, LogGap, ToolStarted
from .messages import CallBlock
from .output import capped, to_outcome
from .owner import absorb, ours
from .settling import settle

if TYPE_CHECKING:
    from .harness import Harness
    from .recovery import Recovered
    from .session import Session
    from .state import CallState
    from .tools import Tool

__all__ = ["mend", "reconcile"]

RECONCILE_S = 30.0


async def mend(harness: Harness, session: Session, found: Recovered) -> None:
    """Bring a stored session into a state it can go on from: gaps named, calls settled, the rest closed (R1, R2).

    Args:
        harness: whose tools are asked.
        session: loaded from what was found.
        found: what recovery made of the stored bytes.
    """
    for gap in found.gaps:
        session.append(LogGap(after=gap.after, before=gap.before, skipped_bytes=gap.skipped_bytes))
    if session.state.step_open:
        await reconcile(harness, session)
    repair(session, set_aside_bytes=len(found.set_aside))


async def reconcile(harness: Harness, session: Session) -> None:
    """Ask the tools of the open step's calls that had begun, and log what they say as the calls' results.

    Args:
        harness: whose tools are asked.
        session: a stored session, loaded and not closed yet.
    """
    for call in session.state.open_calls:
        tool = harness.tools.get(call.name)
        if not call.begun or call.end is not None or tool is None or tool.reconcile is None:
            continue
        arguments = _arguments(session, call, tool)
        if arguments is None:
            continue
        try:
            outcome = await _ask(harness, tool, arguments)
        except BaseException as exc:
            if ours(exc) or isinstance(exc, KeyboardInterrupt):
                raise
            absorb()
            harness.hooks.faults.write(tool.name, "reconcile", exc, session, "contained")
            continue
        if outcome is not None:
            settle(session, call.call_id, capped(outcome, harness.output_bytes, session.put_blob))


async def _ask(harness: Harness, tool: Tool, arguments: dict[str, Any]) -> Outcome | None:
    """Call `reconcile`, a sync one in a thread, within the deadline.

    Raises:
        TimeoutError: it did not answer in time.
    """
    function: Any = tool.reconcile
    with anyio.fail_after(RECONCILE_S):
        if iscoroutinefunction(function):
            answer = await function(arguments)
        else:
            answer = await harness.threads.run(function, arguments)
            if isawaitable(answer):
                answer = await answer
    return None if answer is None else to_outcome(answer)


def _arguments(session: Session, call: CallState, tool: Tool) -> dict[str, Any] | None:
    """What the call was begun with: the arguments of its last start, or the model's own."""
    for event in reversed(session.events):
        if type(event) is ToolStarted and event.call_id == call.call_id and event.arguments is not None:
            arguments: dict[str, Any] = copied(event.arguments)
            return arguments
        if type(event) is AssistantAnswer:
            for block in event.content:
                if type(block) is CallBlock and block.call_id == call.call_id:
                    try:
                        return tool.decode(block.arguments)
                    except InvalidArguments:
                        return None
            return None
    return None
