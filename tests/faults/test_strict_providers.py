"""L8, O15: what is sent passes the strict rules of OpenAI chat, OpenAI responses and Anthropic messages.

Every distinct recorded log is looked at where a request could be sent, the base scripts' logs at every
prefix. The validators are the oracle's, written from the providers' published rules; that they refuse what
the providers refuse is tests/invariants/test_validators.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from figures import count
from hypothesis import HealthCheck, given, settings
from recordings import Recording, recordings

from checkrein.events import AnyEvent
from checkrein.messages import AssistantMessage, ToolMessage
from checkrein.rules import apply
from checkrein.state import State
from checkrein_invariants import validate_history, validate_messages
from checkrein_invariants.strategies import logs

BASE = {
    *("answer", "answer_live", "one_call", "one_call_stored", "three_parallel", "parallel_two_at_once", "exclusive"),
    *("two_steps", "torn_retried", "half_call_torn", "max_tokens", "opaque_metadata", "denied", "asked_denied_stored"),
    *("failing_tool", "bad_arguments", "unknown_tool", "continued", "replaced_with_call", "steered", "steered_late"),
    *("cancelled_in_tool", "three_turns", "queue_one", "bad_arguments, cancelled", "three_parallel, cancelled"),
}
BOUNDARIES = ("request/start", "step/end", "turn/end", "user/message", "steering/message")
RECORDINGS = recordings()


def invalid(events: Sequence[AnyEvent], every: bool) -> tuple[int, list[str]]:
    """How many prefixes were validated, and what is wrong in them."""
    state = State()
    tried, found = 0, []
    for event in events:
        apply(state, event)
        if every or event.type in BOUNDARIES:
            tried += 1
            found += [
                f"behind {event.type} {event.seq}: {problem}" for problem in validate_history(state.history.view())
            ]
    return tried, found


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_O15_every_log_at_its_boundaries(recording: Recording) -> None:
    """At each request, each end of a step and a turn, and each input."""
    tried, found = invalid(recording.events, every=False)
    count("strict providers: histories at boundaries, each in three wire forms", tried)
    assert found == []


@pytest.mark.parametrize("recording", [r for r in RECORDINGS if r.name in BASE], ids=lambda recording: recording.name)
def test_O15_every_prefix_of_the_base_scripts(recording: Recording) -> None:
    """As a process that died anywhere would find it."""
    tried, found = invalid(recording.events, every=True)
    count("strict providers: prefixes, each in three wire forms", tried)
    assert found == []


def test_the_recordings_are_distinct_and_hold_what_is_hard() -> None:
    """Otherwise the tests above say little."""
    assert len({tuple(event.type for event in recording.events) for recording in RECORDINGS}) >= 30
    assert {recording.name for recording in RECORDINGS} >= BASE - {
        "bad_arguments, cancelled",
        "three_parallel, cancelled",
    }
    for recording in RECORDINGS:
        state = State()
        for event in recording.events:
            apply(state, event)
        answers = [m for m in state.history.messages if isinstance(m, AssistantMessage)]
        results = [m for m in state.history.messages if isinstance(m, ToolMessage)]
        assert sum(len(answer.calls) for answer in answers) == len(results)


def test_the_validators_see_a_missing_result() -> None:
    """Guard the guard: without one result each form is refused."""
    state = State()
    for event in next(r for r in RECORDINGS if r.name == "three_parallel").events:
        apply(state, event)
    messages = list(state.history.view())
    at = next(i for i, message in enumerate(messages) if isinstance(message, ToolMessage))
    found = validate_history([*messages[:at], *messages[at + 1 :]])
    assert {problem.partition(":")[0] for problem in found} == {
        "neutral", "openai chat", "openai responses", "anthropic"
    }  # fmt: skip
    assert validate_messages(messages) == []


@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(logs())
def test_O15_every_prefix_of_drawn_logs(log: object) -> None:
    """Logs with compaction, media, opaque parts and interrupted requests."""
    tried, found = invalid(log.events, every=True)  # type: ignore[attr-defined]
    count("strict providers: prefixes, each in three wire forms", tried)
    assert found == []
