"""Sample logs for tests and documentation: right ones, and the states a log is found in after a crash."""

from __future__ import annotations

from collections.abc import Callable

from checkrein.events import RequestHeader, RequestStart
from checkrein.eventtypes import Balance
from checkrein.messages import Source, Usage
from checkrein.rules import apply
from checkrein.state import State

from .builder import LogBuilder
from .deep import request_of

__all__ = ["LEASE", "SAMPLES", "everything", "interrupted", "one_turn", "with_true_requests"]

LEASE = Balance("lease/open", "lease/close", "lease")


def with_true_requests(log: LogBuilder) -> LogBuilder:
    """Put into each request of a log what it would really have sent: the number of messages, and the digest.

    Args:
        log: changed in place, and returned.
    """
    state = State()
    headers: dict[int, RequestHeader] = {}
    for event in list(log.events):
        if isinstance(event, RequestStart) and event.header in headers:
            messages, digest = request_of(state, headers[event.header], event.edits)
            log.change(event.seq, messages=messages, digest=digest)
        elif isinstance(event, RequestHeader):
            headers[event.seq] = event
        apply(state, event)
    return log


def one_turn() -> LogBuilder:
    """The smallest whole conversation."""
    return with_true_requests(LogBuilder().simple_turn())


def interrupted() -> LogBuilder:
    """A process died while an effectful tool ran."""
    log = LogBuilder()
    log.start_turn(log.accept("clean up"))
    log.start_step()
    log.start_request()
    log.end_request(finish_reason="tool_calls")
    (call,) = log.answer("", [("delete", '{"path":"x"}')])
    log.start(call)
    return with_true_requests(log)


def everything() -> LogBuilder:
    """A right log that holds every kind of event."""
    log = LogBuilder()
    first = log.accept("do it")
    second = log.accept("and that", source=Source("agent", id="boss"))
    log.start_turn(first, second)
    late = log.accept("but first", kind="steering")
    note = log.accept("it rains", kind="context")
    log.start_step()
    log.context(note)
    log.start_request()
    log.think("let me see")
    log.end_request("error")
    log.fault("retrier", "request_error", turn=1, step=1)
    log.start_request()
    log.think("again")
    log.end_request(finish_reason="tool_calls", usage=Usage(input=10, output=5, reasoning=3))
    a, b, c = log.answer("I will", [("write", "{}"), ("read", '{"path":"x"}'), ("write", "")], thinking=[0])
    log.ask(a, "a1")
    log.start(b, "read_only")
    end = log.end(b, "text")
    log.free("lease/open", lease="L", plugin="leases")
    log.decide("a1")
    log.start(a)
    inner = log.nested(a)
    log.start(inner, "idempotent")
    log.result(inner)
    log.result(a)
    log.result(b, end=end)
    log.free("lease/close", lease="L", plugin="leases")
    log.result(c, "bad arguments", code="INVALID_ARGUMENTS")
    log.end_step()
    log.start_step()
    log.steer(late)
    log.start_request()
    log.end_request("cancelled")
    log.partial()
    last = log.end_step()
    log.end_turn("cancelled")
    log.compact(1, last)
    log.discard(log.accept("never mind"))
    log.simple_turn()
    log.start_turn()
    log.start_step()
    log.header("change", model="m2")
    log.start_request()
    log.end_request("error")
    log.fault("guard", "agent_request", "turn_ended")
    log.end_step()
    log.end_turn("error", error="plugin", plugin="guard")
    return with_true_requests(log)


SAMPLES: dict[str, Callable[[], LogBuilder]] = {
    "one_turn": one_turn,
    "everything": everything,
    "interrupted": interrupted,
}
