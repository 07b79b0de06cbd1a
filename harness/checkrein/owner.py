"""The owner task of a harness (C11): the one place where a task is started outside a group.

Drivers run in its task group, so a harness may be opened in one task and closed in another, and
nothing that happens to a waiter reaches a driver.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import anyio
from msgspec import Struct

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

__all__ = [
    "Owner",
    "TaskStarter",
    "backend",
    "ours",
    "absorb",
    "native_task",
    "stray",
    "unwrapped",
    "within",
    "Suspending",
]


T = TypeVar("T")


def backend() -> str:
    """The running event loop's family: `asyncio` (uvloop too) or `trio`."""
    sniffio = sys.modules.get("sniffio")  # trio always brings it
    if sniffio is not None:
        try:
            return str(sniffio.current_async_library())
        except sniffio.AsyncLibraryNotFoundError:
            pass
    return "asyncio"


class TaskStarter(Protocol):
    """What `lifespan` gets to run supervised tasks."""

    def start(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `fn(*args)` until it ends or the harness closes; its failure is a fault of the plugin."""
        ...


class Owner:
    """Holds the task group that drivers and supervised tasks live in."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._ready = anyio.Event()
        self._done = anyio.Event()
        self._task: Any = None
        self._timer: Callable[..., Any] | None = None
        self.backend = ""
        self.clock: Callable[[], float] = anyio.current_time

    async def start(self) -> None:
        """Start the owner task and wait until it can take work."""
        self.backend = backend()
        if self.backend == "trio":
            import trio

            self.clock = trio.current_time
            # Children of a nursery in a system task are not KI-protected by themselves; SIGINT is for the waiters.
            self._protected = trio.lowlevel.enable_ki_protection(self._protected)  # type: ignore[method-assign]
            trio.lowlevel.spawn_system_task(self._own)
        else:
            import asyncio

            # Kept in an attribute, since the loop holds tasks only weakly.
            loop = asyncio.get_running_loop()
            self.clock = loop.time  # what anyio.current_time() asks, without looking the loop up each time
            self._timer = loop.call_later
            self._task = loop.create_task(self._own(), name="checkrein owner")
        await self._ready.wait()

    async def _own(self) -> None:
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                self._ready.set()
                await anyio.sleep_forever()
        except BaseException:  # nothing may leave a system task; drivers hand over what matters themselves
            if self.backend != "trio":
                return
        finally:
            self._group = None
            self._done.set()

    @property
    def alive(self) -> bool:
        """Whether work can be spawned."""
        return self._group is not None

    def spawn(self, fn: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Run `fn(*args)` in the owner's group; `fn` must contain everything but our cancellation."""
        if self._group is None:
            raise RuntimeError("the harness is closed: expected `async with Harness(...)` around this call")
        self._group.start_soon(self._protected, fn, *args)

    def later(self, delay_s: float, fn: Callable[[], None]) -> None:
        """Call `fn()` after a while, unless the harness is closed by then; `fn` must contain everything.

        For what is looked at later and nearly always found well: on asyncio a timer, a fraction of a task's cost.
        """
        if self._timer is None:
            self.spawn(self._after, delay_s, fn)
        else:
            self._timer(delay_s, self._due, fn)

    async def _after(self, delay_s: float, fn: Callable[[], None]) -> None:
        await anyio.sleep(delay_s)
        fn()

    def _due(self, fn: Callable[[], None]) -> None:
        if self.alive:
            fn()

    async def _protected(self, fn: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        await fn(*args)

    async def close(self, timeout_s: float = float("inf")) -> bool:
        """Cancel what is left and wait until it is gone.

        Args:
            timeout_s: seconds to wait for what is deaf to its cancellation; it cannot be forced (C1).

        Returns:
            Whether everything is gone.
        """
        if self._group is not None:
            self._group.cancel_scope.cancel()
        if self._ready.is_set():
            with anyio.move_on_after(timeout_s):
                await self._done.wait()
        return self._done.is_set() or not self._ready.is_set()


def ours(exc: BaseException) -> bool:
    """Whether an exception is a cancellation that a scope of ours asked for (C7).

    Nobody outside reaches a task of the owner, so the scope says it all; `task.cancelling()` does not.
    """
    return isinstance(exc, anyio.get_cancelled_exc_class()) and anyio.current_effective_deadline() == -float("inf")


def absorb() -> None:
    """Take back native cancel requests that a plugin or tool made on its own task, after containment."""
    if backend() != "asyncio" or anyio.current_effective_deadline() == -float("inf"):
        return
    import asyncio

    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def native_task() -> Any:
    """The asyncio task that runs now; None on trio. Asking costs a system call on Python 3.11: ask once a task."""
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None or asyncio._get_running_loop() is None else asyncio.current_task()


async def stray() -> BaseException | None:
    """Take back a native cancel that code we called has left on this task, before it strikes somebody else (C7).

    Only asyncio has it (`asyncio.current_task().cancel()`, then a plain return). It is delivered here, swallowed,
    and returned for the one to blame; None is the rule.
    """
    task = native_task()
    if task is None or not task.cancelling() or anyio.current_effective_deadline() == -float("inf"):
        return None
    import asyncio

    absorb()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError as exc:
        if ours(exc):
            raise
        absorb()
    error: BaseException = asyncio.CancelledError("it cancelled the task it ran in, and returned")
    return error


def unwrapped(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The KeyboardInterrupt that somebody's own task group wrapped (C10), or the group itself."""
    found: BaseException | None = group.subgroup(KeyboardInterrupt)
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found or group


async def within(answer: Awaitable[T], deadline_s: float | None) -> T:
    """Await what a plugin answers, within its deadline.

    Raises:
        KeyboardInterrupt: also where a group wrapped it.
        TimeoutError: it passed its deadline.
        CancelledError: it left a native cancel behind; that is its own fault (C7).
    """
    try:
        out = await (answer if deadline_s is None else _in_time(answer, deadline_s))
    except BaseExceptionGroup as group:
        raise unwrapped(group) from None
    if (left := await stray()) is not None:
        raise left
    return out


async def _in_time(answer: Awaitable[T], deadline_s: float) -> T:
    with anyio.CancelScope() as scope:

        def suspends() -> None:
            if scope.deadline == math.inf:
                scope.deadline = anyio.current_time() + deadline_s

        return await Suspending(answer, suspends)
    raise TimeoutError(f"no answer within {deadline_s:g} s")


class Suspending(Struct, Generic[T], eq=False):
    """Awaits something and calls `suspends` each time it suspends.

    A deadline is set only then: most answers come without suspending, and a timer costs more than the answer.
    """

    inner: Awaitable[T]
    suspends: Callable[[], None]

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self.inner.__await__() if hasattr(self.inner, "__await__") else _plain(self.inner).__await__()
        send = getattr(steps, "send", None) or (lambda _: next(steps))
        sent: Any = None
        error: BaseException | None = None
        while True:
            try:
                if error is not None:
                    thrown, error = error, None
                    out = steps.throw(thrown)
                else:
                    out = send(sent)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            self.suspends()
            try:
                sent = yield out
            except BaseException as exc:
                error = exc


async def _plain(answer: Awaitable[T]) -> T:
    return await answer  # a generator that types.coroutine marked: only `await` itself knows how
