"""Daemon threads for synchronous tools: left at once when cancelled, never waited for at exit (X3).

`anyio.to_thread` will not do: on asyncio its threads are no daemons, so one stuck call holds the process open, and a
cancelled caller waits for its thread. No deadlines here: the caller's cancel scope is the deadline.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from inspect import iscoroutine
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar, TypeVarTuple, Unpack

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from .errors import ToolError

__all__ = ["ThreadPool", "GivenUp", "Post", "loop_post", "through", "working"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Post: TypeAlias = Callable[[Callable[[], object]], bool]

QUEUE_MAX = 1_000
BLOCKED_S = 0.1  # an async tool that holds the loop longer belongs here (X3); virtual time has no such measure


def loop_post() -> Post:
    """Return a function that runs another one in the running loop, callable from any thread.

    It returns False, and does nothing, once the loop is gone. What it runs must not raise.
    """
    trio = sys.modules.get("trio")  # imported by whoever runs on it
    if trio is not None:
        try:
            run_sync_soon = trio.lowlevel.current_trio_token().run_sync_soon
        except RuntimeError:
            pass  # this loop is not trio's
        else:
            return _post_with(run_sync_soon, trio.RunFinishedError)
    import asyncio

    call_soon = asyncio.get_running_loop().call_soon_threadsafe
    # A callback runs in the context of the thread that asked for it, which says that no loop runs there.
    return _post_with(lambda fn: call_soon(fn, context=_context("asyncio")), RuntimeError)


def _post_with(schedule: Callable[..., object], gone: type[BaseException]) -> Post:
    def post(fn: Callable[[], object]) -> bool:
        try:
            schedule(fn)
        except gone:
            return False
        return True

    return post


def through(post: Post | None, fn: Callable[..., T], args: tuple[Any, ...], timeout_s: float) -> T:
    """Call `fn(*args)` in a loop from another thread; `Harness.from_thread` says the rest.

    Args:
        post: the loop's, None if it does not run.
        fn: what to call.
        args: its arguments.
        timeout_s: seconds to wait for the loop.
    """
    done: Future[T] = Future()

    def call() -> None:
        if not done.set_running_or_notify_cancel():
            return  # given up: who called was told that it did not happen
        try:
            value = fn(*args)
            if iscoroutine(value):
                value.close()
                raise TypeError(f"expected a function that returns at once, got the async {_label(fn)}; as agent.send")
            done.set_result(value)
        except BaseException as exc:
            done.set_exception(exc)

    if post is None or not post(call):
        raise RuntimeError("the harness is not open: its event loop does not run")
    try:
        return done.result(min(timeout_s, threading.TIMEOUT_MAX))
    except TimeoutError:
        if done.cancel():
            raise TimeoutError(
                f"expected the event loop to get to {_label(fn)} within {timeout_s:g} s, got no sign of it: the loop is"
                " blocked or gone; it will not be called any more"
            ) from None
        return done.result()  # it has begun, or raised this itself


class GivenUp:
    """A call nobody waits for any more, whose thread has not returned: shown to the user.

    Attributes:
        label: the function's name.
        since_s: when it was given up, in seconds of `time.monotonic()`.
    """

    __slots__ = ("label", "since_s")

    def __init__(self, label: str, since_s: float) -> None:
        self.label = label
        self.since_s = since_s


class _Job:
    """One call. The pool's lock guards `begun`, `done` and `given_up`."""

    __slots__ = (*("args", "begun", "context", "done", "error", "event", "fn", "given_up", "on_late", "post", "value"),)

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        post: Post,
        context: Context,
        on_late: Callable[[Any], object] | None,
    ) -> None:
        self.fn = fn
        self.args = args
        self.post = post
        self.context = context
        self.on_late = on_late
        self.event = anyio.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        self.begun = False
        self.done = False
        self.given_up: GivenUp | None = None

    def result(self) -> Any:
        if self.error is None:
            return self.value
        try:
            raise self.error
        finally:
            self.error = None  # an exception that is held by what its own traceback holds is a cycle

    def late(self) -> None:
        if self.on_late is not None:
            self.on_late(self.value if self.error is None else self.error)


_awaited: set[_Job] = set()


def working() -> int:
    """Return how many calls are awaited now, over all pools: virtual time must not jump over them."""
    return len(_awaited)


