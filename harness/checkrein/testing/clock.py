"""Virtual time and seeded scheduling: hours of sleeping in milliseconds, interleavings that replay.

`run_virtual` runs an async function on a clock that jumps to the next timer whenever nothing else can
go on. With a seed, tasks that are ready at once run in an order drawn from it: the same seed replays
exactly, other seeds give other interleavings. Works on asyncio and trio; uvloop keeps its own time
and is not supported here.

Threads and sockets are real, and the clock cannot see them: `hold()` makes it walk with real time
while they are at work. Work in the harness's own tool threads and in `anyio.to_thread` holds it by itself.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from math import inf
from typing import Any, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from .stuck import Stuck, deadlock, path_of, paths_below, spin

__all__ = ["BACKENDS", "Stuck", "VirtualLoop", "hold", "run_seeded", "run_virtual"]

BACKENDS = ("asyncio", "trio")
POLL_S = 0.001
HELD_S = 60.0  # how long threads may take, in real seconds
PASSES_MAX = 1_000_000

T = TypeVar("T")
Args = TypeVarTuple("Args")


class _Holds:
    """How many parties keep the clock from jumping."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0 or _threads_at_work()


def _threads_at_work() -> bool:
    """Whether the harness's tool threads owe the loop an answer; False where they were never loaded."""
    threads = sys.modules.get("checkrein.threads")
    working = getattr(threads, "working", None)
    return working is not None and working() > 0


@contextmanager
def hold() -> Iterator[None]:
    """Let virtual time walk with real time while the body runs, as for a thread or a socket.

    Outside `run_virtual` it does nothing. Enter and leave it in the loop's thread.
    """
    holds = _current()
    if holds is None:
        yield
        return
    holds.count += 1
    try:
        yield
    finally:
        holds.count -= 1


@contextmanager
def _virtual() -> Iterator[None]:
    """Let whoever calls `anyio.to_thread.run_sync` hold the clock, as a store does that syncs its file.

    No async tool is said to hold the loop (X3): a busy machine would decide that, not the test.
    """
    from checkrein import threads

    plain, blocked_s = anyio.to_thread.run_sync, threads.BLOCKED_S

    async def run_sync(*args: Any, **options: Any) -> Any:
        with hold():
            return await plain(*args, **options)

    anyio.to_thread.run_sync = run_sync  # type: ignore[assignment]
    threads.BLOCKED_S = inf
    try:
        yield
    finally:
        anyio.to_thread.run_sync, threads.BLOCKED_S = plain, blocked_s


def _current() -> _Holds | None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        if trio is None or not trio.lowlevel.in_trio_run():
            return None
        return getattr(trio.lowlevel.current_clock(), "holds", None)
    return getattr(loop, "holds", None)


# --- asyncio --------------------------------------------------------------------------------------


class _Selector(selectors.DefaultSelector):
    """Where an asyncio loop waits: instead of waiting for a timer it moves the clock."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        loop, held = self.loop, bool(self.loop.holds)
        due = loop.next_timer()
        if due < inf and not held:
            loop.now = max(loop.now, due)
            return []
        begun, patience_s = time.monotonic(), max(loop.stuck_s, HELD_S) if held else loop.stuck_s
        events = super().select(min(patience_s, max(0.0, due - loop.now)))
        loop.now += time.monotonic() - begun
        if not events and due == inf:
            raise loop.stuck(deadlock(patience_s))
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop with a virtual clock.

    Args:
        seed: if given, tasks that are ready in one pass run in an order drawn from it.
        stuck_s: real seconds without any timer, thread or socket after which `Stuck` is raised.
        passes_max: passes of the loop after which `Stuck` is raised.
        on_pass: called with its number (from 1) before each pass of the loop.

    Attributes:
        now: the virtual time in seconds, from 0.
        holds: who keeps the clock from jumping; use `hold()`.
    """

    def __init__(
        self,
        seed: int | None = None,
        stuck_s: float = 10.0,
        passes_max: int = PASSES_MAX,
        on_pass: Callable[[int], object] | None = None,
    ) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = 0.0
        self.stuck_s = stuck_s
        self.holds = _Holds()
        self._passes = 0
        self._passes_max = passes_max
        self._on_pass = on_pass
        self._random = None if seed is None else random.Random(seed)
        super().__init__(selector)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Run a function in an executor's thread, and hold the clock until it returns."""
        future = super().run_in_executor(executor, func, *args)
        self.holds.count += 1
        future.add_done_callback(self._release)
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        """Wait for the executor's threads in real time: from 3.12 on there is a deadline."""
        self.holds.count += 1
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self.holds.count -= 1

    def _release(self, _: object) -> None:
        self.holds.count -= 1

    def time(self) -> float:
        """The virtual time in seconds."""
        return self.now

    def next_timer(self) -> float:
        """When the next timer is due, in virtual seconds; inf if there is none, or only sleeps without end."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return scheduled[0].when() if scheduled else inf

    def stuck(self, why: str) -> Stuck:
        """The error of a run that does not end."""
        return Stuck(why, [path_of(task.get_coro()) for task in asyncio.all_tasks(self)])

    def run_forever(self) -> None:
        """Run until the loop is stopped; anyio's worker threads hold the clock meanwhile."""
        with _virtual():
            super().run_forever()

    def _run_once(self) -> None:
        self._passes += 1
        if self._passes > self._passes_max:
            self._passes_max = sys.maxsize  # the loop still has to close
            raise self.stuck(spin(self._passes - 1))
        if self._on_pass is not None:
            self._on_pass(self._passes)
        if self._random is not None:
            self._shuffle(self._random)
        super()._run_once()  # type: ignore[misc]

    def _shuffle(self, order: random.Random) -> None:
        # only steps of tasks change places with each other: asyncio promises an order for callbacks
        ready: Any = self._ready  # type: ignore[attr-defined]
        places = [i for i, handle in enumerate(list(ready)) if isinstance(_owner(handle), asyncio.Task)]  # threads add
        if len(places) > 1:
            handles = [ready[i] for i in places]
            order.shuffle(handles)
            for i, handle in zip(places, handles, strict=True):
                ready[i] = handle


