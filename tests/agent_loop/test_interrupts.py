"""C10: base exceptions are contained where they are raised, and an interrupt reaches every waiter."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import add, balanced, nap, of, plugin, results

from checkrein import Agent, tool
from checkrein.chunks import TextChunk, ThinkingChunk
from checkrein.memory_store import MemoryStore
from checkrein.testing import ScriptedModel, call, text, wait


@pytest.mark.parametrize("exc", [SystemExit, GeneratorExit, BaseException])
@pytest.mark.parametrize("calls", [1, 3])
def test_C10_base_exceptions_of_a_tool_are_contained_where_they_are_raised(run, scripted, exc, calls):
    """An error result; siblings keep their results (cases P23, X08)."""

    @tool
    async def bad() -> str:
        """Raise."""
        raise exc("no")

    model = scripted([call("bad"), *[call("add", {"a": 1, "b": 1})] * (calls - 1)], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[bad, add]) as agent:
            result = await agent.run("go")
            return agent, result

    agent, result = run(main)
    assert result.ok
    assert [code for _, code in results(agent)] == ["TOOL_ERROR", *["ok"] * (calls - 1)]


def _ki_tool() -> Any:
    @tool
    async def bad() -> str:
        """Interrupt."""
        raise KeyboardInterrupt

    return bad


def _ki(*_: Any) -> Any:
    raise KeyboardInterrupt


async def _aki(agent: Any, call: Any, proceed: Any) -> Any:
    raise KeyboardInterrupt


async def _ki_group() -> str:
    """Interrupt a task group of its own."""
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 10)
        group.start_soon(_ki_async)
    return "never"


async def _ki_group_hook(agent: Any) -> None:
    await _ki_group()


def _ki_at_request(gate: str) -> None:
    if gate == "request":
        raise KeyboardInterrupt


KI: dict[str, Any] = {
    "tool": lambda: {"tools": [_ki_tool(), nap], "turn": [call("nap"), call("bad")]},
    "sync thread": lambda: {"tools": [tool(_ki_thread), nap], "turn": [call("_ki_thread"), call("nap")]},
    "provider": lambda: {"turn": [text("x"), wait(_ki_async)]},
    "observer": lambda: {"plugins": [plugin(session_event=lambda event: _once(event, "step/start"))], "turn": "x"},
    "chunk": lambda: {"plugins": [plugin(stream_chunk=_ki)], "turn": "x"},
    "guard": lambda: {"plugins": [plugin(tools_guard=lambda agent, call: _ki())], "turn": call("nap"), "tools": [nap]},
    "execute": lambda: {"plugins": [plugin(tools_execute=_aki)], "turn": call("nap"), "tools": [nap]},
    "request": lambda: {"plugins": [plugin(agent_request=lambda agent: _ki())], "turn": "x"},
    "vote": lambda: {"plugins": [plugin(turn_continuation=lambda agent: _ki())], "turn": "x"},
    "flush": lambda: {"plugins": [plugin(session_flush=_ki_at_request)], "turn": "x"},
    "group of a tool": lambda: {"tools": [tool(_ki_group, name="bad"), nap], "turn": [call("nap"), call("bad")]},
    "group of a provider": lambda: {"turn": [text("x"), wait(_ki_group)]},
    "group of a hook": lambda: {"plugins": [plugin(agent_request=_ki_group_hook)], "turn": "x"},
}


def _ki_thread() -> str:
    """Interrupt."""
    raise KeyboardInterrupt


async def _ki_async() -> None:
    raise KeyboardInterrupt


def _once(event: Any, kind: str) -> None:
    if event.type == kind and event.turn == 1:
        raise KeyboardInterrupt


@pytest.mark.parametrize("where", KI)
def test_C10_keyboard_interrupt_closes_the_turn_and_is_raised_in_every_waiter(run, scripted, where):
    """Held, closed (cancelled, cause signal), then raised in each who waits; the agent could go on."""
    if where.startswith("group") and run.backend == "asyncio":
        pytest.skip("asyncio itself raises a task's KeyboardInterrupt out of the loop, past every group")
    made = KI[where]()
    model = scripted(made["turn"], "the one that was parked", "still here")

    async def main() -> Any:
        async with Agent(model, tools=made.get("tools", ()), plugins=made.get("plugins", ())) as agent:
            struck: list[str] = []

            async def waits(name: str) -> None:
                try:
                    await agent.run(name)
                except KeyboardInterrupt:
                    struck.append(name)

            async with anyio.create_task_group() as group:
                group.start_soon(waits, "a")
                group.start_soon(waits, "b")
            await anyio.sleep(1)
            assert (agent.status, len(of(agent, "turn/end")), len(agent.pending)) == ("idle", 1, 1)
            balanced(agent)
            for entry in made.get("plugins", ()):
                agent.harness.plugins.unregister(entry.name)
            assert (await agent.run("on")).ok
            return agent, sorted(struck)

    agent, struck = run(main)
    assert struck == ["a", "b"]
    end = of(agent, "turn/end")[0]
    assert (end.reason.kind, end.reason.cause.kind) == ("cancelled", "signal")


@pytest.mark.parametrize("where", ["tool", "provider", "observer", "vote"])
def test_C10_without_a_waiter_it_takes_the_programs_own_path(run, scripted, where):
    """signal.raise_signal(SIGINT): the handler of the program hears it, the turn is closed."""
    import signal

    made = KI[where]()
    model = scripted(made["turn"], "still here")
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:

        async def main() -> Any:
            signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
            async with Agent(model, tools=made.get("tools", ()), plugins=made.get("plugins", ())) as agent:
                agent.send("go")
                await anyio.sleep(1)
                assert agent.status == "idle"
                balanced(agent)
                return agent

        agent = run(main)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]
    assert of(agent, "turn/end")[0].reason.cause.kind == "signal"


def test_C10_an_interrupt_while_a_failed_stream_is_closed_reaches_the_waiter(run):
    """What the stream failed with does not hide it, and its provider is not blamed for it."""

    class Interrupted(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            try:
                yield TextChunk(0, "half")
                yield ThinkingChunk(0, "of another kind at the same index")
            except GeneratorExit:
                raise KeyboardInterrupt from None

    async def main() -> Any:
        async with Agent(Interrupted()) as agent:
            with pytest.raises(KeyboardInterrupt):
                await agent.run("go")
            balanced(agent)
            return agent

    agent = run(main)
    end = of(agent, "turn/end")[0]
    assert (end.reason.kind, end.reason.cause.kind) == ("cancelled", "signal")
    assert not of(agent, "plugin/fault")


def test_T4_C10_an_interrupt_behind_a_cancel_leaves_its_cause(run, scripted):
    """The first cause wins; the interrupt is raised in the waiter all the same."""

    async def main() -> Any:
        async with Agent(scripted(call("act")), tools=[act]) as agent:
            made.append(agent)
            with pytest.raises(KeyboardInterrupt):
                await agent.run("go")
            return of(agent, "turn/end")[0].reason

    made: list[Any] = []

    @tool
    async def act() -> None:
        """Act."""
        made[0].cancel()
        raise KeyboardInterrupt

    reason = run(main)
    assert (reason.kind, reason.cause.kind) == ("cancelled", "user")


def test_C10_the_other_observers_are_called_before_it_goes_on(run, scripted):
    """One observer's KeyboardInterrupt starves no other."""
    model = scripted("x")
    seen: list[str] = []
    first = plugin("first", session_event=lambda event: _once(event, "turn/start"))
    second = plugin("second", session_event=lambda event: seen.append(event.type))

    async def main() -> Any:
        async with Agent(model, plugins=[first, second]) as agent:
            with pytest.raises(KeyboardInterrupt):
                await agent.run("go")
            return [event.type for event in agent.session.events]

    logged = run(main)
    assert seen[: len(logged)] == logged[-len(seen) :][: len(seen)] or set(logged) <= set(seen)


