"""C8, C11, C12: who waits for a turn, stops from outside, threads, and what leaves a harness."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
import pytest
from loopkit import Latch, add, nap, of, plugin, reasons, said

from checkrein import Agent, WouldDeadlock, WrongThread, tool
from checkrein.config.types import AgentConfig, HarnessConfig
from checkrein.harness import Harness
from checkrein.testing import call, forever, text, wait
from checkrein.testing.script import hang


def harness(model: Any, *, agents: tuple[str, ...] = ("main",), **options: Any) -> Harness:
    """A harness of a scripted model."""
    config = HarnessConfig(agents=tuple(AgentConfig(id=name, model="scripted:x") for name in agents))
    return Harness(config=config, providers=[model], found=[], **options)


async def started(agent: Any) -> None:
    """Wait until a request of its turn is open."""
    while not agent.session.state.request_open:
        await anyio.sleep(0)


# --- C8 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["scope", "move_on_after", "task group"])
def test_C8_a_cancelled_waiter_takes_the_path_of_cancel(run, scripted, how):
    """Its turn is cancelled, cause task, and it leaves behind turn/end."""
    model = scripted(hang(), "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            ended_when_left: list[bool] = []

            async def waits() -> None:
                try:
                    await agent.run("go")
                finally:
                    ended_when_left.append(bool(of(agent, "turn/end")))

            if how == "scope":
                async with anyio.create_task_group() as group:
                    group.start_soon(waits)
                    await anyio.sleep(1)
                    group.cancel_scope.cancel()
            elif how == "move_on_after":
                with anyio.move_on_after(2):
                    await waits()
            else:
                with pytest.raises(ExceptionGroup) as caught:
                    async with anyio.create_task_group() as group:
                        group.start_soon(waits)
                        await anyio.sleep(1)
                        raise ValueError("a sibling fails")
                assert [type(exc) for exc in caught.value.exceptions] == [ValueError]
            assert ended_when_left == [True]
            assert (await agent.run("on")).ok
            return of(agent, "turn/end")[0].reason

    reason = run(main)
    assert (reason.kind, reason.cause.kind) == ("cancelled", "task")


def test_C8_a_native_task_cancel_does_the_same(scripted):
    """asyncio: task.cancel() of the task that awaits run(); it ends as cancelled."""
    from checkrein.testing import run_virtual

    model = scripted(hang(), "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            task = asyncio.get_running_loop().create_task(agent.run("go"))
            await anyio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
            assert reasons(agent) == ["cancelled"]
            assert (await agent.run("on")).ok
            return of(agent, "turn/end")[0].reason

    assert run_virtual(main, backend="asyncio").cause.kind == "task"


def test_C8_wait_for_raises_timeout_behind_turn_end(scripted):
    """asyncio.wait_for: TimeoutError, and the agent is free."""
    from checkrein.testing import run_virtual

    model = scripted(hang(), "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(agent.run("go"), 2)
            assert reasons(agent) == ["cancelled"]
            return await agent.run("on")

    assert run_virtual(main, backend="asyncio").ok


def test_C8_a_cancelled_waiters_pending_input_is_withdrawn(run, scripted):
    """It never became a turn; the running turn of somebody else goes on."""
    model = scripted([wait(10), text("1")])

    async def main() -> Any:
        async with Agent(model) as agent:
            first = agent.send("go")
            await anyio.sleep(1)
            with anyio.move_on_after(2):
                await agent.run("never")
            assert (await first.result()).ok
            await agent.idle()
            return agent

    agent = run(main)
    assert said(agent) == ["go"]
    assert "waiter" in of(agent, "inbox/discarded")[0].reason


def test_C8_a_waiter_leaves_a_deaf_turn_after_the_close_timeout(run, scripted):
    """Shielded, at most close_timeout_s (5)."""
    model = scripted(call("deaf"), "ok")

    @tool
    async def deaf() -> str:
        """Shield."""
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)
        return "x"

    async def main() -> float:
        async with Agent(model, tools=[deaf]) as agent:
            began = anyio.current_time()
            with anyio.move_on_after(1):
                await agent.run("go")
            left = anyio.current_time() - began
            await agent.idle()
            return left

    assert 5.5 < run(main) < 7


def test_C8_a_stream_left_early_on_a_deaf_turn_leaves_in_time(run, scripted):
    """The same bound for the block of a stream."""
    model = scripted(call("deaf"), "ok")

    @tool
    async def deaf() -> str:
        """Shield."""
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)
        return "x"

    async def main() -> float:
        async with Agent(model, tools=[deaf]) as agent:
            began = anyio.current_time()
            async with agent.stream("go"):
                await anyio.sleep(1)
            left = anyio.current_time() - began
            await agent.idle()
            return left

    assert 5.5 < run(main) < 7


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_C8_sigint_while_anyio_run_waits(scripted, backend):
    """The program's Ctrl-C: the turn is closed, KeyboardInterrupt leaves anyio.run, nothing else."""
    import signal

    model = scripted(hang())
    seen: list[Any] = []

    async def main() -> None:
        async with Agent(model) as agent:
            seen.append(agent)

            async def strike() -> None:
                await started(agent)
                signal.raise_signal(signal.SIGINT)

            async with anyio.create_task_group() as group:
                group.start_soon(strike)
                await agent.run("go")

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        anyio.run(main, backend=backend)
    exc: BaseException = caught.value
    while isinstance(exc, BaseExceptionGroup):  # the program's own task group may wrap it
        exc = exc.exceptions[0]
    assert isinstance(exc, KeyboardInterrupt)
    end = of(seen[0], "turn/end")
    assert len(end) == 1
    assert end[0].reason.kind in ("cancelled", "disposed")


