"""Threads for synchronous tools (X3, C2, C10)."""

import contextvars
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from checkrein.errors import ToolError
from checkrein.threads import ThreadPool, working

Test = Callable[[], Awaitable[None]]
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[[Test], None]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
        return lambda fn: anyio.run(fn, backend_options={"use_uvloop": True})
    return lambda fn: anyio.run(fn, backend=request.param)


Run = Callable[[Test], None]


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not condition():
            await anyio.sleep(0.001)


def test_X3_values_errors_and_context_variables(run: Run) -> None:
    async def main() -> None:
        pool = ThreadPool(2)
        variable.set("here")
        assert await pool.run(lambda a, b: a + b, 1, 2) == 3
        assert await pool.run(variable.get) == "here"
        await pool.run(variable.set, "there")
        assert variable.get() == "here"
        thread = await pool.run(threading.current_thread)
        assert thread.daemon and thread is not threading.main_thread()
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 / 0)
        assert pool.busy == 0 and pool.given_up == [] and working() == 0
        pool.close()

    run(main)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_C10_whatever_a_thread_raises_comes_back_to_the_caller(run: Run, kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind

    async def main() -> None:
        pool = ThreadPool(1)
        with pytest.raises(kind):
            await pool.run(fail)
        assert await pool.run(lambda: 1) == 1, "the thread lives on"
        pool.close()

    run(main)


def test_case_T04_T07_threads_run_side_by_side_and_the_loop_goes_on(run: Run) -> None:
    async def main() -> None:
        pool = ThreadPool(3)
        barrier = threading.Barrier(3, timeout=10)
        ticks = 0

        async def ticking() -> None:
            nonlocal ticks
            while True:
                await anyio.sleep(0)
                ticks += 1

        async with anyio.create_task_group() as outer:
            outer.start_soon(ticking)
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(pool.run, barrier.wait)  # returns only if all three run at once
            outer.cancel_scope.cancel()
        assert ticks > 0
        pool.close()

    run(main)


def test_X3_cancel_leaves_at_once_the_slot_is_kept_and_the_late_result_told(run: Run) -> None:
    async def main() -> None:
        pool = ThreadPool(1)
        go, begun = threading.Event(), threading.Event()
        late: list[Any] = []

        def slow(value: str) -> str:
            begun.set()
            go.wait(10)
            return value

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel() -> None:
                    await until(begun.is_set)
                    scope.cancel()

                group.start_soon(cancel)
                await pool.run(slow, "result", on_late=late.append)
        assert scope.cancelled_caught and pool.busy == 1 and working() == 0
        assert [entry.label.rsplit(".", 1)[-1] for entry in pool.given_up] == ["slow"] and late == []

        # The only thread is taken: the next call waits, and is withdrawn when it is cancelled.
        calls: list[int] = []
        with anyio.move_on_after(0.01):
            await pool.run(calls.append, 1, on_late=late.append)
        go.set()
        await until(lambda: late == ["result"])
        await pool.run(calls.append, 2)
        assert calls == [2] and late == ["result"] and pool.given_up == [] and pool.busy == 0
        pool.close()

    run(main)


def test_X3_a_late_exception_is_told_as_a_value(run: Run) -> None:
    async def main() -> None:
        pool = ThreadPool(1)
        go = threading.Event()
        late: list[Any] = []

        def slow() -> None:
            go.wait(10)
            raise SystemExit(7)

        with anyio.move_on_after(0.01):
            await pool.run(slow, on_late=late.append)
        go.set()
        await until(lambda: bool(late))
        assert isinstance(late[0], SystemExit) and late[0].code == 7
        pool.close()

    run(main)


def test_C2_a_result_that_is_there_when_the_cancel_comes_is_kept(run: Run) -> None:
    async def main() -> None:
        pool = ThreadPool(1)
        begun, go = threading.Event(), threading.Event()
        results: list[int] = []

        def work() -> int:
            begun.set()
            go.wait(10)
            return 5

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def call() -> None:
                    results.append(await pool.run(work))

                group.start_soon(call)
                await until(begun.is_set)
                go.set()
                deadline = time.monotonic() + 10
                while pool.busy and time.monotonic() < deadline:
                    time.sleep(0.0005)  # blocks the loop on purpose: nothing may be delivered yet
                scope.cancel()
        assert results == [5]
        pool.close()

    run(main)


def test_cancelled_before_it_begins_starts_no_thread(run: Run) -> None:
    async def main() -> None:
        pool = ThreadPool(1)
        calls: list[int] = []
        with anyio.CancelScope() as scope:
            scope.cancel()
            await pool.run(calls.append, 1)
        assert scope.cancelled_caught and calls == [] and pool.busy == 0
        pool.close()

    run(main)


def test_X3_more_calls_than_threads_wait_in_order_and_more_than_that_are_refused(run: Run) -> None:
    async def main() -> None:
        pool = ThreadPool(1, queue_max=3)
        go, order = threading.Event(), []

        async with anyio.create_task_group() as group:
            group.start_soon(pool.run, go.wait, 10)
            await until(lambda: pool.busy == 1)
            for n in range(3):
                group.start_soon(pool.run, order.append, n)
                await anyio.sleep(0.001)
            with pytest.raises(ToolError, match="nothing was run") as info:
                await pool.run(order.append, 9)
            assert info.value.code == "THREADS_BUSY"
            go.set()
        assert order == [0, 1, 2]
        pool.close()

    run(main)


def test_X3_close_never_waits_and_refuses_what_has_not_begun(run: Run) -> None:
    async def main() -> None:
        pool = ThreadPool(1)
        go, begun = threading.Event(), threading.Event()
        seen: list[Any] = []

        def slow() -> str:
            begun.set()
            go.wait(10)
            return "done"

        async def call(fn: Callable[[], str]) -> None:
            try:
                seen.append(await pool.run(fn))
            except ToolError as exc:
                seen.append(exc.code)

        async with anyio.create_task_group() as group:
            group.start_soon(call, slow)
            await until(begun.is_set)
            group.start_soon(call, lambda: "never")
            await anyio.sleep(0.001)
            began = time.monotonic()
            pool.close()
            pool.close()
            assert time.monotonic() - began < 1
            await until(lambda: seen == ["CLOSED"])
            go.set()
        assert seen == ["CLOSED", "done"]
        with pytest.raises(ToolError, match="closed"):
            await pool.run(slow)
        await until(lambda: pool.busy == 0)

    run(main)


def test_late_results_of_a_loop_that_is_gone_are_dropped(run: Run) -> None:
    pool = ThreadPool(1)
    go = threading.Event()
    late: list[Any] = []

    async def main() -> None:
        with anyio.move_on_after(0.01):
            await pool.run(go.wait, 10, on_late=late.append)

    run(main)
    go.set()
    deadline = time.monotonic() + 10
    while pool.busy and time.monotonic() < deadline:
        time.sleep(0.001)
    assert pool.busy == 0 and late == []
    pool.close()


def test_an_idle_thread_keeps_nothing_alive(run: Run) -> None:
    class Big: ...

    async def main() -> None:
        pool = ThreadPool(1)
        big = Big()
        ref = weakref.ref(big)
        await pool.run(lambda value: None, big)
        del big
        await anyio.sleep(0)
        gc.collect()
        await until(lambda: ref() is None)
        pool.close()

    run(main)


def test_threads_are_reused_and_bounded(run: Run) -> None:
    async def main() -> None:
        pool = ThreadPool(4)
        names: set[int | None] = set()
        for _ in range(50):
            names.add((await pool.run(threading.current_thread)).ident)
        assert len(names) == 1
        async with anyio.create_task_group() as group:
            for _ in range(40):
                group.start_soon(pool.run, time.sleep, 0.001)
        assert pool._threads <= 4
        pool.close()
        await until(lambda: pool._threads == 0)

    run(main)


def test_size_is_checked() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ThreadPool(0)


EXIT = """
import sys, time, anyio
from checkrein.threads import ThreadPool

async def main():
    pool = ThreadPool(2)
    with anyio.move_on_after(0.05):
        await pool.run(time.sleep, 30)
    assert len(pool.given_up) == 1
    pool.close()
    print("left", flush=True)

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_X3_process_exit_never_waits_for_a_thread(backend: str) -> None:
    with subprocess.Popen([sys.executable, "-c", EXIT, backend], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"left"
        began = time.monotonic()
        assert process.wait(timeout=20) == 0
        assert time.monotonic() - began < 5  # measured: 0.05 to 0.2 s; the thread would have slept for 30
