"""Public bug reports about servers that clients open and close (MCP), acted out by plugins with a server each.

The server here is what an MCP client is to its user: a context manager with a task group in it, that answers
through a queue. docs/cases.md lists all reports.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from checkrein import Harness, hookimpl, tool
from checkrein.agents import AgentSpec
from checkrein.config.types import HarnessConfig, LimitsConfig
from checkrein.errors import PluginError
from checkrein.testing import ScriptedModel, call

notes: list[str] = []


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    notes.clear()


class Server:
    """Refuses, as anyio does, to be left in another task than the one that entered it."""

    def __init__(self) -> None:
        self._requests, self._inbox = anyio.create_memory_object_stream[tuple[str, Any]](8)

    @asynccontextmanager
    async def open(self, connect_s: float = 0) -> AsyncIterator[None]:
        try:
            async with anyio.create_task_group() as group:
                await anyio.sleep(connect_s)
                group.start_soon(self._serve)
                notes.append("open")
                yield
                group.cancel_scope.cancel()
        finally:
            notes.append("closed")
            self._requests.close()
            self._inbox.close()

    async def _serve(self) -> None:
        async for text, answer in self._inbox:
            await answer.send(f"served {text}")

    async def ask(self, text: str) -> str:
        answer, wait = anyio.create_memory_object_stream[str](1)
        with answer, wait:
            await self._requests.send((text, answer))
            return await wait.receive()


def client(connect_s: float = 0) -> Any:
    """A plugin that holds a server as long as the harness is open, and a tool that asks it."""
    server = Server()

    @tool(read_only=True)
    async def ask(text: str) -> str:
        """Ask the server."""
        return await server.ask(text)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with server.open(connect_s):
            yield

    return SimpleNamespace(name="client", lifespan=hookimpl(lifespan), register_tools=hookimpl(lambda: [ask]))


def pool() -> Any:
    """A plugin whose tool opens its server when it is first asked, in a task that outlives the call."""
    server = Server()
    starter: list[Any] = []

    async def serve(opened: anyio.Event) -> None:
        async with server.open():
            opened.set()
            await anyio.sleep_forever()

    @tool(read_only=True)
    async def ask(text: str) -> str:
        """Ask the server."""
        if "open" not in notes:
            opened = anyio.Event()
            starter[0].start(serve, opened)
            await opened.wait()
        return await server.ask(text)

    @asynccontextmanager
    async def lifespan(tasks: Any) -> AsyncIterator[None]:
        starter.append(tasks)
        yield

    return SimpleNamespace(name="pool", lifespan=hookimpl(lifespan), register_tools=hookimpl(lambda: [ask]))


def house(*plugins: Any, **options: Any) -> Harness:
    model = ScriptedModel(call("ask", {"text": "one"}), call("ask", {"text": "two"}), "done")
    made = Harness(plugins=plugins, providers=[model], **{"found": (), **options})
    made.specs = [AgentSpec(model="scripted:x")]
    return made


async def works(harness: Harness) -> None:
    agent = next(iter(harness.agents))
    result = await agent.run("go")
    texts = [event.content[0].text for event in result.events if event.type == "tool/result"]
    assert result.ok and texts == ["served one", "served two"]


@pytest.mark.parametrize("make", [client, pool], ids=["M01", "M02"])
def test_case_M01_M02_opened_in_one_task_and_closed_in_another(run: Any, make: Any) -> None:
    """'Attempted to exit cancel scope in a different task': whoever closed was not the task that had opened."""
    stack = AsyncExitStack()
    harness = house(make())

    async def open_it() -> None:
        await stack.enter_async_context(harness)

    async def main() -> None:
        for step in (open_it, lambda: works(harness), stack.aclose):
            async with anyio.create_task_group() as group:
                group.start_soon(step)

    run(main)
    assert notes == ["open", "closed"]
    assert list(harness.hooks.faults.recent) == []


def test_case_M01_cancelled_while_it_connects(run: Any) -> None:
    """The same, closed while the connection was still being made."""
    harness = house(client(connect_s=25))

    async def main() -> None:
        with anyio.move_on_after(1) as scope:
            async with harness:
                raise AssertionError("it never connects")
        assert scope.cancelled_caught and anyio.current_time() < 10

    run(main)
    assert notes == ["closed"]


@pytest.mark.parametrize("limit", ["its own", "ours"])
def test_case_M03_a_server_that_never_connects_is_named_and_the_host_runs_on(
    run: Any, install: Any, limit: str
) -> None:
    """A time limit around the connecting broke the order of the scopes below it, and the host did not start."""
    source = f"""
        from contextlib import asynccontextmanager
        import anyio
        from checkrein import hookimpl
        from {__name__} import client

        class Plugin:
            @hookimpl
            @asynccontextmanager
            async def lifespan(self):
                with anyio.fail_after({0.2 if limit == "its own" else 10_000}):
                    async with client(connect_s=10_000).lifespan():
                        yield
    """
    found = install("acme-server", {"server": source})
    limits = LimitsConfig(hook_deadlines_s={"lifespan": 0.5})
    harness = house(client(), found=found, config=HarnessConfig(limits=limits))

    async def main() -> None:
        begin = anyio.current_time()
        async with harness:
            assert anyio.current_time() - begin < 1
            await works(harness)

    run(main)
    [report] = [each for each in harness.plugins.reports if each.name == "server"]
    assert report.state == "skipped" and "TimeoutError" in (report.problem or "")
    assert sorted(notes) == ["closed", "closed", "open"]


def test_case_M03_a_required_server_that_never_connects_stops_the_start(run: Any) -> None:
    """The same, where the config wants the server."""
    harness = house(client(connect_s=10_000))

    async def main() -> None:
        with pytest.raises(PluginError, match=r"client.*did not start within 30 s"):
            async with harness:
                pass

    run(main)
    assert notes == ["closed"]


TOOL = """
    from checkrein import hookimpl, tool

    class Plugin:
        @hookimpl
        def register_tools(self):
            return [tool(name="search")(lambda: "{name}")]
"""


@pytest.mark.parametrize("order", [("alpha", "zeta"), ("zeta", "alpha")])
def test_case_M12_which_of_two_equal_names_stays_does_not_depend_on_who_came_first(
    run: Any, install: Any, order: tuple[str, str]
) -> None:
    """A clashing tool got a suffix by the order servers connected in, so rights went to another tool."""
    for name in order:
        found = install(f"acme-{name}", {name: TOOL.format(name=name)})
    harness = house(found=found)

    async def main() -> None:
        async with harness:
            assert (harness.tools.names(), harness.tools.owner("search")) == (["search"], "alpha")

    run(main)
    [report] = [each for each in harness.plugins.reports if each.state == "skipped"]
    assert report.name == "zeta" and "'search'" in report.problem and "'alpha'" in report.problem