class ThreadPool:
    """Daemon threads, at most `size`, started when needed.

    Args:
        size: threads at most, at least 1; a thread given up counts until it returns.
        queue_max: calls that may wait for a thread; the next one is refused.
    """

    def __init__(self, size: int = 64, *, queue_max: int = QUEUE_MAX) -> None:
        if size < 1:
            raise ValueError(f"expected at least 1 thread, got {size}")
        self.size = size
        self.queue_max = queue_max
        self._lock = threading.Lock()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = 0
        self._owed = 0  # jobs that were handed over and have not returned, given-up ones included
        self._given_up: set[GivenUp] = set()
        self._closed = False

    @property
    def busy(self) -> int:
        """Threads that hold a call now."""
        return min(self._owed, self._threads)

    @property
    def given_up(self) -> list[GivenUp]:
        """Calls nobody waits for whose threads have not returned, oldest first."""
        with self._lock:
            return sorted(self._given_up, key=lambda entry: entry.since_s)

    async def run(self, fn: Callable[[Unpack[Ts]], T], *args: *Ts, on_late: Callable[[Any], object] | None = None) -> T:
        """Call `fn(*args)` in a thread, with a copy of the context variables.

        Cancelling leaves at once: a call that has not begun is withdrawn; one that has, goes on in its thread. A
        result that is there already when the cancellation of a scope comes is returned (C2).

        Args:
            fn: what to call.
            args: its arguments.
            on_late: called in the loop, if it still lives, with the result or the exception of a call that was
                given up. Must not raise.

        Returns:
            What fn returned.

        Raises:
            BaseException: whatever fn raised, KeyboardInterrupt and SystemExit included: the caller's to classify.
            ToolError: all threads are taken and the queue is full (THREADS_BUSY), or the pool is closed (CLOSED);
                fn was not called.
        """
        await checkpoint_if_cancelled()
        job = _Job(fn, args, loop_post(), _context(), on_late)
        self._submit(job)
        _awaited.add(job)
        try:
            await job.event.wait()
        except GeneratorExit:  # the coroutine is closed, most likely without a loop: nobody is left to be told
            self._leave(job)
            raise
        except BaseException:
            if self._leave(job) and anyio.current_effective_deadline() == float("-inf"):
                return job.result()  # type: ignore[no-any-return]  # the scope raises again at the next checkpoint
            if job.done:
                job.late()
            raise
        finally:
            _awaited.discard(job)
        return job.result()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Start nothing more and let idle threads end; never waits. Idempotent.

        Calls that have not begun are refused; those that have go on, and their results still arrive.
        """
        with self._lock:
            self._closed = True
            waiting = self._drain()
            for _ in range(self._threads):
                self._queue.put(None)
        for job in waiting:
            job.error = ToolError("the harness closed before the call began; nothing was run", code="CLOSED")
            job.done = True
            job.post(job.event.set)

    def _submit(self, job: _Job) -> None:
        with self._lock:
            if self._closed:
                raise ToolError("the thread pool is closed; nothing was run", code="CLOSED")
            if self._owed - self._threads >= self.queue_max and self._threads >= self.size:
                raise ToolError(
                    f"all {self.size} tool threads are taken ({len(self._given_up)} by calls that were given up) and"
                    f" {self.queue_max} calls wait; nothing was run, try again later",
                    code="THREADS_BUSY",
                )
            if self._owed >= self._threads and self._threads < self.size:
                threading.Thread(target=self._work, name="checkrein-tool", daemon=True).start()
                self._threads += 1
            self._owed += 1
            self._queue.put(job)

    def _leave(self, job: _Job) -> bool:
        """The awaiting side goes. Returns whether the call has returned already."""
        with self._lock:
            if not job.done:
                job.given_up = GivenUp(_label(job.fn), time.monotonic())
                if job.begun:
                    self._given_up.add(job.given_up)
            return job.done

    def _drain(self) -> list[_Job]:
        jobs: list[_Job] = []
        while True:
            try:
                job = self._queue.get_nowait()
            except Empty:
                self._owed -= len(jobs)
                return jobs
            if job is not None:
                jobs.append(job)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            with self._lock:
                job.begun = job.given_up is None
            if job.begun:
                try:
                    job.value = job.context.run(job.fn, *job.args)
                except BaseException as exc:  # KeyboardInterrupt and SystemExit too: they belong to the caller
                    job.error = exc
            with self._lock:
                self._owed -= 1
                job.done = True
                late = job.given_up
                if late is not None:
                    self._given_up.discard(late)
            if late is None:
                job.post(job.event.set)
            elif job.begun:
                job.post(job.late)
            del job  # an idle thread must not keep the last call's values alive
        with self._lock:
            self._threads -= 1


def _context(library: str | None = None) -> Context:
    """A copy of the context in which the running loop is of `library`; None in a thread, which runs none."""
    context = copy_context()
    if (sniffio := sys.modules.get("sniffio")) is not None:
        context.run(sniffio.current_async_library_cvar.set, library)
    return context


def _label(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__
