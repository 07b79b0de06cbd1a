"""A right log of everything, and one broken log at least for each rule the log alone can show."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from checkrein.events import (
    AssistantAnswer,
    AssistantThinking,
    CompactionEnd,
    CompactionSummary,
    InboxAccepted,
    LogGap,
    PluginFaulted,
    PromptPart,
    RequestEnd,
    RequestHeader,
    RequestStart,
    SessionRepaired,
    SteeringInput,
    StepEnd,
    StepStart,
    ToolCalled,
    ToolEnded,
    ToolErrorInfo,
    ToolResulted,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserInput,
)
from checkrein.messages import OpaqueBlock, Source, Usage
from checkrein_invariants import RULES, check_events
from checkrein_invariants.builder import LogBuilder, renumber
from checkrein_invariants.samples import LEASE, everything


def check(log: LogBuilder, *, open_ok: bool = False) -> list[str]:
    return [str(v) for v in check_events(log.events, open_ok=open_ok, balances=[LEASE])]


def rules(log: LogBuilder) -> set[str]:
    return {v.rule for v in check_events(log.events, balances=[LEASE])}


def find(log: LogBuilder, kind: type, nth: int = 0) -> int:
    return [event.seq for event in log.events if type(event) is kind][nth]


def without(log: LogBuilder, *seqs: int) -> None:
    log.events = renumber([event for event in log.events if event.seq not in seqs])


def doubled(log: LogBuilder, seq: int) -> None:
    log.events = renumber([*log.events[: seq + 1], log.events[seq], *log.events[seq + 1 :]])


def swapped(log: LogBuilder, seq: int, other: int) -> None:
    events = list(log.events)
    events[seq], events[other] = events[other], events[seq]
    log.events = renumber(events)


def moved(log: LogBuilder, seq: int, to: int) -> None:
    events = list(log.events)
    events.insert(to, events.pop(seq))
    log.events = renumber(events)


def drop(kind: type, nth: int = 0) -> Callable[[LogBuilder], None]:
    return lambda log: without(log, find(log, kind, nth))


def double(kind: type, nth: int = 0) -> Callable[[LogBuilder], None]:
    return lambda log: doubled(log, find(log, kind, nth))


def edit(cls: type, nth: int = 0, /, **members: object) -> Callable[[LogBuilder], None]:
    return lambda log: log.change(find(log, cls, nth), **members)


def move(kind: type, nth: int, to_kind: type, to_nth: int, after: int = 0) -> Callable[[LogBuilder], None]:
    return lambda log: moved(log, find(log, kind, nth), find(log, to_kind, to_nth) + after)


def swap(kind: type, nth: int, other: type, other_nth: int) -> Callable[[LogBuilder], None]:
    return lambda log: swapped(log, find(log, kind, nth), find(log, other, other_nth))


def append(method: str, *args: object, **members: object) -> Callable[[LogBuilder], None]:
    return lambda log: getattr(log, method)(*args, **members) and None


def _gone(log: LogBuilder) -> None:
    del log.events[10]


def _false_gap(log: LogBuilder) -> None:
    log.add(LogGap, after=3, before=7, skipped_bytes=1)


def _opaque(log: LogBuilder) -> None:
    seq = find(log, AssistantAnswer)
    log.change(seq, content=[*log.events[seq].content, OpaqueBlock("stranger", {"x": 1})])


def _wrong_repair(log: LogBuilder) -> None:
    log.add(SessionRepaired, calls=[{"turn": 1, "step": 1, "call_id": "c1.1.1", "code": "NOT_STARTED"}])


def _split_compaction(log: LogBuilder) -> None:
    answer = find(log, AssistantAnswer)
    for event in list(log.events):
        if hasattr(event, "range"):
            log.change(event.seq, range=(1, answer))


def _block_gone(log: LogBuilder) -> None:
    seq = find(log, AssistantAnswer)
    log.change(seq, content=log.events[seq].content[:-1])


def _late_input(log: LogBuilder) -> None:
    seq = find(log, SteeringInput)
    taken = log.events[seq]
    log.events[seq] = UserInput(
        seq=seq, time=taken.time, turn=1, id=taken.id, content=taken.content, source=taken.source, mark="steering"
    )


def _inserted(log: LogBuilder, seq: int, **members: object) -> None:
    doubled(log, seq)
    log.change(seq + 1, **members)


def _reused_id(log: LogBuilder) -> None:
    log.start_turn()
    log.start_step()
    log.start_request()
    log.end_request()
    first = len(log.events)
    (call_id,) = log.answer("", [("write", "{}")])
    log.result(call_id, code="NOT_STARTED")
    block = log.events[first].content[0]
    log.change(first, content=[msgspec.structs.replace(block, call_id="c1.1.1")])
    log.change(first + 1, call_id="c1.1.1")
    log.change(first + 2, call_id="c1.1.1")
    log.end_step()
    log.end_turn("cancelled")


def _reason(nth: int, **members: object) -> Callable[[LogBuilder], None]:
    def change(log: LogBuilder) -> None:
        seq = find(log, TurnEnd, nth)
        log.change(seq, reason=msgspec.structs.replace(log.events[seq].reason, **members))

    return change


def _drop_word(word: str, nth: int = 0) -> Callable[[LogBuilder], None]:
    return lambda log: without(log, [event.seq for event in log.events if event.type == word][nth])


def _attempt_left_out(log: LogBuilder) -> None:
    edit(RequestStart, 1, attempt=3)(log)
    edit(RequestEnd, 1, attempt=3)(log)


def _turn_left_out(log: LogBuilder) -> None:
    log.turn += 1
    log.simple_turn()


def _started_twice(log: LogBuilder) -> None:
    _inserted(log, find(log, ToolStarted, 1), attempt=2)


def _accepted_twice(log: LogBuilder) -> None:
    log.add(InboxAccepted, id="i1", kind="queued", content=[], source=Source("user"))


def _key_twice(log: LogBuilder) -> None:
    log.accept("once", key="k")
    log.accept("again", key="k")


def _refused(log: LogBuilder) -> None:
    log.change(find(log, ToolResulted, 3), error=ToolErrorInfo("x", "REFUSED_BY_FAULT"))


BROKEN: list[tuple[str, str, Callable[[LogBuilder], None]]] = [
    ("O1", "an event is gone", _gone),
    ("O1", "a seq is there twice", lambda log: log.events.insert(5, log.events[4])),
    ("O1", "log/gap where nothing is missing", _false_gap),
    ("O2", "no turn/start", drop(TurnStart)),
    ("O2", "no turn/end", drop(TurnEnd)),
    ("O2", "turn/end twice", double(TurnEnd)),
    ("O2", "the log ends in a turn", drop(TurnEnd, -1)),
    ("O3", "no step/start", drop(StepStart)),
    ("O3", "no step/end", drop(StepEnd)),
    ("O3", "no step/end before turn/end", drop(StepEnd, -1)),
    ("O3", "step/end twice", double(StepEnd)),
    ("O4", "a turn is left out", _turn_left_out),
    ("O4", "turn/end counts wrong", edit(TurnEnd, 0, steps=3)),
    ("O4", "attempt left out", _attempt_left_out),
    ("O4", "a tool's attempt left out", edit(ToolStarted, 0, attempt=2)),
    ("O5", "event after its turn", append("partial")),
    ("O5", "event names another turn", edit(AssistantThinking, 0, turn=2)),
    ("O5", "event names another step", edit(AssistantThinking, 0, step=2)),
    ("O5", "step/end names another step", edit(StepEnd, 0, step=2)),
    ("O5", "request/end names another attempt", edit(RequestEnd, 0, attempt=2)),
    ("O6", "no request/start", drop(RequestStart, -1)),
    ("O6", "no request/end", drop(RequestEnd, -2)),
    ("O6", "an answer of a failed request", edit(RequestEnd, 1, outcome="error")),
    ("O6", "thinking after its request", move(AssistantThinking, 1, RequestEnd, 1)),
    ("O6", "thinking of the answer is missing", drop(AssistantThinking, 1)),
    ("O6", "user/message in a step", _late_input),
    ("O6", "a call after a result", move(ToolCalled, 2, ToolResulted, 1)),
    ("O6", "tool/end without need", move(ToolEnded, 0, ToolResulted, 1)),
    ("O7", "no result", drop(ToolResulted, 1)),
    ("O7", "result twice", double(ToolResulted, 1)),
    ("O7", "results out of order", swap(ToolResulted, 1, ToolResulted, 3)),
    ("O7", "the tool's own end is not the result", edit(ToolResulted, 2, end=3)),
    ("O7", "result and end differ", edit(ToolResulted, 2, is_error=True)),
    ("O7", "session/repaired answers an answered call", _wrong_repair),
    ("O8", "result of no call", lambda log: _inserted(log, find(log, ToolResulted), call_id="c9.9.9")),
    ("O8", "start of no call", lambda log: _inserted(log, find(log, ToolStarted), call_id="c9.9.9")),
    ("O9", "two calls of one id", _reused_id),
    ("O9", "tool/call twice", double(ToolCalled)),
    ("O10", "no tool/call", drop(ToolCalled, 1)),
    ("O10", "tool/calls out of order", swap(ToolCalled, 0, ToolCalled, 1)),
    ("O10", "tool/call of no block", _block_gone),
    ("O11", "an unknown reason", _reason(0, kind="bored")),
    ("O11", "cancelled without a cause", _reason(0, cause=None)),
    ("O11", "completed after a cancelled request", _reason(0, kind="completed")),
    ("O11", "an unknown kind of error", _reason(2, error="bad luck")),
    ("O11", "step_limit at another number", _reason(0, kind="step_limit", max_steps=9)),
    ("O12", "an input taken twice", double(UserInput)),
    ("O12", "an input nobody sent", drop(InboxAccepted)),
    ("O12", "an input left out", drop(UserInput)),
    ("O12", "an input changed", edit(UserInput, 0, content=[])),
    ("O12", "an input discarded after it was taken", append("discard", "i1")),
    ("O12", "an id accepted twice", _accepted_twice),
    ("O12", "a client's key twice", _key_twice),
    ("O12", "steering taken as user input", edit(InboxAccepted, 0, kind="context")),
    ("O16", "no header", drop(RequestHeader, 0)),
    ("O16", "another header", edit(RequestStart, 1, header=3)),
    ("O16", "no prompt part", drop(PromptPart)),
    ("O16", "a prompt part twice", double(PromptPart)),
    ("O17", "opaque data of another provider", _opaque),
    ("O18", "a negative count", edit(RequestEnd, 1, usage=Usage(input=-1))),
    ("O18", "more reasoning than output", edit(RequestEnd, 1, usage=Usage(output=1, reasoning=2))),
    ("O19", "an effectful call started twice", _started_twice),
    ("O19", "a result of what never ran", drop(ToolStarted, 1)),
    ("O20", "an approval left open", _drop_word("approval/decided")),
    ("O20", "an approval nobody asked for", append("decide", "a9")),
    ("O20", "an approval decided twice", append("decide", "a1")),
    ("O21", "a compaction through a call", _split_compaction),
    ("O21", "a compaction without gain", edit(CompactionSummary, 0, tokens_after=2_000)),
    ("O21", "a compaction left open", drop(CompactionEnd)),
    ("O22", "a pair left open", _drop_word("lease/close")),
    ("O22", "a pair never opened", _drop_word("lease/open")),
    ("O25", "a fault without its author", edit(PluginFaulted, 0, plugin=None)),
    ("O25", "a turn ended by a fault that is not there", _drop_word("plugin/fault", -1)),
    ("O25", "a refusal without a fault", _refused),
    ("O26", "a shorter request", edit(RequestStart, 2, messages=1)),
    ("O26", "a header that changes nothing", edit(RequestHeader, 1, model="m1")),
]


def test_the_whole_log_is_right() -> None:
    assert check(everything()) == []


def test_O12_the_key_of_a_discarded_input_may_come_again() -> None:
    """Its client was told that it was not taken, and tried once more; what was taken comes once."""
    log = everything()
    log.discard(log.accept("once", key="k"))
    log.accept("again", key="k")
    assert check(log) == []
    log.accept("and again", key="k")
    assert rules(log) == {"O12"}


@pytest.mark.parametrize(("rule", "what", "break_it"), BROKEN, ids=[f"{r}-{w.replace(' ', '_')}" for r, w, _ in BROKEN])
def test_each_broken_log_breaks_exactly_its_rule(rule: str, what: str, break_it: Callable[[LogBuilder], None]) -> None:
    log = everything()
    break_it(log)
    assert rules(log) == {rule}, check(log)


def test_every_rule_of_the_log_has_a_broken_log() -> None:
    assert {rule for rule, _, _ in BROKEN} == {rule.id for rule in RULES.values() if rule.needs == "log"}
