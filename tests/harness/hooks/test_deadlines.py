"""H1: deadlines of async implementations, set when they suspend: in all, whatever they await, whoever proceeds."""

from __future__ import annotations

import types
from collections.abc import Generator, Iterator
from typing import Any

import anyio
import pytest
from hookkit import play, plugin

from checkrein import events as ev
from checkrein.owner import Suspending, within


class Awaitable:
    """Something of a plugin's own to await, whose iterator knows no send."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __await__(self) -> Iterator[Any]:
        return Ended(self.answer)


class Ended:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        raise StopIteration(self.answer)


@types.coroutine
def old_style(answer: Any) -> Generator[Any, Any, Any]:
    """A coroutine as they were before `async def`: it has no __await__."""
    yield from anyio.sleep(1).__await__()
    return answer


@pytest.mark.parametrize("make", [Awaitable, old_style], ids=["iterator", "old style"])
def test_H1_whatever_can_be_awaited_is_an_answer(run, make):
    async def main() -> None:
        assert await within(make("answer"), 10) == "answer"
        assert await within(make("answer"), None) == "answer"

    run(main)


def test_H1_an_answer_that_never_suspends_sets_no_timer(run):
    suspended: list[bool] = []

    async def at_once() -> str:
        return "answer"

    async def later() -> str:
        for _ in range(3):
            await anyio.sleep(1)
        return "answer"

    async def main() -> None:
        assert await Suspending(at_once(), lambda: suspended.append(True)) == "answer"
        assert not suspended
        assert await Suspending(later(), lambda: suspended.append(True)) == "answer"
        assert len(suspended) >= 3

    run(main)


def test_H1_what_is_thrown_in_reaches_the_answer(run):
    """A cancellation is the answer's to clean up after, and its own exception comes out."""
    seen: list[str] = []

    async def cleans() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("cleaned")

    async def fails() -> None:
        await anyio.sleep(1)
        raise ValueError("broken")

    async def main() -> None:
        with anyio.move_on_after(5):
            await within(cleans(), 60)
        with pytest.raises(ValueError, match="broken"):
            await within(fails(), 60)

    run(main)
    assert seen == ["cleaned"]


@pytest.mark.parametrize(("each", "reason"), [(19, "completed"), (21, "error")])
def test_H1_the_deadline_is_for_all_waits_together(run, each, reason):
    async def waits() -> None:
        for _ in range(3):
            await anyio.sleep(each)

    played = play(run, plugin("slow", agent_request=waits), turns=["ok"])
    assert played.result.reason.kind == reason
    assert played.faults == ([] if each < 20 else [("slow", "agent_request", "turn_ended")])


@pytest.mark.parametrize("proceeds", ["before", "while", "behind"])
def test_H1_a_hook_that_hangs_beside_its_proceed_is_late_all_the_same(run, proceeds):
    """The clock stands still while `proceed` runs in a child task, and goes on behind it."""

    async def tools_execute(call: Any, proceed: Any) -> Any:
        async def rest() -> None:
            if proceeds == "behind":
                await anyio.sleep(5)
            await proceed(call)

        async with anyio.create_task_group() as group:
            group.start_soon(rest)
            if proceeds == "before":
                await anyio.sleep(1)
            await anyio.sleep_forever()

    played = play(run, plugin("stuck", tools_execute=tools_execute))
    assert played.outcomes == ["WITHHELD_BY_FAULT"]
    assert played.took_s == pytest.approx(60, abs=1)


def test_H1_a_late_voter_is_a_fault_of_its_author(run):
    async def late() -> None:
        await anyio.sleep(61)

    played = play(run, plugin("late", tools_guard=late))
    assert played.outcomes == ["REFUSED_BY_FAULT"] and not played.of(ev.ToolStarted)
    assert played.faults == [("late", "tools_guard", "refused")]
