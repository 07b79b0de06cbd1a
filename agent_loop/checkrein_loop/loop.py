"""The heart: turns and steps. Read top-down: drive -> run_turn -> run_steps -> run_step.

Balance comes by construction: `run_turn` has one `finally`, which closes from the log whatever is open
(checkrein.closing). Nothing in here keeps a flag about what is open, and nothing but our own
cancellation leaves `drive`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio.lowlevel import checkpoint

from checkrein.closing import closed
from checkrein.decisions import Continue, Stop, check_members
from checkrein.errors import GateClosed
from checkrein.events import (
    AssistantAnswer,
    Cause,
    ContextInput,
    Decision,
    Reason,
    SteeringInput,
    StepEnd,
    StepStart,
    TurnStart,
    UserInput,
)
from checkrein.messages import CallBlock, Source
from checkrein.owner import absorb, native_task, ours
from checkrein.text import clean

from .ends import StepFailed, why
from .generate import generate
from .inbox import cleaned_content
from .outputs import completed
from .rewrite import rewritten
from .tools import run_calls

if TYPE_CHECKING:
    from checkrein.hooks import Chain

    from .agent import LoopAgent


UNBROKEN_STEPS = 16


async def drive(agent: LoopAgent) -> None:
    """Run turns as long as input is owed. One driver an agent, and only while there is work."""
    agent.task = native_task()
    try:
        while agent.owes_turn() and not agent.disposing:
            if agent.hooks.session_flush is not None and not await may_begin(agent):
                break
            if agent.owes_turn():  # not withdrawn while it was flushed
                try:
                    await run_turn(agent)
                except KeyboardInterrupt as exc:
                    agent.hold(exc)  # an observer's, of the closing: the turn is over, and is settled as any other
            await agent.settle_turn()
    except BaseException as exc:
        if ours(exc):
            raise
        absorb()
        agent.internal(exc)
    finally:
        agent.rest()


async def may_begin(agent: LoopAgent) -> bool:
    """Flush what was accepted; behind a closed gate the input is refused, and the driver does not spin (R4, C4)."""
    try:
        await agent.flush("input")
    except GateClosed as exc:
        agent.inbox.refuse(str(exc))
        return False
    return True


async def run_turn(agent: LoopAgent) -> None:
    """Run one turn: from its first input until nothing is owed. However it ends, it is closed here (T2)."""
    session = agent.session
    reason: Reason | None = None
    leaving: BaseException | None = None
    try:
        with agent.turn_scope():
            taken = agent.inbox.take(cancelled=agent.cause is not None)
            turn = session.state.turn + 1
            session.append(TurnStart(turn=turn, trigger={"kind": "input", "ids": [entry.id for entry in taken]}))
            for entry in taken:
                session.append(
                    UserInput(
                        turn=turn,
                        id=entry.id,
                        content=entry.content,
                        source=entry.source,
                        mark="steering" if entry.kind == "steering" else None,
                    )
                )
            reason = await run_steps(agent, turn, agent.options_of(taken))
    except BaseException as exc:
        leaving = exc
        reason = why(agent, exc)
    finally:
        reason = reason or why(agent, None)
        try:
            closed(session, reason)
        finally:
            if session.state.turn_open:  # something struck before the first one began (T3)
                closed(session, reason)
    if leaving is not None and ours(leaving):
        raise leaving  # the harness is closing: the turn is balanced, the driver goes


async def run_steps(agent: LoopAgent, turn: int, options: dict[str, Any]) -> Reason:
    """Run steps until the turn is over, and say how it ended (T5)."""
    limit = options.get("max_steps", agent.spec.max_steps)
    step = extensions = 0
    agent.checkpoint()
    while True:
        step += 1
        agent.unbroken += 1
        if agent.unbroken >= UNBROKEN_STEPS:
            agent.unbroken = 0
            await checkpoint()  # nothing in a step has to suspend: the other agents have their turn here
        calls = await run_step(agent, turn, step, options)
        agent.checkpoint()
        waits = agent.inbox.steering_waits()
        vote: bool | tuple[Stop, str] = False
        if agent.hooks.turn_continuation is not None:
            vote = await continuation(agent, agent.hooks.turn_continuation, turn, step, calls or waits)
            agent.checkpoint()  # a voter may have swallowed the cancellation
        if isinstance(vote, tuple):
            stop, plugin = vote
            return completed(agent, turn, options) if not calls else stopped(stop, plugin)
        more = vote or calls or (waits and extensions < agent.spec.max_steering_extensions)
        if not more:
            return completed(agent, turn, options)
        if limit and step >= limit:
            # A final answer with only steering left is complete; that input becomes the next turn's.
            return Reason("step_limit", max_steps=limit) if calls or vote else completed(agent, turn, options)
        extensions = 0 if calls else extensions + 1


async def run_step(agent: LoopAgent, turn: int, step: int, options: dict[str, Any]) -> bool:
    """Run one step: take what waits, ask the model, log its answer, run its calls. Returns whether there were calls."""
    session = agent.session
    session.append(StepStart(turn=turn, step=step))
    if session.state.pending:
        take_waiting(agent, turn, step)
    generated = await generate(agent, turn, step, options)
    content, replaced = generated.message.content, None
    if agent.hooks.step_result is not None and generated.failure is None:
        content, replaced = await rewritten(agent, agent.hooks.step_result, turn, step, generated)
    session.append(
        AssistantAnswer(
            turn=turn,
            step=step,
            content=content,
            provider_metadata=generated.message.provider_metadata,
            replaced=replaced,
            dropped=generated.dropped,
            cleaned=generated.cleaned,
        )
    )
    if generated.failure is not None:
        raise StepFailed(generated.failure)
    calls = [block for block in content if type(block) is CallBlock]
    if calls:
        await run_calls(agent, turn, step, calls, generated.provider_ids)
    session.append(StepEnd(turn=turn, step=step))
    return bool(calls)


def take_waiting(agent: LoopAgent, turn: int, step: int) -> None:
    """Take steering and injected context at the step boundary: never between a call and its result (I8)."""
    for entry in agent.inbox.waiting():
        fields: dict[str, Any] = {"turn": turn, "step": step, "id": entry.id}
        kind = SteeringInput if entry.kind == "steering" else ContextInput
        agent.session.append(kind(**fields, content=entry.content, source=entry.source))


async def continuation(agent: LoopAgent, chain: Chain, turn: int, step: int, default: bool) -> bool | tuple[Stop, str]:
    """Ask `turn_continuation`: True to continue because a plugin said so, a Stop with its author, or False."""
    word = "continue" if default else "stop"
    vote, plugin = await agent.hooks.vote(
        chain, agent.session, (agent, turn, step, word), (Stop, Continue), _valid_continuation
    )
    if vote is None:
        return False
    append = agent.session.append
    outcome = "stop" if isinstance(vote, Stop) else "continue"
    reason = clean(vote.reason)[0]
    append(Decision(turn=turn, step=step, hook="turn_continuation", outcome=outcome, reason=reason, plugin=plugin))
    if isinstance(vote, Stop):
        return vote, plugin or ""
    content, count = cleaned_content(vote.content)
    source = Source("plugin", name=plugin)
    append(ContextInput(turn=turn, content=content, source=source, plugin=plugin, cleaned=count or None))
    return True


def _valid_continuation(vote: Any) -> None:
    if isinstance(vote, Continue):
        cleaned_content(vote.content)
    check_members(vote)


def stopped(vote: Stop, plugin: str) -> Reason:
    """How a turn ends that a plugin stopped after tool calls (T5)."""
    reason = clean(vote.reason)[0]
    if vote.budget is not None:
        which = clean(vote.budget)[0]
        cause = Cause("budget", plugin=plugin, reason=reason, which=which, limit=vote.limit, used=vote.used)
    else:
        cause = Cause("hook", plugin=plugin, reason=reason)
    return Reason("cancelled", cause=cause)


__all__ = ["drive", "run_turn", "run_steps", "run_step"]
