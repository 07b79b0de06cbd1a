"""The end of an agent, and of turns that do not hear their cancellation (C1, C5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from .agent import LoopAgent

__all__ = ["dispose", "deaf_watch"]

DEAF_S = 1.0


async def dispose(agent: LoopAgent, done: anyio.Event) -> None:
    """Cancel, wait for the loop, flush through the attached stores, tell, unregister; in the owner task."""
    with anyio.CancelScope(shield=True):
        agent.disposing = True
        try:
            agent._stop_turn()
            with anyio.move_on_after(agent.harness.close_timeout_s + DEAF_S):
                while agent.driven:
                    await agent.moved()
            await agent.settle_turn()
            agent._set_status("disposed")
            chain = agent.hooks.agent_disposed
            if chain is not None:
                await agent.hooks.observe_async(chain, agent.session, (agent,))
        finally:
            agent.harness.forget(agent)
            done.set()
            agent.notify()


async def deaf_watch(agent: LoopAgent, turn: int) -> None:
    """Name what does not end a second after its cancellation: it shields itself, or swallows it."""
    await anyio.sleep(DEAF_S)
    state = agent.session.state
    if not state.turn_open or state.turn != turn:
        return
    running = [call.name for call in state.open_calls if call.begun]
    what = f"tool {', '.join(running)}" if running else "a hook or the provider"
    agent.hooks.faults.write(
        running[0] if running else "unknown",
        "cancel",
        TimeoutError(f"{what} has not ended {DEAF_S:g} s after its cancellation; what may be deaf belongs in a thread"),
        agent.session,
        "contained",
    )
