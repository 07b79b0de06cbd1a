"""What a run says that cannot come to an end: why, and what each of its tasks waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["Stuck", "deadlock", "path_of", "paths_below", "spin"]


class Stuck(TimeoutError):
    """The run cannot come to an end: a deadlock, or something that spins.

    Args:
        why: what was seen.
        tasks: what each task waits for.
    """

    def __init__(self, why: str, tasks: Iterable[str]) -> None:
        super().__init__(f"virtual time is stuck: {why}; the tasks: {'; '.join(sorted(tasks)) or '(none)'}")


def deadlock(real_s: float) -> str:
    """Why a run is stuck in which nothing happens."""
    return f"no timer is set, and no thread or socket woke the loop for {real_s:g} real seconds"


def spin(passes: int) -> str:
    """Why a run is stuck in which too much happens."""
    return f"{passes} passes of the scheduler were made: a task spins, or a timer ticks for ever"


def paths_below(task: Any) -> Iterator[str]:
    """What each task below a trio task waits for."""
    for nursery in () if task is None else task.child_nurseries:
        for child in nursery.child_tasks:
            yield path_of(child.coro)
            yield from paths_below(child)


def path_of(coro: Any) -> str:
    """The chain of coroutines from a task's own to what it waits for, as `main > Event.wait`."""
    names: list[str] = []
    while coro is not None and len(names) < 100:
        names.append(getattr(coro, "__qualname__", type(coro).__name__))
        coro = getattr(coro, "cr_await", None) or getattr(coro, "ag_await", None)
    return " > ".join(names)