def test_C8_the_loop_ends_without_the_harness_being_closed(scripted):
    """Shutdown of the loop is a stop from outside too: the log is balanced."""
    from checkrein.testing import run_virtual

    for backend in ("asyncio", "trio"):
        model = scripted([call("nap"), call("nap")])
        seen: list[Any] = []

        async def main(model: Any = model, seen: list[Any] = seen) -> None:
            maker = Agent(model, tools=[nap])
            agent = await maker.__aenter__()
            seen.append((agent, maker))
            agent.send("go")
            await anyio.sleep(1)

        run_virtual(main, backend=backend)
        agent = seen[0][0]
        assert len(of(agent, "turn/end")) == 1, backend
        assert [e.call_id for e in of(agent, "tool/call")] == [e.call_id for e in of(agent, "tool/result")]


# --- C11 --------------------------------------------------------------------------------------------------------


def test_C11_opened_in_one_task_closed_in_another(run, scripted):
    """No scope of ours is entered in the caller's task."""
    model = scripted("ok", hang())

    async def main() -> Any:
        house = harness(model)
        opened, done = Latch(), Latch()

        async def opens() -> None:
            await house.__aenter__()
            opened.open()

        async def uses() -> None:
            await opened.wait()
            agent = house.agents["main"]
            assert (await agent.run("go")).ok
            agent.send("and")
            await started(agent)
            done.open()

        async def closes() -> None:
            await done.wait()
            await house.__aexit__(None, None, None)

        house_agent: list[Any] = []
        async with anyio.create_task_group() as group:
            for step in (opens, uses, closes):
                group.start_soon(step)
            await opened.wait()
            house_agent.append(house.agents["main"])
        return house_agent[0]

    assert reasons(run(main)) == ["completed", "disposed"]


@pytest.mark.parametrize(
    "exc", [ValueError("x"), KeyError("k"), SystemExit(3), KeyboardInterrupt(), BaseException("b")]
)
def test_C11_an_exception_of_the_body_leaves_unchanged(run, scripted, exc):
    """The very object, no group, also while a turn runs."""
    model = scripted(hang())

    async def main() -> None:
        async with Agent(model) as agent:
            agent.send("go")
            await anyio.sleep(1)
            raise exc

    with pytest.raises(type(exc)) as caught:
        run(main)
    assert caught.value is exc


def test_C11_a_group_of_the_body_stays_the_bodys(run, scripted):
    """An ExceptionGroup that the body raised is passed on, not wrapped once more."""
    model = scripted(hang())
    group = ExceptionGroup("mine", [ValueError("a"), OSError("b")])

    async def main() -> None:
        async with Agent(model) as agent:
            agent.send("go")
            await anyio.sleep(1)
            raise group

    with pytest.raises(ExceptionGroup) as caught:
        run(main)
    assert caught.value is group


def test_C11_failures_of_tools_and_plugins_are_never_a_group(run, scripted):
    """Three tools fail at once in a pool, one with a group: results, not exceptions (case X04)."""
    from checkrein import ProviderError

    @tool
    async def bad(kind: str) -> str:
        """Raise."""
        await anyio.sleep(1)
        if kind == "group":
            raise BaseExceptionGroup("g", [KeyError("a"), SystemExit()])
        raise ConnectionError(kind)

    calls = [call("bad", {"kind": kind}) for kind in ("a", "group", "c")]
    model = scripted(calls, "ok", [text("x"), wait(_refused)])

    async def main() -> Any:
        async with Agent(model, tools=[bad]) as agent:
            first = await agent.run("go")
            return first, await agent.run("on")

    first, second = run(main)
    assert first.ok
    assert (second.reason.kind, second.reason.error, second.reason.code) == ("error", "stream", "ConnectionError")
    assert ProviderError


