"""UsageTracker: latest and total as a fold, usable alone (M10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein import Agent, Usage, UsageTracker
from checkrein.chunks import UsageChunk
from checkrein.events import RequestEnd
from checkrein.testing import text, usage

COUNTS = st.none() | st.integers(0, 10**9)
USAGES = st.builds(Usage, input=COUNTS, cache_read=COUNTS, cache_write=COUNTS, output=COUNTS, reasoning=COUNTS)
FIELDS = ("input", "cache_read", "cache_write", "output", "reasoning")


def test_M10_nothing_recorded_is_absent_not_zero():
    """latest() is None before the first, total() has no counts."""
    tracker = UsageTracker()
    assert tracker.latest() is None
    assert tracker.total() == Usage()


@given(st.lists(USAGES, max_size=20))
def test_M10_total_is_the_sum_and_latest_the_last(recorded):
    """Absent counts add nothing, and stay absent where none ever came; nothing is counted twice."""
    tracker = UsageTracker()
    for each in recorded:
        tracker.record(each)
    assert tracker.latest() == (recorded[-1] if recorded else None)
    for name in FIELDS:
        known = [getattr(each, name) for each in recorded if getattr(each, name) is not None]
        total = getattr(tracker.total(), name)
        assert total == (sum(known) if known else total)
        if not known:
            assert not total


def test_M10_what_was_read_is_detached():
    """A later record does not change an earlier answer."""
    tracker = UsageTracker()
    tracker.record(Usage(input=1, output=1))
    latest, total = tracker.latest(), tracker.total()
    tracker.record(Usage(input=10, output=10))
    assert (latest, total) == (Usage(input=1, output=1), Usage(input=1, output=1))
    assert tracker.total() == Usage(input=11, output=11)


def test_M10_only_ends_of_requests_with_usage_count():
    """Events of other kinds, and ends without usage, are nothing."""
    tracker = UsageTracker()
    end = {"turn": 1, "step": 1, "attempt": 1, "outcome": "ok"}
    tracker.event(RequestEnd(1, 0, **end))
    assert tracker.latest() is None
    tracker.event(RequestEnd(2, 0, **end, usage=Usage(input=4)))
    assert tracker.total() == Usage(input=4)


def test_M10_fed_from_a_session_it_equals_the_states_fold(run, scripted):
    """`session.observe(tracker.event)`, live; and over the stored events afterwards."""
    model = scripted([text("a"), usage(input=3, output=1, cache_read=2)], "b", [text("c"), usage(input=5, reasoning=1)])

    async def main() -> None:
        async with Agent(model) as agent:
            live, later = UsageTracker(), UsageTracker()
            agent.session.observe(live.event)
            results = [await agent.run("x") for _ in range(3)]
            for event in agent.session.events:
                later.event(event)
            assert live.total() == later.total() == agent.session.state.usage
            assert live.latest() == agent.session.state.usage_latest
            summed = Usage()
            for result in results:
                summed = summed + result.usage
            assert summed == live.total()

    run(main)


@pytest.mark.parametrize("wrong", [-5, "5", 1.5, float("nan"), True, 2**53, 10**30], ids=str)
def test_M10_what_is_no_count_is_absent(run, scripted, wrong):
    """A provider of somebody's own may say anything; totals never fall, and what the log says can be read again."""
    model = scripted([text("x"), UsageChunk(Usage(input=wrong, output=4, reasoning=9))], [text("y"), usage(input=1)])

    async def main() -> Any:
        async with Agent(model) as agent:
            return agent, await agent.run("go"), await agent.run("on")

    agent, one, _ = run(main)
    assert one.usage == Usage(output=4, reasoning=4)
    assert agent.session.state.usage == Usage(input=1, output=4, reasoning=4)
