"""Guard the guards: mutants of the loop and the session, kept here, each of which the proof must notice.

A mutant takes one protection out. `MUTANTS` maps its name to what it replaces, by a pytest.MonkeyPatch; what
notices it is small_suite.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

import checkrein.closing
import checkrein.hooks
import checkrein.session
import checkrein.state
import checkrein_loop.agent
import checkrein_loop.execute
import checkrein_loop.generate
import checkrein_loop.inbox
import checkrein_loop.loop
import checkrein_loop.receipt
import checkrein_loop.tools
from checkrein.decisions import Allow
from checkrein.errors import PluginFault
from checkrein.events import ToolEnded, ToolResulted
from checkrein.messages import TextBlock

__all__ = ["MUTANTS"]

Patch = Callable[[Any], None]
MUTANTS: dict[str, Patch] = {}


def mutant(fn: Patch) -> Patch:
    """Keep a mutant under its function's name."""
    MUTANTS[fn.__name__.replace("_", " ")] = fn
    return fn


# --- the mutants: each takes a pytest.MonkeyPatch -----------------------------------------------------


@mutant
def no_finaliser_in_run_turn(patch: Any) -> None:
    patch.setattr(checkrein_loop.loop, "closed", lambda session, reason: None)


@mutant
def closing_is_not_run_again(patch: Any) -> None:
    begun: set[tuple[int, int]] = set()

    def once(session: Any, reason: Any) -> None:
        key = (id(session), session.state.turn)
        if key not in begun:
            begun.add(key)
            checkrein.closing.close(session, reason)

    patch.setattr(checkrein_loop.loop, "closed", once)


@mutant
def closing_answers_no_call(patch: Any) -> None:
    patch.setattr(checkrein.closing, "answer", lambda session: None)


@mutant
def closing_forgets_what_a_tool_gave(patch: Any) -> None:
    def answer(session: Any) -> None:
        state = session.state
        for call in state.open_calls:
            where = {"turn": state.turn, "step": state.step, "call_id": call.call_id}
            session.append(ToolResulted(**where, content=[TextBlock("lost")], is_error=True))

    patch.setattr(checkrein.closing, "answer", answer)


@mutant
def the_outcome_of_a_begun_call_is_called_not_started(patch: Any) -> None:
    patch.setattr(checkrein.state.CallState, "code", property(lambda self: "NOT_STARTED"))


@mutant
def no_refold(patch: Any) -> None:
    patch.setattr(checkrein.session.Session, "_refold", lambda self: None)


@mutant
def results_in_the_order_they_come(patch: Any) -> None:
    def settle(session: Any, call_id: str, outcome: Any, duration_ms: int) -> None:
        state = session.state
        session.append(ToolResulted(turn=state.turn, step=state.step, call_id=call_id, content=outcome.content))

    patch.setattr(checkrein_loop.tools, "settle", settle)


@mutant
def an_early_result_is_never_handed_on(patch: Any) -> None:
    plain = checkrein_loop.tools.settle

    def settle(session: Any, call_id: str, outcome: Any, duration_ms: int) -> None:
        state = session.state
        if state.due and state.due[0] != call_id:
            where = {"turn": state.turn, "step": state.step, "call_id": call_id}
            session.append(ToolEnded(**where, content=outcome.content, is_error=outcome.is_error))
            state.calls[call_id].end = None
        else:
            plain(session, call_id, outcome, duration_ms)

    patch.setattr(checkrein_loop.tools, "settle", settle)


@mutant
def no_look_at_cancels_between_steps(patch: Any) -> None:
    patch.setattr(checkrein_loop.agent.LoopAgent, "checkpoint", lambda self: None)
    patch.setattr(checkrein_loop.agent.LoopAgent, "cancelled", property(lambda self: False))


@mutant
def a_stream_is_not_closed(patch: Any) -> None:
    async def close_stream(agent: Any, provider: Any, stream: Any) -> None:
        """Nothing."""

    patch.setattr(checkrein_loop.generate, "close_stream", close_stream)


@mutant
def a_stream_is_closed_without_a_shield(patch: Any) -> None:
    async def close_stream(agent: Any, provider: Any, stream: Any) -> None:
        await anyio.lowlevel.checkpoint()
        await stream.aclose()

    patch.setattr(checkrein_loop.generate, "close_stream", close_stream)


@mutant
def what_was_shown_is_forgotten(patch: Any) -> None:
    patch.setattr(checkrein_loop.generate, "shown_text", lambda assembler: ("", 0))


@mutant
def a_retry_keeps_the_failed_attempt(patch: Any) -> None:
    kept: list[Any] = []
    plain = checkrein_loop.generate.Assembler

    def assembler() -> Any:
        if not kept or kept[-1].finish is not None:
            kept.append(plain())
        return kept[-1]

    patch.setattr(checkrein_loop.generate, "Assembler", assembler)


@mutant
def a_torn_stream_is_an_answer(patch: Any) -> None:
    patch.setattr(checkrein_loop.generate, "torn", lambda: None)


@mutant
def the_tool_begins_before_its_start_is_flushed(patch: Any) -> None:
    plain = checkrein_loop.agent.LoopAgent.flush

    async def flush(self: Any, gate: str) -> None:
        if gate != "call":
            await plain(self, gate)

    patch.setattr(checkrein_loop.agent.LoopAgent, "flush", flush)


@mutant
def a_failing_guard_lets_the_call_run(patch: Any) -> None:
    plain = checkrein.hooks.Hooks.vote

    async def vote(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return await plain(self, *args, **options)
        except PluginFault:
            return (Allow(), None) if options.get("action") == "refused" else (None, None)

    patch.setattr(checkrein.hooks.Hooks, "vote", vote)


@mutant
def observers_are_not_contained(patch: Any) -> None:
    def observe(self: Any, chain: Any, session: Any, args: Any, author: str | None = None) -> None:
        for impl in chain.impls:
            impl.call(*args)

    patch.setattr(checkrein.hooks.Hooks, "observe", observe)


@mutant
def foreign_cancellation_is_taken_for_ours(patch: Any) -> None:
    def ours(exc: BaseException) -> bool:
        return isinstance(exc, anyio.get_cancelled_exc_class())

    for module in (checkrein_loop.execute, checkrein_loop.tools, checkrein_loop.generate, checkrein.hooks):
        patch.setattr(module, "ours", ours)


@mutant
def a_cancel_parks_nothing_and_forgets_it(patch: Any) -> None:
    def discard_all(self: Any) -> None:
        self.agent.session.state.pending.clear()

    patch.setattr(checkrein_loop.inbox.Inbox, "park", discard_all)


@mutant
def a_leaving_waiter_leaves_its_turn(patch: Any) -> None:
    async def leave(self: Any) -> None:
        """Nothing."""

    patch.setattr(checkrein_loop.receipt.LoopReceipt, "_leave", leave)


@mutant
def input_is_taken_last_first(patch: Any) -> None:
    plain = checkrein_loop.inbox.Inbox.take
    patch.setattr(checkrein_loop.inbox.Inbox, "take", lambda self, **options: plain(self, **options)[::-1])


@mutant
def turns_of_run_are_shared(patch: Any) -> None:
    def take(self: Any, **options: Any) -> Any:
        return list(self._candidates())

    patch.setattr(checkrein_loop.inbox.Inbox, "take", take)
