"""C11: what leaves a harness: opened and closed anywhere, exceptions of the body unchanged, never a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from loopkit import Flush, Latch, add, plugin, reasons, requested
from loopkit import house as harness

from checkrein import Agent, AgentDisposed, tool
from checkrein.agents import AgentSpec
from checkrein.memory_store import MemoryStore
from checkrein.testing import call, forever, run_virtual, text, wait
from checkrein.testing.script import hang


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
            await requested(agent)
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


def test_C11_two_who_close_a_harness_await_the_same_end(run, scripted):
    """The second one does not cancel a lifespan that is being left for the first."""
    left: list[str] = []

    @asynccontextmanager
    async def span() -> AsyncIterator[None]:
        yield
        await anyio.sleep(1)
        left.append("left")

    async def main() -> Any:
        house = harness(scripted(), plugins=[plugin(lifespan=lambda harness, tasks: span())])
        await house.__aenter__()

        async def close() -> None:
            await house.aclose()
            left.append("closed")

        async with anyio.create_task_group() as group:
            group.start_soon(close)
            group.start_soon(close)

    run(main)
    assert left == ["left", "closed", "closed"]


@pytest.mark.parametrize("what", ["run", "dispose"])
def test_C11_an_agent_whose_loop_is_gone_says_so_each_time(scripted, what):
    """A program that left its harness open and starts another loop: an error, never a hang, and nothing is accepted."""
    for backend in ("asyncio", "trio"):
        made: list[Any] = []

        async def opens(made: list[Any] = made) -> None:
            made.append(await Agent(scripted("hi")).__aenter__())
            await made[0].run("go")

        async def uses(made: list[Any] = made) -> None:
            for _ in range(2):
                with pytest.raises((AgentDisposed, RuntimeError), match="is closed"), anyio.fail_after(10):
                    await (made[0].run("go") if what == "run" else made[0].dispose())

        run_virtual(opens, backend=backend)
        run_virtual(uses, backend=backend)
        assert made[0].status == "idle"
        assert not made[0].pending


@pytest.mark.parametrize("how", ["create", "resume"])
def test_C8_an_agent_whose_maker_was_cancelled_is_not_left_behind(run, scripted, how):
    """Cancelled while its observers were told: nobody has it, so its id is free, and its session can be opened."""
    model, store = scripted(forever("ok")), MemoryStore()
    slow: list[bool] = []

    async def created() -> None:
        if slow:
            await anyio.sleep(5)

    async def main() -> Any:
        house = harness(model, plugins=[Flush(), plugin(agent_created=created)], store=store)
        async with house:
            agent = house.agents["main"]
            await agent.run("first")
            await agent.dispose()

            async def make() -> Any:
                if how == "resume":
                    return await house.resume(agent.session.id)
                return await house.create_agent(AgentSpec(id="main", model="scripted:x"))

            slow.append(True)
            with anyio.move_on_after(1):
                await make()
            assert "main" not in house.agents
            slow.clear()
            return await (await make()).run("next")

    assert run(main).ok
