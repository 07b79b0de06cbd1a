"""C12: who may not wait, because it would be for oneself, and what other threads may do."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from loopkit import house as harness
from loopkit import of, plugin, reasons, said

from checkrein import Agent, Harness, WouldDeadlock, WrongThread, tool
from checkrein.chunks import CallChunk, FinishChunk, TextChunk
from checkrein.config.types import AgentConfig, HarnessConfig
from checkrein.testing import call, forever
from checkrein.testing.script import hang


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


class Roles:
    """A provider that answers each agent by a script of its own; who asks is told by the system prompt."""

    name = "roles"

    def __init__(self, **scripts: list[Any]) -> None:
        self.scripts = scripts

    def default_model(self) -> str:
        return "x"

    def missing(self) -> None:
        return None

    async def stream(self, request: Any) -> Any:
        answer = self.scripts[request.system[0]].pop(0)
        if isinstance(answer, float):
            await anyio.sleep(answer)
            answer = "later"
        if answer.startswith("!"):
            yield CallChunk(0, "1", answer[1:])
        else:
            yield TextChunk(0, answer)
        yield FinishChunk("stop")


def pair(scripts: dict[str, list[Any]], tools: list[Any]) -> Any:
    """A harness with the agents a and b."""
    agents = tuple(AgentConfig(id=name, model="roles:x", system_prompt=name) for name in scripts)
    return Harness(config=HarnessConfig(agents=agents), providers=[Roles(**scripts)], found=[], tools=tools)


@pytest.mark.parametrize("how", ["run", "stream", "result", "idle"])
def test_C12_a_ring_is_seen_whoever_began_the_turns(run, how):
    """B is busy for somebody else when A's tool begins to wait for it: B's tool that waits for A still cannot."""
    box: dict[str, Any] = {}

    async def wait_for(agent: Any) -> str:
        if how == "run":
            return (await agent.run("help")).text
        if how == "stream":
            async with agent.stream("help") as turn:
                return str(len([item async for item in turn]))
        if how == "result":
            return (await agent.send("help").result()).text
        agent.send("help")
        await agent.idle()
        return "idle"

    @tool
    async def ask_b() -> str:
        """Ask B."""
        return await wait_for(box["b"])

    @tool
    async def ask_a() -> str:
        """Ask A."""
        with pytest.raises(WouldDeadlock, match="'a'"):
            await wait_for(box["a"])
        return "refused"

    async def main() -> Any:
        async with pair({"a": ["!ask_b", "done", "once more"], "b": [5.0, "!ask_a", "b"]}, [ask_a, ask_b]) as house:
            box.update(a=house.agents["a"], b=house.agents["b"])
            box["b"].send("from outside")
            await anyio.sleep(1)
            with anyio.fail_after(100):
                result = await box["a"].run("go")
            return result, said(box["b"], "tool/result")

    result, answers = run(main)
    assert (result.text, answers) == ("done", ["refused"])


def test_C12_who_was_only_sent_an_input_may_wait_for_the_sender(run):
    """B sends to A and waits for nothing: A's turn is no part of B's, and its tool may run B."""
    box: dict[str, Any] = {}

    @tool
    async def tell_a() -> str:
        """Tell A."""
        box["receipt"] = box["a"].send("do it")
        return "told"

    @tool
    async def ask_b() -> str:
        """Ask B."""
        return (await box["b"].run("help")).text

    async def main() -> Any:
        async with pair({"a": ["!ask_b", "done"], "b": ["!tell_a", 5.0, "helped"]}, [tell_a, ask_b]) as house:
            box.update(a=house.agents["a"], b=house.agents["b"])
            await box["b"].run("go")
            await box["receipt"].result()
            return said(box["a"], "tool/result")

    assert run(main) == ["helped"]


def test_a_stream_that_is_left_ends_for_another_task_that_iterates_over_it(run, scripted):
    """The task waited for ever, and with it the group that the block was left in."""

    async def main() -> Any:
        async with Agent(scripted(hang(), "ok")) as agent:
            items: list[Any] = []
            async with anyio.create_task_group() as group, agent.stream("go") as turn:

                async def follow() -> None:
                    items.extend([item async for item in turn])

                group.start_soon(follow)
                await anyio.sleep(1)
            return items, (await agent.run("next")).check().turn

    items, turn = run(main)
    assert items[0].type == "user/message" and turn == 2
