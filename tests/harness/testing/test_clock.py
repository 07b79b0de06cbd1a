"""Virtual time and seeded scheduling."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import anyio
import anyio.to_thread
import pytest

from checkrein.testing import Stuck, hold, run_seeded, run_virtual
from checkrein.threads import ThreadPool

both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@both
def test_an_hour_passes_at_once(backend):
    async def main():
        before = anyio.current_time()
        await anyio.sleep(3600)
        return anyio.current_time() - before

    begun = time.perf_counter()
    assert run_virtual(main, backend=backend) == pytest.approx(3600, abs=1e-3)
    assert time.perf_counter() - begun < 5  # generous: the machine is shared


@both
def test_ten_million_seconds_in_many_timers_do_not_drift_or_spin(backend):
    async def main():
        for _ in range(200):
            await anyio.sleep(50_000.1)
        return anyio.current_time()

    assert run_virtual(main, backend=backend) >= 200 * 50_000.1 - 1


@both
def test_deadlines_fire_in_order(backend):
    fired = []

    async def wait(delay_s):
        with anyio.move_on_after(delay_s):
            await anyio.sleep_forever()
        fired.append(delay_s)

    async def main():
        async with anyio.create_task_group() as group:
            for delay_s in (50, 3, 700, 0.5, 3600):
                group.start_soon(wait, delay_s)

    run_virtual(main, backend=backend)
    assert fired == [0.5, 3, 50, 700, 3600]


@both
def test_a_deadline_beats_the_sleep_behind_it(backend):
    async def main():
        with pytest.raises(TimeoutError):
            with anyio.fail_after(10):
                await anyio.sleep(11)
        with anyio.fail_after(10):
            await anyio.sleep(9)

    run_virtual(main, backend=backend)


@both
def test_time_does_not_jump_over_a_thread_that_is_held(backend):
    async def main():
        with hold(), anyio.move_on_after(30) as scope:
            await anyio.to_thread.run_sync(time.sleep, 0.02)
        return scope.cancelled_caught, anyio.current_time()

    cancelled, _ = run_virtual(main, backend=backend)
    assert not cancelled


@both
def test_held_time_walks_with_real_time(backend):
    async def main():
        released = threading.Event()
        before = anyio.current_time()
        with hold():
            threading.Timer(0.05, released.set).start()
            await anyio.to_thread.run_sync(released.wait)
        return anyio.current_time() - before

    assert 0.03 < run_virtual(main, backend=backend) < 5


@both
def test_a_deadline_ends_a_held_thread_in_real_time(backend):
    async def main():
        release = threading.Event()
        with hold(), anyio.move_on_after(0.05) as scope:
            await anyio.to_thread.run_sync(release.wait, abandon_on_cancel=True)
        release.set()
        return scope.cancelled_caught

    assert run_virtual(main, backend=backend)


def test_hold_outside_a_virtual_run_does_nothing():
    with hold():
        pass

    async def main():
        with hold():
            return 1

    assert anyio.run(main) == 1
    assert anyio.run(main, backend="trio") == 1


@both
def test_a_deadlock_is_reported_instead_of_hanging(backend):
    async def waits_for_ever():
        await anyio.Event().wait()

    with pytest.raises(Stuck, match="waits_for_ever"):
        run_virtual(waits_for_ever, backend=backend, stuck_s=0.05)


@both
@pytest.mark.parametrize("how", ["shielded", "deaf"])
def test_a_deadlock_that_no_cancellation_reaches_is_named_too(backend, how):
    async def waits_for_ever():
        with anyio.CancelScope(shield=how == "shielded"):
            try:
                await anyio.Event().wait()
            except anyio.get_cancelled_exc_class():
                return "as if nothing were"

    with pytest.raises(Stuck, match="waits_for_ever"):
        run_virtual(waits_for_ever, backend=backend, stuck_s=0.05)

    async def after():
        return anyio.current_time()

    assert run_virtual(after, backend=backend) < 1


@both
def test_sockets_work_under_virtual_time(backend):
    async def main():
        left, right = socket.socketpair()
        left.setblocking(False)
        right.setblocking(False)
        with left, right:
            left.send(b"x")
            await anyio.wait_readable(right)
            return right.recv(1)

    assert run_virtual(main, backend=backend) == b"x"


@both
def test_errors_leave_as_they_are(backend):
    async def main():
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run_virtual(main, backend=backend)


def test_an_unknown_backend_is_named():
    async def main():
        pass

    with pytest.raises(ValueError, match="asyncio, trio, got 'curio'"):
        run_virtual(main, backend="curio")


def interleave(seed, backend):
    trace = []

    async def worker(name):
        for i in range(4):
            trace.append(f"{name}{i}")
            await anyio.lowlevel.checkpoint()

    async def main():
        async with anyio.create_task_group() as group:
            for name in "abcd":
                group.start_soon(worker, name)

    run_seeded(main, seed=seed, backend=backend)
    return " ".join(trace)


@both
def test_the_same_seed_replays_exactly(backend):
    for seed in range(10):
        assert interleave(seed, backend) == interleave(seed, backend)


@both
def test_seeds_give_distinct_interleavings(backend):
    assert len({interleave(seed, backend) for seed in range(60)}) >= 55


@both
def test_a_seeded_run_keeps_each_tasks_own_order(backend):
    for seed in range(10):
        steps = interleave(seed, backend).split()
        for name in "abcd":
            assert [step for step in steps if step[0] == name] == [f"{name}{i}" for i in range(4)]


def test_a_seeded_run_leaves_trio_as_it_was():
    from trio._core import _run

    before = _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r.getstate()
    interleave(3, "trio")
    assert (_run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r.getstate()) == before


@both
def test_X3_time_does_not_jump_over_a_tool_thread(backend):
    async def main():
        pool = ThreadPool(2)
        begun = anyio.current_time()
        with anyio.fail_after(30):
            await pool.run(time.sleep, 0.02)
        walked = anyio.current_time() - begun
        with anyio.move_on_after(0.05) as scope:
            await pool.run(forever.wait)
        await anyio.sleep(3600)  # a call that was given up does not hold the clock
        forever.set()
        pool.close()
        return walked, scope.cancelled_caught

    forever = threading.Event()
    walked, given_up = run_virtual(main, backend=backend)
    assert 0.01 < walked < 5
    assert given_up


def test_time_does_not_jump_over_asyncios_own_executor():
    async def main():
        async with asyncio.timeout(30):
            await asyncio.to_thread(time.sleep, 0.02)
        late = asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.02)
        await asyncio.sleep(0)
        return late

    assert run_virtual(main).done()


@both
def test_each_pass_of_the_scheduler_can_be_observed(backend):
    passes = []

    async def main():
        await anyio.sleep(1)

    run_virtual(main, backend=backend, on_pass=passes.append)
    assert passes == list(range(1, len(passes) + 1))
    assert len(passes) >= 3


@both
@pytest.mark.parametrize("spinning", ["task", "timer"])
def test_what_spins_is_reported_instead_of_hanging(backend, spinning):
    async def spins():
        while True:
            await (anyio.lowlevel.checkpoint() if spinning == "task" else anyio.sleep(1))

    with pytest.raises(Stuck, match=r"2000 passes .* spins"):
        run_virtual(spins, backend=backend, passes_max=2_000)


@both
def test_a_sleep_without_end_is_no_timer(backend):
    async def main():
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            await anyio.sleep(3600)
            group.cancel_scope.cancel()
        return anyio.current_time()

    assert 3600 <= run_virtual(main, backend=backend) < 3700
    with pytest.raises(Stuck, match="no timer is set"):
        run_virtual(anyio.sleep_forever, backend=backend, stuck_s=0.05)


@both
def test_time_does_not_jump_over_anyios_worker_threads(backend):
    """A store that syncs its file in one is not past its deadline at once; afterwards all is as before."""
    plain = anyio.to_thread.run_sync

    async def main():
        with anyio.move_on_after(30) as scope:
            await anyio.to_thread.run_sync(time.sleep, 0.02, abandon_on_cancel=True)
        return scope.cancelled_caught, anyio.current_time()

    cancelled, _ = run_virtual(main, backend=backend)
    assert not cancelled
    assert anyio.to_thread.run_sync is plain
