"""The end of an agent, and of turns that do not hear their cancellation (C1, C5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import anyio

from checkrein.owner import absorb

if TYPE_CHECKING:
    from .agent import LoopAgent

__all__ = ["dispose", "name_deaf", "DEAF_S"]

DEAF_S = 1.0


async def dispose(agent: LoopAgent, done: anyio.Event) -> None:
    """Cancel, wait for the loop, flush through the attached stores, tell, unregister; in the owner task.

    Each part is done whatever became of the one before; a KeyboardInterrupt is handed to the program at the end.
    """
    with anyio.CancelScope(shield=True):
        agent.disposing = True
        try:
            await guarded(agent, partial(stop, agent))
            await guarded(agent, agent.settle_turn)
            await guarded(agent, partial(tell, agent))
        finally:
            try:
                agent.gone()
            finally:
                done.set()


async def stop(agent: LoopAgent) -> None:
    """Cancel the open turn and wait until the driver is gone, or has shown that it hears nothing."""
    agent.stop_turn()
    with anyio.move_on_after(agent.harness.close_timeout_s + DEAF_S):
        while agent.driven:
            await agent.moved()


async def tell(agent: LoopAgent) -> None:
    """Set the status, and tell the observers of the end."""
    agent.set_status("disposed")
    chain = agent.hooks.agent_disposed
    if chain is not None:
        await agent.hooks.observe_async(chain, agent.session, (agent,))


async def guarded(agent: LoopAgent, part: Callable[[], Awaitable[None]]) -> None:
    """Do one part; nothing that goes wrong in it may keep the others from being done."""
    try:
        await part()
    except KeyboardInterrupt as exc:
        agent.hold(exc)
    except BaseException as exc:
        absorb()
        agent.hooks.faults.write("checkrein", "dispose", exc, None, "contained")


async def name_deaf(agent: LoopAgent) -> None:
    """Name what has not ended a while after its cancellation: it shields itself, or swallows it."""
    author, what = suspect(agent)
    agent.hooks.faults.write(
        author,
        "cancel",
        TimeoutError(f"{what} has not ended {DEAF_S:g} s after its cancellation; what may be deaf belongs in a thread"),
        agent.session,
        "contained",
    )


def suspect(agent: LoopAgent) -> tuple[str, str]:
    """Whose code is running in the open turn, and what to call it."""
    state, author = agent.session.state, agent.session.author
    running = [call.name for call in state.open_calls if call.begun]
    if running:
        return running[0], f"tool {', '.join(running)}"
    if author is not None:
        return author, f"plugin {author}"
    if state.request_open and state.header is not None:
        return state.header.provider, f"provider {state.header.provider}"
    return "unknown", "a hook or the provider"