def _owner(handle: Any) -> Any:
    return getattr(getattr(handle, "_callback", None), "__self__", None)


# --- trio -----------------------------------------------------------------------------------------


def _trio_clock(stuck_s: float, stuck: Callable[[str], None]) -> Any:
    """A MockClock that jumps at once when all tasks wait, unless it is held.

    MockClock cannot be subclassed, so the instance gets the one method that differs.
    """
    import trio
    import trio.testing

    clock: Any = trio.testing.MockClock(autojump_threshold=0)
    clock.holds = _Holds()
    idle_s = 0.0

    def autojump() -> None:
        nonlocal idle_s
        timeout_s = trio.lowlevel.current_statistics().seconds_to_next_deadline
        held = bool(clock.holds)
        if timeout_s < inf and not held:
            idle_s = 0.0
            clock.jump(max(timeout_s, 0.0))
            return
        begun = time.monotonic()
        time.sleep(POLL_S)  # threads and sockets are looked at once a pass
        waited_s = time.monotonic() - begun
        clock.jump(min(waited_s, max(timeout_s, 0.0)))
        idle_s = 0.0 if timeout_s < inf else idle_s + waited_s
        patience_s = max(stuck_s, HELD_S) if held else stuck_s
        if idle_s > patience_s:
            idle_s = 0.0
            stuck(deadlock(patience_s))

    clock._autojump = autojump
    return clock


def _trio_passes(passes_max: int, stuck: Callable[[str], None], on_pass: Callable[[int], object] | None) -> list[Any]:
    import trio

    numbers = count(1)

    class Passes(trio.abc.Instrument):
        """Counts the passes of trio's loop."""

        def after_io_wait(self, timeout: float) -> None:
            number = next(numbers)
            if number == passes_max:
                stuck(spin(number))
            if on_pass is not None:
                on_pass(number)

    return [Passes()]


@contextmanager
def _trio_order(seed: int) -> Iterator[None]:
    """Make trio's scheduler draw its order from a seed; what hypothesis's and pytest-trio's switch does."""
    from trio._core import _run

    internals: Any = _run
    before = internals._ALLOW_DETERMINISTIC_SCHEDULING, internals._r.getstate()
    internals._ALLOW_DETERMINISTIC_SCHEDULING = True
    internals._r.seed(seed)
    try:
        yield
    finally:
        internals._ALLOW_DETERMINISTIC_SCHEDULING = before[0]
        internals._r.setstate(before[1])


# --- both -----------------------------------------------------------------------------------------


def run_virtual(
    fn: Callable[[*Args], Awaitable[T]],
    *args: *Args,
    backend: str = "asyncio",
    seed: int | None = None,
    stuck_s: float = 10.0,
    passes_max: int = PASSES_MAX,
    on_pass: Callable[[int], object] | None = None,
) -> T:
    """Run an async function under virtual time and return what it returns.

    Args:
        fn: the async function; `args` go to it.
        backend: `asyncio` or `trio`.
        seed: order of ready tasks; None is the backend's own order.
        stuck_s: real seconds of a deadlock after which the run is given up; threads that hold it get more.
        passes_max: passes of the scheduler after which it is given up.
        on_pass: called with its number (from 1) at each pass of the scheduler, outside of any task.

    Raises:
        ValueError: the backend is not one of the two.
        Stuck: it did not come to an end.
    """
    if backend not in BACKENDS:
        raise ValueError(f"expected a backend of {', '.join(BACKENDS)}, got {backend!r}")
    if backend == "trio":
        with _virtual():
            return _run_trio(fn, args, seed, stuck_s, passes_max, on_pass)
    options: dict[str, Any] = {"loop_factory": lambda: VirtualLoop(seed, stuck_s, passes_max, on_pass)}
    return anyio.run(fn, *args, backend=backend, backend_options=options)


def _run_trio(
    fn: Callable[..., Awaitable[T]],
    args: tuple[Any, ...],
    seed: int | None,
    stuck_s: float,
    passes_max: int,
    on_pass: Callable[[int], object] | None,
) -> T:
    import trio

    found: list[Stuck] = []
    scopes: list[trio.CancelScope] = []

    def stuck(why: str) -> None:
        if found:  # the cancellation did not reach who waits
            _unshield(scopes[0])
            return
        found.append(Stuck(why, paths_below(trio.lowlevel.current_root_task())))
        scopes[0].cancel()

    async def main() -> T:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            result = await fn(*args)
            if not found:
                return result
        raise found[0]

    order: AbstractContextManager[None] = nullcontext() if seed is None else _trio_order(seed)
    with order:
        options = {"clock": _trio_clock(stuck_s, stuck), "instruments": _trio_passes(passes_max, stuck, on_pass)}
        return anyio.run(main, backend="trio", backend_options=options)


def _unshield(scope: Any) -> None:
    """Let the cancellation of a trio scope reach all that waits in it."""
    statuses = [scope._cancel_status]
    for status in statuses:
        status._scope.shield = False
        statuses += status.children


def run_seeded(fn: Callable[[*Args], Awaitable[T]], *args: *Args, seed: int, backend: str = "trio") -> T:
    """As `run_virtual`, with an order of tasks drawn from `seed`: the same seed replays exactly."""
    return run_virtual(fn, *args, backend=backend, seed=seed)