@pytest.mark.parametrize("ended", ["completed", "error"])
@pytest.mark.parametrize("kind", ["step/end", "turn/end"])
def test_C10_T9_an_interrupt_while_a_turn_is_closed_leaves_nothing_to_the_next(run, scripted, ended, kind):
    """It is flushed as any other; why it was ended from outside (a hanging stream) is not the next one's reason."""
    model = scripted([text("x"), wait(anyio.sleep_forever)] if ended == "error" else "x", "still here")
    gates: list[str] = []
    struck = [kind]

    def observe(event: Any) -> None:
        if event.type in struck:
            struck.clear()
            raise KeyboardInterrupt

    spy = plugin(session_event=observe, session_flush=lambda gate: gates.append(gate))

    async def main() -> Any:
        async with Agent(model, plugins=[spy]) as agent:
            with pytest.raises(KeyboardInterrupt):
                await agent.run("go")
            await agent.idle()
            assert gates[-1] == "turn_end"
            balanced(agent)
            assert (await agent.run("on")).text == "still here"
            return agent

    end = of(run(main), "turn/end")[0]
    assert end.reason.kind == (ended if kind == "turn/end" or ended == "error" else "cancelled")


@pytest.mark.parametrize("where", ["flush of a steered input", "watch of what is deaf"])
def test_C10_an_interrupt_beside_the_driver_is_handed_over_like_one_in_it(run, scripted, where):
    """It left the owner's group, with which every agent of the harness ended."""

    @tool
    async def deaf() -> str:
        """Hear nothing."""
        with anyio.CancelScope(shield=True):
            await anyio.sleep(3)
        return "done"

    beside: list[str] = []

    def flush(gate: str) -> None:
        if gate == "input" and beside:
            raise KeyboardInterrupt

    def fault(fault: Any) -> None:
        raise KeyboardInterrupt

    hooks = {"session_flush": flush} if where.startswith("flush") else {"plugin_fault": fault}

    async def main() -> Any:
        model = scripted(call("deaf"), "the steered one was parked", *["still here"] * where.startswith("flush"))
        async with Agent(model, tools=[deaf], plugins=[plugin(**hooks)], store=MemoryStore()) as agent:

            async def later() -> None:
                await anyio.sleep(1)
                if where.startswith("flush"):
                    beside.append("now")
                    agent.steer("and this")
                    await anyio.sleep(0.5)
                    beside.clear()
                else:
                    agent.cancel()

            async with anyio.create_task_group() as group:
                group.start_soon(later)
                with pytest.raises(KeyboardInterrupt):
                    await agent.run("go")
            balanced(agent)
            agent.harness.plugins.unregister("probe")
            assert (await agent.run("on")).ok
            return of(agent, "turn/end")

    first, *rest = run(main)
    assert (first.reason.kind, {end.reason.kind for end in rest}) == ("cancelled", {"completed"})