async def _refused() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_refuse)
        group.start_soon(anyio.sleep, 10)


async def _refuse() -> None:
    raise ConnectionError("refused")


def test_C11_a_group_with_one_real_error_names_it(run, scripted):
    """What a provider's own task group wrapped is unwrapped for the reason (case X04)."""
    model = scripted([text("x"), wait(_refused)])

    async def main() -> Any:
        async with Agent(model) as agent:
            return await agent.run("go")

    reason = run(main).reason
    assert (reason.error, reason.code) == ("stream", "ConnectionError")
    assert "refused" in reason.message


def test_C11_a_harness_is_opened_once(run, scripted):
    """A second `async with` says what to do."""
    from checkrein import ConfigError

    async def main() -> None:
        house = harness(scripted())
        async with house:
            pass
        with pytest.raises(ConfigError, match="once"):
            async with house:
                pass

    run(main)


# --- C12 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["run", "stream", "result", "result of another", "idle", "dispose"])
@pytest.mark.parametrize("where", ["tool", "hook", "flush"])
def test_C12_waiting_for_oneself_raises_at_once(run, scripted, what, where):
    """Inside the agent's own turn, its last flush included; nothing hangs, the turn goes on."""
    model = scripted(call("self_wait"), forever("ok"))
    seen: list[str] = []

    async def main() -> Any:
        box: list[Any] = []

        async def attempt() -> None:
            agent, receipt = box
            other = agent.send("later") if what == "result of another" else None
            try:
                if what == "run":
                    await agent.run("x")
                elif what == "stream":
                    async with agent.stream("x"):
                        pass
                elif what == "idle":
                    await agent.idle()
                elif what == "dispose":
                    await agent.dispose()
                else:
                    await (other or receipt).result()
                seen.append("returned")
            except WouldDeadlock as exc:
                seen.append("WouldDeadlock")
                assert "main" in str(exc)

        @tool
        async def self_wait() -> str:
            """Wait for oneself."""
            if where == "tool":
                await attempt()
            return "done"

        done: list[bool] = []

        async def hook(agent: Any) -> None:
            if where == "hook" and not done:
                done.append(True)
                await attempt()

        async def flush(gate: str) -> None:
            if where == "flush" and gate == "turn_end" and not done:
                done.append(True)
                await attempt()

        probe = plugin(turn_continuation=hook, session_flush=flush)
        async with Agent(model, tools=[self_wait], plugins=[probe]) as agent:
            receipt = agent.send("go")
            box.extend([agent, receipt])
            began = anyio.current_time()
            assert (await receipt.result()).ok
            assert anyio.current_time() - began < 1
            await agent.idle()
            return agent

    agent = run(main)
    assert seen == ["WouldDeadlock"]
    assert set(reasons(agent)) == {"completed"}
    assert not of(agent, "plugin/fault")


def test_C12_two_agents_that_wait_for_each_other_in_a_ring(run, scripted):
    """A runs B, whose tool waits for A: WouldDeadlock in B's tool, as it is part of A's turn."""
    model = scripted(call("ask_b"), call("ask_a"), "b is done", "a is done")
    seen: list[str] = []

    async def main() -> Any:
        box: dict[str, Any] = {}

        @tool
        async def ask_b() -> str:
            """Ask B."""
            return (await box["b"].run("help")).text

        @tool
        async def ask_a() -> str:
            """Ask A."""
            try:
                return (await box["a"].run("help")).text
            except WouldDeadlock:
                seen.append("WouldDeadlock")
                return "no"

        house = harness(model, agents=("a", "b"), tools=[ask_a, ask_b])
        async with house:
            box.update(a=house.agents["a"], b=house.agents["b"])
            return await box["a"].run("go")

    assert run(main).text == "a is done"
    assert seen == ["WouldDeadlock"]


