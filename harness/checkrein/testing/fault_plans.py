"""What can go wrong at a seam, and where: the kinds of faults, one fault or a pair of them (see faults.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

import anyio

__all__ = ["HANG", "KINDS", "FaultPlan", "ForeignFault", "drawn_pairs"]

HANG = "hang"


class ForeignFault(BaseException):
    """An exception of somebody who did not derive from Exception."""


def _cancelled() -> BaseException:
    """A cancellation that nobody of ours caused (C7)."""
    try:
        kind: Any = anyio.get_cancelled_exc_class()
    except RuntimeError:  # in a worker thread
        return asyncio.CancelledError("foreign")
    if kind is asyncio.CancelledError:
        return asyncio.CancelledError("foreign")
    try:
        return kind._create(source="unknown", reason="foreign")  # type: ignore[no-any-return]
    except TypeError:  # before trio 0.31
        return kind._create()  # type: ignore[no-any-return]


KINDS: dict[str, Callable[[], BaseException] | None] = {
    "exception": lambda: Exception("injected"),
    "os_error": lambda: OSError(5, "injected"),
    "timeout": lambda: TimeoutError("injected"),
    "cancelled": _cancelled,
    "keyboard_interrupt": lambda: KeyboardInterrupt("injected"),
    "system_exit": lambda: SystemExit("injected"),
    "generator_exit": lambda: GeneratorExit("injected"),
    "memory_error": lambda: MemoryError("injected"),
    "recursion_error": lambda: RecursionError("injected"),
    "stop_async_iteration": lambda: StopAsyncIteration("injected"),
    "base_exception": lambda: ForeignFault("injected"),
    HANG: None,
}


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One fault, or one and another behind it.

    Args:
        k: at which place, from 1.
        kind: one of KINDS, or the name of an action of the scenario.
        at: whether places are seams or passes of the scheduler (for actions only).
        then: how many places behind it another one strikes, from 1, and its kind; at seams only.

    Raises:
        ValueError: the place is not from 1, or a fault is to be raised in the scheduler.
    """

    k: int
    kind: str
    at: Literal["seam", "pass"] = "seam"
    then: tuple[int, str] | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"expected a place from 1, got {self.k}")
        if self.then is not None and (self.at == "pass" or self.then[0] < 1):
            raise ValueError(f"expected another fault at a later seam, got {self.then} at a {self.at}")
        if self.at == "pass" and self.kind in KINDS:
            raise ValueError(
                f"expected an action of the scenario for a pass of the scheduler, got the fault {self.kind!r}"
            )


def drawn_pairs(random: Random, count: int, places: int, kinds: Sequence[str], once: Sequence[str]) -> list[FaultPlan]:
    """Pairs of faults, mostly close together: what answers the first one is what the other should meet.

    Of the kinds that may leave the scenario there is at most one: the second may leave the loop itself.
    """
    drawn: list[FaultPlan] = []
    while places and len(drawn) < count:
        behind = min(1 + int(random.expovariate(0.3)), places)
        first, then = random.choice(kinds), random.choice(kinds)
        if not (first in once and then in once):
            drawn.append(FaultPlan(random.randint(1, places), first, then=(behind, then)))
    return drawn
