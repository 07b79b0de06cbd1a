"""How each event changes the projections, and which events are legal: `RULES = {Type: (check, apply)}`.

`check` is strict and pure and is asked only by append; `apply` is total and used by append, load and
refold alike. That split gives L3, L8, R1 and "the live fold equals the re-derivation" together: they
must not be merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from . import events as ev
from . import rules_calls as calls
from .errors import InvariantViolation
from .lenient import structural
from .messages import CallBlock, Usage, content_text
from .state import (
    CallState,
    Pending,
    State,
    abandon,
    enter_step,
    enter_turn,
    leave_step,
    need_step,
    need_turn,
    number_of,
    open_step,
    refuse,
)

__all__ = ["FOLD", "RULES", "check", "apply", "fold_all"]

FOLD = 3
"""The fold's number. Raise it whenever some log folds to another state than before, or snapshot.py carries it otherwise
(a test notices most of it): what was kept of an older fold is then not used."""

Check: TypeAlias = Callable[[State, Any], None]
Apply: TypeAlias = Callable[[State, Any], None]

IN_STEP, ANYWHERE = True, False
"""Whether an event stands in the open step only; what it says of turn and step was compared before its own check."""


def check(state: State, event: ev.AnyEvent) -> None:
    """Refuse an event that would break a structural rule (L3).

    Raises:
        InvariantViolation: with the oracle rule it breaks.
    """
    if event.seq != state.next_seq:
        raise InvariantViolation("O1", f"expected seq {state.next_seq}, got {event.seq}")
    in_step, strict, _ = STEPS[type(event)]
    if in_step:
        need_step(state, event)
    if strict is not None:
        strict(state, event)


def apply(state: State, event: ev.AnyEvent) -> None:
    """Fold an event in; total."""
    if event.seq != state.next_seq:
        abandon(state)  # a gap: what would have closed the open brackets is lost (R1)
    state.next_seq = event.seq + 1
    _, _, fold = STEPS[type(event)]
    if fold is not None:
        fold(state, event)


def fold_all(state: State, events: Iterable[ev.AnyEvent]) -> None:
    """Fold many events in, as `apply` does one: written out, for a log may hold a million."""
    steps = STEPS
    for event in events:
        seq = event.seq
        if seq != state.next_seq:
            abandon(state)
        state.next_seq = seq + 1
        _, _, fold = steps[type(event)]
        if fold is not None:
            fold(state, event)


# --- the session ------------------------------------------------------------------------------------


def check_created(state: State, event: ev.SessionCreated) -> None:
    if event.seq != 0 and event.origin is None:
        raise refuse("O1", event, "a session is created once, at seq 0")


def apply_created(state: State, event: ev.SessionCreated) -> None:
    state.created = event
    state.session, state.agent, state.format = event.session, event.agent, event.format


def apply_repaired(state: State, event: ev.SessionRepaired) -> None:
    for call in event.calls:
        state.orphans.pop(str(call.get("call_id")), None)


# --- the inbox --------------------------------------------------------------------------------------


def check_accepted(state: State, event: ev.InboxAccepted) -> None:
    if event.id in state.pending or event.id in state.claimed or event.id in state.discarded:
        raise refuse("O12", event, f"input {event.id} was accepted before")
    if event.kind not in ("queued", "steering", "context"):
        raise refuse("O12", event, f"expected kind queued, steering or context, got {event.kind!r}")


def apply_accepted(state: State, event: ev.InboxAccepted) -> None:
    if event.id in state.claimed or event.id in state.discarded:
        return
    state.inputs += 1
    known_input(state, event.id)
    state.pending[event.id] = Pending(
        event.id, event.kind, event.content, event.source, event.own_turn, event.options or {}, event.seq
    )
    if event.key is not None and state.keyed(event.key) is None:
        state.keys[event.key] = event.id


def known_input(state: State, input_id: str) -> None:
    """Number on behind an input, also one whose acceptance is lost: no other one may get its id (R1)."""
    state.inputs = max(state.inputs, number_of(input_id))


def check_pending(state: State, event: Any) -> None:
    if event.id not in state.pending:
        raise refuse("O12", event, f"input {event.id} is not pending")


def apply_replaced(state: State, event: ev.InboxReplaced) -> None:
    if (entry := state.pending.get(event.id)) is not None:
        entry.content = event.content
    else:
        known_input(state, event.id)


def apply_discarded(state: State, event: ev.InboxDiscarded) -> None:
    if state.pending.pop(event.id, None) is not None:
        state.discarded[event.id] = event.reason
    else:
        known_input(state, event.id)


def claim(state: State, input_id: str | None, turn: int) -> None:
    if input_id is not None and input_id not in state.discarded:
        if state.pending.pop(input_id, None) is None:
            known_input(state, input_id)
        state.claimed.setdefault(input_id, turn)


# --- brackets ---------------------------------------------------------------------------------------


def check_turn_start(state: State, event: ev.TurnStart) -> None:
    if state.turn_open:
        raise refuse("O2", event, f"turn {state.turn} is open")
    if event.turn != state.turn + 1:
        raise refuse("O4", event, f"expected turn {state.turn + 1}")


def apply_turn_start(state: State, event: ev.TurnStart) -> None:
    abandon(state)
    state.turn, state.turn_open = max(event.turn, state.turn), True
    state.starts[event.turn] = event.seq
    state.step = state.turn_calls = 0
    state.final_text = ""
    state.usage_turn = Usage()


def check_turn_end(state: State, event: ev.TurnEnd) -> None:
    need_turn(state, event)
    if state.step_open:
        raise refuse("O3", event, f"step {state.turn}.{state.step} is open")


def apply_turn_end(state: State, event: ev.TurnEnd) -> None:
    if state.step_open:
        leave_step(state)
    state.turn_open = False
    state.turn = max(state.turn, event.turn)
    state.ends[event.turn] = event.seq


def check_step_start(state: State, event: ev.StepStart) -> None:
    need_turn(state, event)
    if state.step_open:
        raise refuse("O3", event, f"step {state.turn}.{state.step} is open")
    if event.step != state.step + 1:
        raise refuse("O4", event, f"expected step {state.step + 1}")


def apply_step_start(state: State, event: ev.StepStart) -> None:
    enter_turn(state, event.turn)
    open_step(state, event.step)


def check_step_end(state: State, event: ev.StepEnd) -> None:
    if state.request_open:
        raise refuse("O6", event, "its request has no request/end")
    for call in state.calls.values():
        if not call.resulted:
            raise refuse("O7", event, f"call {call.call_id} has no result")


def apply_step_end(state: State, event: ev.StepEnd) -> None:
    leave_step(state)


# --- input events -----------------------------------------------------------------------------------


def check_user(state: State, event: ev.UserInput) -> None:
    need_turn(state, event)
    if state.step_open:
        raise refuse("O6", event, "queued input is taken before the first step")
    check_pending(state, event)


def check_steering(state: State, event: ev.SteeringInput) -> None:
    if state.attempt:
        raise refuse("O6", event, "steering stands before the step's request")
    check_pending(state, event)


def check_context(state: State, event: ev.ContextInput) -> None:
    need_turn(state, event)
    if event.step is not None:
        need_step(state, event)
    if state.step_open and state.attempt:
        raise refuse("O6", event, "context stands before the step's request")
    if event.id is not None:
        check_pending(state, event)


def apply_input(state: State, event: Any) -> None:
    if not state.turn_open:
        enter_turn(state, event.turn)
    claim(state, event.id, event.turn)
    state.history.user(event.seq, event.content, event.source)


# --- the request ------------------------------------------------------------------------------------


def apply_part(state: State, event: ev.PromptPart) -> None:
    state.parts.setdefault(event.id, event.content)


def check_header(state: State, event: ev.RequestHeader) -> None:
    if state.request_open or state.answered:
        raise refuse("O6", event, "a header stands before its request")


def apply_header(state: State, event: ev.RequestHeader) -> None:
    state.header = event


def check_request(state: State, event: ev.RequestStart) -> None:
    if state.request_open or state.answered:
        raise refuse("O6", event, "a request is open, or the step has its answer")
    if event.attempt != state.attempt + 1:
        raise refuse("O4", event, f"expected attempt {state.attempt + 1}, got {event.attempt}")


def apply_request(state: State, event: ev.RequestStart) -> None:
    if not state.step_open:
        enter_step(state, event.turn, event.step)
    state.attempt, state.request_open, state.request_ok, state.shown = event.attempt, True, False, False
    state.thinking = {}
    state.last_request = event


def check_thinking(state: State, event: ev.AssistantThinking) -> None:
    if not state.request_open:
        raise refuse("O6", event, "thinking belongs to an open request")


def apply_thinking(state: State, event: ev.AssistantThinking) -> None:
    state.thinking[event.index] = (event.text, event.provider_metadata)


def check_request_end(state: State, event: ev.RequestEnd) -> None:
    if not state.request_open or event.attempt != state.attempt:
        raise refuse("O6", event, f"attempt {event.attempt} is not open")


def apply_request_end(state: State, event: ev.RequestEnd) -> None:
    state.request_open, state.request_ok = False, event.outcome == "ok"
    if event.usage is not None:
        state.usage_latest = event.usage
        state.usage = state.usage + event.usage
        state.usage_turn = state.usage_turn + event.usage


def check_partial(state: State, event: ev.AssistantPartial) -> None:
    if state.request_open or not state.attempt or state.answered or state.shown:
        raise refuse("O6", event, "shown text stands once behind a request that ended, in a step without an answer")


def apply_partial(state: State, event: ev.AssistantPartial) -> None:
    """Shown, but not part of the history; what was given up gets no answer any more."""
    state.request_ok, state.shown = False, True


def check_answer(state: State, event: ev.AssistantAnswer) -> None:
    if state.request_open or state.answered or not state.request_ok:
        raise refuse("O6", event, "an answer stands behind a request that ended well, once a step")
    ids: set[str] = set()
    for block in event.content:
        if type(block) is CallBlock:
            if block.call_id in ids:
                raise refuse("O9", event, "a call id stands twice in the answer")
            ids.add(block.call_id)


def apply_answer(state: State, event: ev.AssistantAnswer) -> None:
    if not state.step_open or state.answered:
        enter_step(state, event.turn, event.step if not state.answered else state.step + 1)
    state.answered = True
    calls, due = state.calls, state.due
    for block in event.content:
        if type(block) is CallBlock and (call_id := block.call_id) not in calls:
            calls[call_id] = CallState(call_id, block.name)
            due.append(call_id)
    state.turn_calls += len(due)
    state.final_text = "" if due else content_text(event.content)
    header = state.header
    provider, model = (header.provider, header.model) if header is not None else ("", "")
    state.history.answer(event, state.thinking, provider, model)


def apply_free(state: State, event: ev.FreeEvent) -> None:
    known = structural(event)
    if known is None:
        calls.apply_free(state, event)
    else:
        RULES[type(known)][2](state, known)


def nothing(state: State, event: Any) -> None:
    """Free events that no projection reads."""


# Where an event stands, whether it may, and what it makes of the projections.
RULES: dict[type[Any], tuple[bool, Check | None, Apply]] = {
    ev.SessionCreated: (ANYWHERE, check_created, apply_created),
    ev.SessionResumed: (ANYWHERE, None, nothing),
    ev.SessionRepaired: (ANYWHERE, None, apply_repaired),
    ev.LogGap: (ANYWHERE, None, nothing),
    ev.InboxAccepted: (ANYWHERE, check_accepted, apply_accepted),
    ev.InboxReplaced: (ANYWHERE, check_pending, apply_replaced),
    ev.InboxDiscarded: (ANYWHERE, check_pending, apply_discarded),
    ev.TurnStart: (ANYWHERE, check_turn_start, apply_turn_start),
    ev.UserInput: (ANYWHERE, check_user, apply_input),
    ev.StepStart: (ANYWHERE, check_step_start, apply_step_start),
    ev.SteeringInput: (IN_STEP, check_steering, apply_input),
    ev.ContextInput: (ANYWHERE, check_context, apply_input),
    ev.PromptPart: (ANYWHERE, None, apply_part),
    ev.RequestHeader: (IN_STEP, check_header, apply_header),
    ev.RequestStart: (IN_STEP, check_request, apply_request),
    ev.AssistantThinking: (IN_STEP, check_thinking, apply_thinking),
    ev.RequestEnd: (IN_STEP, check_request_end, apply_request_end),
    ev.AssistantPartial: (IN_STEP, check_partial, apply_partial),
    ev.AssistantAnswer: (IN_STEP, check_answer, apply_answer),
    ev.ToolCalled: (IN_STEP, calls.check_call, calls.apply_call),
    ev.ToolStarted: (IN_STEP, calls.check_start, calls.apply_start),
    ev.ToolEnded: (IN_STEP, calls.check_end, calls.apply_end),
    ev.ToolResulted: (IN_STEP, calls.check_result, calls.apply_result),
    ev.ToolLate: (ANYWHERE, None, nothing),
    ev.Decision: (ANYWHERE, None, nothing),
    ev.StepEnd: (IN_STEP, check_step_end, apply_step_end),
    ev.TurnEnd: (ANYWHERE, check_turn_end, apply_turn_end),
    ev.PluginFaulted: (ANYWHERE, None, nothing),
    ev.ApprovalAsked: (ANYWHERE, calls.check_asked, calls.apply_asked),
    ev.ApprovalDecided: (ANYWHERE, calls.check_decided, calls.apply_decided),
    ev.CompactionStart: (ANYWHERE, calls.check_compaction, calls.apply_compaction),
    ev.CompactionSummary: (ANYWHERE, calls.check_compaction, calls.apply_compaction),
    ev.CompactionEnd: (ANYWHERE, calls.check_compaction, calls.apply_compaction),
    ev.FreeEvent: (ANYWHERE, calls.check_free, apply_free),
}

# The table as append asks it: None where there is nothing to do.
STEPS: dict[type[Any], tuple[bool, Check | None, Apply | None]] = {
    kind: (where, strict, None if fold is nothing else fold) for kind, (where, strict, fold) in RULES.items()
}