def test_C12_sending_to_oneself_is_fine(run, scripted):
    """send, steer and inject do not wait."""
    model = scripted(call("more"), "ok", "next")

    async def main() -> Any:
        box: list[Any] = []

        @tool
        async def more() -> str:
            """Send."""
            box[0].send("later")
            box[0].steer("now")
            return "sent"

        async with Agent(model, tools=[more]) as agent:
            box.append(agent)
            await agent.run("go")
            await agent.idle()
            return agent

    agent = run(main)
    assert said(agent) == ["go", "later"]
    assert said(agent, "steering/message") == ["now"]


def test_C12_a_task_that_outlives_the_turn_may_wait(run, scripted):
    """What a tool started elsewhere is not inside the turn once that has ended."""
    model = scripted(call("spawn"), "ok", "from behind")
    got: list[str] = []

    async def main() -> Any:
        async with anyio.create_task_group() as group:
            box: list[Any] = []

            async def behind() -> None:
                await anyio.sleep(10)
                got.append((await box[0].run("x")).text)

            @tool
            async def spawn() -> str:
                """Start a task."""
                group.start_soon(behind)
                return "started"

            async with Agent(model, tools=[spawn]) as agent:
                box.append(agent)
                await agent.run("go")
                await anyio.sleep(60)

    run(main)
    assert got == ["from behind"]


def test_C12_another_threads_call_raises_wrong_thread(run, scripted):
    """Every method; the message names from_thread."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            acts = [
                *(lambda: agent.send("x"), lambda: agent.steer("x"), lambda: agent.inject("x"), agent.cancel),
                *(agent.wake, lambda: agent.replace("i1", "x"), lambda: agent.withdraw("i1")),
            ]
            waits = [lambda: agent.run("x"), agent.idle, agent.dispose, receipt.result, receipt.durable]
            errors: list[Any] = []

            def elsewhere() -> None:
                for act in acts:
                    try:
                        act()
                        errors.append(None)
                    except Exception as exc:
                        errors.append(exc)
                for wait_for in waits:
                    coroutine = wait_for()
                    try:
                        coroutine.send(None)
                        errors.append(None)
                    except Exception as exc:
                        errors.append(exc)
                    finally:
                        coroutine.close()

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            assert [type(exc) for exc in errors] == [WrongThread] * 12
            assert all("from_thread" in str(exc) for exc in errors)
            await receipt.result()
            return agent

    assert said(run(main)) == ["go"]


def test_C12_from_thread_under_load(run, scripted):
    """Eight threads send at once: nothing is lost, ids are unique, exceptions come back, the loop stays whole."""
    model = scripted(forever("ok"))
    each = 25

    async def main() -> Any:
        from checkrein.testing import hold

        async with Agent(model, queue_mode="all") as agent:
            house = agent.harness
            ids: list[str] = []
            failures: list[BaseException] = []

            def worker(number: int) -> None:
                try:
                    ids.extend(house.from_thread(agent.send, f"{number}.{n}").id for n in range(each))
                    with pytest.raises(ValueError, match="expected input"):
                        house.from_thread(agent.send, "")
                except BaseException as exc:
                    failures.append(exc)

            threads = [threading.Thread(target=worker, args=(number,)) for number in range(8)]
            with hold():
                for thread in threads:
                    thread.start()
                while any(thread.is_alive() for thread in threads):
                    await anyio.sleep(0.001)
            await agent.idle()
            assert not failures
            return agent, ids

    agent, ids = run(main)
    words = said(agent)
    assert len(set(ids)) == len(words) == 8 * each
    for number in range(8):
        mine = [word for word in words if word.startswith(f"{number}.")]
        assert mine == [f"{number}.{n}" for n in range(each)]


def test_C12_from_thread_says_where_it_is_wrong(run, scripted):
    """In the loop's own thread it would wait for itself; before and after the harness there is no loop."""
    house: list[Any] = []

    async def main() -> None:
        house.append(harness(scripted()))
        async with house[0]:
            with pytest.raises(WrongThread):
                house[0].from_thread(print)

    run(main)
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            house[0].from_thread(print)
        except BaseException as exc:
            caught.append(exc)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert isinstance(caught[0], RuntimeError)


def test_C11_two_harnesses_in_one_loop_share_nothing(run, scripted):
    """P4 through the loop: one closes while the other works."""
    first, second = scripted(hang()), scripted(call("add", {"a": 1, "b": 1}), "ok")

    async def main() -> Any:
        async with Agent(second, tools=[add]) as stays:
            async with Agent(first) as goes:
                goes.send("go")
                await anyio.sleep(1)
            result = await stays.run("go")
            return goes, result

    goes, result = run(main)
    assert reasons(goes) == ["disposed"]
    assert result.ok
