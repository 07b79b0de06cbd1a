"""The rules of calls, approvals, compaction and plugins' own events: checks and folds (see rules.py)."""

from __future__ import annotations

from typing import Any

from . import events as ev
from .eventtypes import Balance
from .lenient import loose_content
from .messages import TextBlock
from .state import CallState, State, number_of, refuse

# --- calls ------------------------------------------------------------------------------------------


def need_call(state: State, event: Any) -> CallState:
    call = state.calls.get(event.call_id)
    if call is None or not call.called:
        raise refuse("O8", event, f"there is no call {event.call_id}")
    if call.resulted:
        raise refuse("O7", event, f"call {event.call_id} has its result")
    return call


def check_call(state: State, event: ev.ToolCalled) -> None:
    call = state.calls.get(event.call_id)
    if event.parent is not None:
        parent = state.calls.get(event.parent)
        if parent is None or not parent.called or parent.resulted:
            raise refuse("O8", event, f"its parent {event.parent} is not open")
        if call is not None:
            raise refuse("O9", event, f"call {event.call_id} exists")
    elif call is None:
        raise refuse("O10", event, f"the answer has no call {event.call_id}")
    elif call.called:
        raise refuse("O9", event, f"call {event.call_id} was called before")


def apply_call(state: State, event: ev.ToolCalled) -> None:
    call = state.calls.get(event.call_id)
    if call is None:
        if event.parent is None or not state.step_open:
            return  # no answer asked for it: a stranger's log
        call = state.calls[event.call_id] = CallState(event.call_id, event.name, event.parent)
    call.called = True
    call.provider_id = event.provider_call_id


def check_start(state: State, event: ev.ToolStarted) -> None:
    call = need_call(state, event)
    if call.begun and (event.effect == "effectful" or call.effectful):
        raise refuse("O19", event, f"the effectful call {event.call_id} has begun before")
    if event.attempt != call.attempts + 1:
        raise refuse("O4", event, f"expected attempt {call.attempts + 1}")


def apply_start(state: State, event: ev.ToolStarted) -> None:
    if (call := state.calls.get(event.call_id)) is not None:
        call.begun = True
        call.attempts = event.attempt
        call.effectful = call.effectful or event.effect == "effectful"
        state.history.begun(event.call_id)


def check_end(state: State, event: ev.ToolEnded) -> None:
    call = need_call(state, event)
    if call.end is not None:
        raise refuse("O7", event, f"call {event.call_id} has its end")


def apply_end(state: State, event: ev.ToolEnded) -> None:
    if (call := state.calls.get(event.call_id)) is not None:
        call.end = event
        state.history.ended(event.call_id, event.content, event.is_error)


def check_result(state: State, event: ev.ToolResulted) -> None:
    call = need_call(state, event)
    if call.parent is None and state.due and state.due[0] != event.call_id:
        raise refuse("O7", event, f"the result of {state.due[0]} comes first")
    if (event.end is None) == (event.content is None):
        raise refuse("O7", event, "expected either content or end")
    if event.end is not None and (call.end is None or call.end.seq != event.end):
        raise refuse("O7", event, f"seq {event.end} is not its tool/end")


def apply_result(state: State, event: ev.ToolResulted) -> None:
    call = state.calls.get(event.call_id)
    if call is None or call.resulted:
        return
    call.resulted = True
    if call.parent is not None:
        return
    due, content = state.due, event.content
    if due and due[0] == event.call_id:
        del due[0]
    elif event.call_id in due:
        due.remove(event.call_id)
    if content is None:
        content = call.end.content if call.end is not None else [TextBlock("(its output is lost)")]
    state.history.result(event.seq, event.call_id, content, event.is_error, call.provider_id)


# --- approvals, compaction, plugins -----------------------------------------------------------------


def check_asked(state: State, event: ev.ApprovalAsked) -> None:
    if event.id in state.approvals:
        raise refuse("O20", event, f"approval {event.id} is open")
    call = state.calls.get(event.call_id)
    if call is None or not call.called or call.resulted:
        raise refuse("O20", event, f"call {event.call_id} is not open")


def apply_asked(state: State, event: ev.ApprovalAsked) -> None:
    state.approvals[event.id] = event
    state.approvals_asked = max(state.approvals_asked + 1, number_of(event.id))  # some may be lost (R1)


def check_decided(state: State, event: ev.ApprovalDecided) -> None:
    if event.id not in state.approvals:
        raise refuse("O20", event, f"approval {event.id} is not open")


def apply_decided(state: State, event: ev.ApprovalDecided) -> None:
    if state.approvals.pop(event.id, None) is None:
        state.approvals_asked = max(state.approvals_asked, number_of(event.id))
    if event.outcome == "allowed_rule" and event.rule is not None:
        state.allowed_rules.append(event.rule)


def check_compaction(state: State, event: Any) -> None:
    if type(event) is ev.CompactionStart:
        if state.compactions:
            raise refuse("O21", event, f"compaction {next(iter(state.compactions))} is open")
    elif event.id not in state.compactions:
        raise refuse("O21", event, f"compaction {event.id} is not open")
    if type(event) is ev.CompactionSummary and state.due:
        raise refuse("O21", event, "calls are open")


def apply_compaction(state: State, event: Any) -> None:
    if type(event) is ev.CompactionStart:
        state.compactions[event.id] = event
    elif type(event) is ev.CompactionEnd:
        state.compactions.pop(event.id, None)
    else:
        state.history.replace(event)


def _key(event: ev.FreeEvent, balance: Balance) -> tuple[str, str]:
    return balance.opens, str(event.fields.get(balance.key))


def check_free(state: State, event: ev.FreeEvent) -> None:
    if event.type in ev.KNOWN:
        raise refuse("O6", event, "its members do not fit its type")
    kind = state.types.get(event.type)
    if kind is not None and kind.balance is not None and _key(event, kind.balance) in state.open_pairs:
        raise refuse("O22", event, f"a pair with this {kind.balance.key} is open")
    closes = state.closes.get(event.type)
    if closes is not None and _key(event, closes) not in state.open_pairs:
        raise refuse("O22", event, f"no {closes.opens} with this {closes.key} is open")


def apply_free(state: State, event: ev.FreeEvent) -> None:
    kind = state.types.get(event.type)
    if kind is not None and kind.balance is not None:
        state.open_pairs[_key(event, kind.balance)] = event
    if (closes := state.closes.get(event.type)) is not None:
        state.open_pairs.pop(_key(event, closes), None)
    # The standard member, not the registration, makes it visible: derivation needs no plugin.
    message = event.fields.get("message")
    if isinstance(message, dict) and message.get("role") == "user":
        state.history.aside(event.seq, loose_content(message.get("content")))
