"""C1-C3, C7, C10: cancelled wherever it can be, and what is not our cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from loopkit import Latch, add, nap, of, plugin, reasons, results, said, types

from checkrein import Agent, tool
from checkrein.agents import Approver
from checkrein.decisions import Ask, Continue, Retry
from checkrein.messages import content_text
from checkrein.testing import call, error, finish, forever, text, thinking, wait
from checkrein.testing.script import hang


def balanced(agent: Any) -> None:
    """What holds behind every cancel."""
    for word in ("turn", "step"):
        assert len(of(agent, f"{word}/start")) == len(of(agent, f"{word}/end"))
    assert len(of(agent, "request/start")) == len(of(agent, "request/end"))
    assert [e.call_id for e in of(agent, "tool/call")] == [e.call_id for e in of(agent, "tool/result")]


async def spin(until: Callable[[], object]) -> None:
    """Pass the scheduler until something holds."""
    for _ in range(10_000):
        if until():
            return
        await anyio.sleep(0)
    raise AssertionError("it never came")


# --- C1, C2, C3: where it lands -----------------------------------------------------------------------------


class Place:
    """A place of a turn that waits at a latch, and opens `reached` when it is there."""

    def __init__(self) -> None:
        self.reached = Latch()

    async def stay(self, *_: Any) -> None:
        self.reached.open()
        await anyio.sleep_forever()


def _tool_place(place: Place) -> Any:
    @tool
    async def stay() -> str:
        """Stay."""
        await place.stay()
        return "never"

    return stay


async def _execute(agent: Any, call: Any, proceed: Any, place: Place) -> Any:
    await place.stay()


def _at(where: str, place: Place) -> dict[str, Any]:
    """The model's first turn, tools and plugins that make a turn stay at a place."""
    stay = place.stay
    ask = [call("add", {"a": 1, "b": 1}), call("stay")]
    made: dict[str, Any] = {"turn": ask, "plugins": [], "tools": [add, _tool_place(place)]}
    waits = wait(stay)
    if where == "request":
        made["turn"] = [waits, text("never")]
    elif where == "chunks":
        made["turn"] = [thinking("hm"), text("half"), waits, text(" never")]
    elif where == "arguments":
        made["turn"] = [text("I call"), call("add", raw='{"a": 1,'), waits]
    elif where == "after the last chunk":
        made["turn"] = [text("all of it"), finish("stop"), waits]
    elif where == "tools_execute":
        made["plugins"] = [plugin(tools_execute=_execute_at(place))]
    elif where == "approval":
        made["plugins"] = [plugin(tools_guard=lambda call: Ask("sure?") if call.name == "stay" else None)]
    elif where != "tool":
        hook = {"guard": "tools_guard", "vote": "turn_continuation"}.get(where, where)
        made["plugins"] = [plugin(**{hook: _hook_at(hook, place)})]
    return made


def _execute_at(place: Place) -> Any:
    async def tools_execute(agent: Any, call: Any, proceed: Any) -> Any:
        if call.name == "stay":
            await place.stay()
        return await proceed(call)

    return tools_execute


def _hook_at(hook: str, place: Place) -> Any:
    async def agent_request(request: Any) -> None:
        await place.stay()

    async def step_result(message: Any) -> None:
        await place.stay()

    async def tools_guard(call: Any) -> None:
        if call.name == "stay":
            await place.stay()

    async def turn_continuation(agent: Any) -> None:
        await place.stay()

    async def session_flush(gate: str) -> None:
        if gate == "request":
            await place.stay()

    return locals()[hook]


# where -> (codes of the results, whether the call began, text kept)
PLACES: dict[str, tuple[list[str], str]] = {
    "agent_request": ([], ""),
    "session_flush": ([], ""),
    "request": ([], ""),
    "chunks": ([], "half"),
    "arguments": ([], "I call"),
    "after the last chunk": ([], "all of it"),
    "step_result": ([], ""),
    "guard": (["ok", "NOT_STARTED"], ""),
    "tools_execute": (["ok", "NOT_STARTED"], ""),
    "approval": (["ok", "NOT_STARTED"], ""),
    "tool": (["ok", "OUTCOME_UNKNOWN"], ""),
    "vote": (["ok", "ok"], ""),
}


class Nobody:
    """An approver that never answers."""

    def __init__(self, place: Place) -> None:
        self.place = place

    async def decide(self, agent: Any, approval: Any) -> str:
        await self.place.stay()
        return "denied"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("where", PLACES)
def test_C1_cancel_reaches_every_await(run3, scripted, where, times):
    """Within one pass the turn is closed, balanced and honest; twice is as once; the agent goes on."""
    codes, kept = PLACES[where]

    async def main() -> Any:
        place = Place()
        made = _at(where, place)
        if where == "vote":
            made["turn"] = [call("add", {"a": 1, "b": 1}), call("add", {"a": 1, "b": 2})]
        unsent = where in ("agent_request", "session_flush")
        model = scripted(*([] if unsent else [made["turn"]]), "still here")
        async with Agent(model, tools=made["tools"], plugins=made["plugins"]) as agent:
            if where == "approval":
                agent.harness.provide(Approver, Nobody(place))
            receipt = agent.send("go")
            await place.reached.wait()
            for _ in range(times):
                agent.cancel()
            result = await receipt.result()
            balanced(agent)
            for name in [entry.name for entry in made["plugins"]]:
                agent.harness.plugins.unregister(name)
            assert (await agent.run("and now?")).ok
            return agent, result

    agent, result = run3(main)
    assert (result.reason.kind, result.reason.cause.kind) == ("cancelled", "user")
    assert [code for _, code in results(agent)] == codes
    partial = [e.text for e in of(agent, "assistant/partial")]
    assert partial == ([kept] if kept else partial if where == "step_result" else [])
    if where == "chunks":
        assert [e.text for e in of(agent, "assistant/thinking")] == ["hm"]
    if where == "approval":
        assert [e.outcome for e in of(agent, "approval/decided")] == ["closed"]
    assert not of(agent, "plugin/fault")


def test_C1_cancel_to_turn_end_takes_one_pass(run3, scripted):
    """When nothing shields itself, turn/end is in the log after the next pass of the scheduler."""
    model = scripted(hang())

    async def main() -> int:
        async with Agent(model) as agent:
            agent.send("go")
            await spin(lambda: of(agent, "request/start"))
            for _ in range(3):
                await anyio.sleep(0)
            agent.cancel()
            passes = 0
            while not of(agent, "turn/end"):
                passes += 1
                await anyio.sleep(0)
            return passes

    assert run3(main) <= 3


def test_C1_a_provider_and_tools_that_never_suspend_are_cancelled_between_steps(run3, scripted):
    """Nothing awaits, so nothing is delivered; the boundary looks (trap X1)."""
    model = scripted(forever(call("add", {"a": 1, "b": 1})))

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent:

            def observer(event: Any) -> None:
                if event.type == "step/end" and event.step == 3:
                    agent.cancel()

            agent.session.observe(observer)
            result = await agent.run("go")
            balanced(agent)
            return result

    result = run3(main)
    assert (result.reason.kind, result.steps) == ("cancelled", 3)


@pytest.mark.parametrize("when", ["assistant/message", "tool/call", "tool/start"])
def test_C1_between_the_message_and_the_first_call(run3, scripted, when):
    """A cancel from an observer that close to the calls: none begins that had not, each has its result (P05)."""
    model = scripted([call("nap"), call("nap"), call("nap")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[nap], max_parallel_tool_calls=2) as agent:
            agent.session.observe(lambda event: agent.cancel() if event.type == when else None)
            result = await agent.run("go")
            balanced(agent)
            return agent, result

    agent, result = run3(main)
    assert result.reason.kind == "cancelled"
    started = {e.call_id for e in of(agent, "tool/start")}
    assert len(started) == (0 if when != "tool/start" else len(started))
    for call_id, code in results(agent):
        assert code == ("OUTCOME_UNKNOWN" if call_id in started else "NOT_STARTED")


def test_C2_who_has_a_real_result_keeps_it_the_others_get_honest_words(run3, scripted):
    """Model order, and in each text whether it may have run (case Q15)."""
    model = scripted([call("nap"), call("add", {"a": 1, "b": 2}), call("nap"), call("nap")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[nap, add], max_parallel_tool_calls=2) as agent:
            receipt = agent.send("go")
            await spin(lambda: len(of(agent, "tool/start")) == 3)
            agent.cancel()
            await receipt.result()
            balanced(agent)
            return agent

    agent = run3(main)
    assert [code for _, code in results(agent)] == ["OUTCOME_UNKNOWN", "ok", "OUTCOME_UNKNOWN", "NOT_STARTED"]
    texts = [content_text(e.content) for e in of(agent, "tool/result") if e.content]
    assert "may" in texts[0] and "run" in texts[0]
    assert texts[-1].startswith("cancelled before execution")


def test_C2_a_worker_threads_late_result_is_dropped_with_an_event(run, scripted):
    """The call says OUTCOME_UNKNOWN at once; what the thread returns later is `tool/late`, not a result."""
    model = scripted(call("block"), "ok")
    gate, entered = threading.Event(), threading.Event()

    @tool
    def block() -> str:
        """Block."""
        entered.set()
        gate.wait(10)
        return "late"

    async def main() -> Any:
        async with Agent(model, tools=[block]) as agent:
            receipt = agent.send("go")
            await spin(entered.is_set) if False else None
            while not entered.is_set():
                await anyio.sleep(0.01)
            agent.cancel()
            await receipt.result()
            gate.set()
            while not of(agent, "tool/late"):
                await anyio.sleep(0.01)
            assert (await agent.run("again")).ok
            return agent

    agent = run(main)
    assert results(agent) == [("c1.1.1", "OUTCOME_UNKNOWN")]
    assert [e.call_id for e in of(agent, "tool/late")] == ["c1.1.1"]


def test_C2_a_thread_that_asks_hears_that_it_is_cancelled(run, scripted):
    """`ToolContext.cancelled()` is for threads."""
    from checkrein import ToolContext

    model = scripted(call("watch"), "ok")
    heard, entered = threading.Event(), threading.Event()

    @tool
    def watch(ctx: ToolContext) -> str:
        """Watch."""
        entered.set()
        for _ in range(2_000):
            if ctx.cancelled():
                heard.set()
                break
            heard.wait(0.005)
        return "left"

    async def main() -> None:
        async with Agent(model, tools=[watch]) as agent:
            receipt = agent.send("go")
            while not entered.is_set():
                await anyio.sleep(0.01)
            agent.cancel()
            await receipt.result()

    run(main)
    assert heard.wait(10)


def test_C3_no_half_call_is_ever_run(run3, scripted):
    """Cancelled inside the arguments: no call in the log, none in the next request (case P04)."""
    ran: list[int] = []

    @tool
    async def edit(a: int = 0) -> str:
        """Edit."""
        ran.append(a)
        return "edited"

    async def main() -> Any:
        place = Place()
        model = scripted([call("edit", raw='{"a": 1'), wait(place.stay)], "ok")
        async with Agent(model, tools=[edit]) as agent:
            receipt = agent.send("go")
            await place.reached.wait()
            agent.cancel()
            await receipt.result()
            await agent.run("continue")
            return agent

    agent = run3(main)
    assert not ran and not of(agent, "tool/call")
    assert said(agent) == ["go", "continue"]


def test_C3_what_was_shown_of_a_cancelled_answer_is_kept_beside_the_history(run3, scripted):
    """assistant/partial is no answer: the model does not read it back as one."""

    async def main() -> Any:
        place = Place()
        model = scripted([text("half of"), wait(place.stay), text(" it")], "ok")
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await place.reached.wait()
            agent.cancel()
            result = await receipt.result()
            await agent.run("on")
            return agent, result, model

    agent, result, model = run3(main)
    assert result.text == ""
    assert [e.outcome for e in of(agent, "request/end")] == ["cancelled", "ok"]
    assert not any(type(m).__name__ == "AssistantMessage" for m in model.requests[1].messages)


def test_C1_cancel_during_a_retrys_pause(run3, scripted):
    """The pause is an await like any other; no further request is sent."""
    model = scripted(error("SERVER"), "never")
    probe = plugin(request_error=lambda error: Retry(after_s=3600))

    async def main() -> Any:
        async with Agent(model, plugins=[probe]) as agent:
            receipt = agent.send("go")
            await spin(lambda: of(agent, "request/end"))
            agent.cancel()
            return await receipt.result()

    assert run3(main).reason.kind == "cancelled"
    assert len(model.requests) == 1


def test_C1_cancel_while_closing_changes_nothing(run3, scripted):
    """From an observer of the closing events themselves."""
    model = scripted([call("nap"), call("nap")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            closing = ("request/end", "tool/result", "step/end", "turn/end")
            receipt = agent.send("go")
            await spin(lambda: of(agent, "tool/start"))
            stop = agent.session.observe(lambda event: agent.cancel("parent") if event.type in closing else None)
            agent.cancel("user")
            result = await receipt.result()
            stop()
            balanced(agent)
            assert (await agent.run("on")).ok
            return result

    result = run3(main)
    assert (result.reason.kind, result.reason.cause.kind) == ("cancelled", "user")


def test_C1_a_cancel_in_the_observer_of_the_last_event_arms_nothing(run3, scripted):
    """turn/end is in the log: there is nothing to cancel."""
    model = scripted("1", "2")

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.session.observe(lambda event: agent.cancel() if event.type == "turn/end" else None)
            return [(await agent.run("a")).reason.kind, (await agent.run("b")).reason.kind]

    assert run3(main) == ["completed", "completed"]


# --- deaf code ----------------------------------------------------------------------------------------------


def _deaf(seconds: float) -> Any:
    @tool
    async def deaf() -> str:
        """Shield."""
        with anyio.CancelScope(shield=True):
            await anyio.sleep(seconds)
        return "heard nothing"

    return deaf


def test_C1_deaf_code_is_named_after_a_second(run, scripted):
    """A tool that shields itself: its real result is kept when it comes, the turn is cancelled, a fault names it."""
    model = scripted(call("deaf"), "ok")

    async def main() -> Any:
        async with Agent(model, tools=[_deaf(5)]) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            began = anyio.current_time()
            agent.cancel()
            await anyio.sleep(1.5)
            assert [(f.plugin, f.hook) for f in of(agent, "plugin/fault")] == [("deaf", "cancel")]
            result = await receipt.result()
            assert 3 < anyio.current_time() - began < 5
            assert (await agent.run("on")).ok
            return agent, result

    agent, result = run(main)
    assert result.reason.kind == "cancelled"
    assert results(agent) == [("c1.1.1", "ok")]
    assert len(of(agent, "plugin/fault")) == 1


@pytest.mark.parametrize("hook", ["agent_request", "turn_continuation"])
def test_C1_a_deaf_hook_is_named_by_its_plugin(run, scripted, hook):
    """Not just 'a hook': whose."""
    model = scripted("one", "two", "three")

    async def deaf(agent: Any) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)

    async def main() -> Any:
        async with Agent(model, plugins=[plugin("acme", **{hook: deaf})]) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            agent.cancel()
            result = await receipt.result()
            return agent, result

    agent, result = run(main)
    assert result.reason.kind == "cancelled"
    assert [(f.plugin, f.hook) for f in of(agent, "plugin/fault")] == [("acme", "cancel")]


def test_C1_a_deaf_provider_is_named(run, scripted):
    """By its name."""
    model = scripted([wait(_shielded), text("late")], "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            agent.cancel()
            result = await receipt.result()
            return agent, result

    agent, result = run(main)
    assert result.reason.kind == "cancelled"
    assert [(f.plugin, f.hook) for f in of(agent, "plugin/fault")] == [("scripted", "cancel")]


async def _shielded() -> None:
    with anyio.CancelScope(shield=True):
        await anyio.sleep(5)


def test_C1_a_tool_that_swallows_the_cancel_and_returns_keeps_its_result(run3, scripted):
    """It has a real result; the turn is cancelled all the same."""
    model = scripted([call("eats"), call("nap")], "ok")

    async def main() -> Any:
        place = Place()

        @tool
        async def eats() -> str:
            """Eat it."""
            try:
                await place.stay()
            except BaseException:  # noqa: S110
                pass
            return "ate"

        async with Agent(model, tools=[eats, nap]) as agent:
            receipt = agent.send("go")
            await place.reached.wait()
            agent.cancel()
            result = await receipt.result()
            return agent, result

    agent, result = run3(main)
    assert result.reason.kind == "cancelled"
    assert results(agent) == [("c1.1.1", "ok"), ("c1.1.2", "OUTCOME_UNKNOWN")]


def test_C5_disposal_does_not_wait_for_ever_for_deaf_code(run, scripted):
    """Closing the harness is bounded by close_timeout_s; the waiter gets its answer."""
    model = scripted(call("deaf"))

    async def main() -> Any:
        began = anyio.current_time()
        got: list[Any] = []
        async with anyio.create_task_group() as group:
            async with Agent(model, tools=[_deaf(1_000)]) as agent:

                async def waits() -> None:
                    try:
                        got.append((await agent.run("go")).reason.kind)
                    except Exception as exc:
                        got.append(type(exc).__name__)

                group.start_soon(waits)
                await anyio.sleep(1)
            closed_s = anyio.current_time() - began
        return got, closed_s

    got, closed_s = run(main)
    assert closed_s < 20
    assert got in (["disposed"], ["AgentDisposed"])


# --- C7: cancellations that are not ours --------------------------------------------------------------------

SELF = {
    "raises": lambda: _raise_cancelled(),
    "cancels itself": lambda: _cancel_task(True),
    "cancels itself and returns": lambda: _cancel_task(False),
}


async def _raise_cancelled() -> str:
    raise asyncio.CancelledError


async def _cancel_task(awaits: bool) -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    if awaits:
        await anyio.sleep(0)
    return "returned"


def run_asyncio(fn: Any) -> Any:
    """asyncio.CancelledError and current_task() are asyncio's own."""
    from checkrein.testing import run_virtual

    return run_virtual(fn, backend="asyncio")


@pytest.mark.parametrize("how", SELF)
@pytest.mark.parametrize("calls", [1, 3])
def test_C7_a_tool_that_cancels_its_own_task_is_a_failing_tool(scripted, how, calls):
    """In place and in a pool: OUTCOME_UNKNOWN (or what it returned), siblings keep theirs, the turn completes."""
    body = SELF[how]

    @tool
    async def bad() -> str:
        """Cancel."""
        return await body()

    asked = [call("bad"), *[call("nap", {"seconds": n}) for n in range(1, calls)]]
    model = scripted(asked, [wait(1), text("ok")], "again")

    async def main() -> Any:
        async with Agent(model, tools=[bad, nap], max_parallel_tool_calls=2) as agent:
            result = await agent.run("go")
            balanced(agent)
            assert (await agent.run("on")).ok
            return agent, result

    agent, result = run_asyncio(main)
    assert result.ok, result.reason
    codes = [code for _, code in results(agent)]
    assert codes == ["ok" if how.endswith("returns") else "OUTCOME_UNKNOWN", *["ok"] * (calls - 1)]
    assert [(f.plugin, f.hook) for f in of(agent, "plugin/fault")] == [("bad", "tool")]


def test_C7_trio_a_tool_that_raises_a_foreign_cancelled(scripted):
    """On trio a Cancelled can only come from a scope; one that ends inside the tool is the tool's own affair."""
    from checkrein.testing import run_virtual

    @tool
    async def bad() -> str:
        """Cancel a scope of its own."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep(1)
        return "left its own scope"

    model = scripted(call("bad"), "ok")

    async def main() -> Any:
        async with Agent(model, tools=[bad]) as agent:
            result = await agent.run("go")
            return agent, result

    agent, result = run_virtual(main, backend="trio")
    assert result.ok
    assert results(agent) == [("c1.1.1", "ok")]


@pytest.mark.parametrize("how", SELF)
@pytest.mark.parametrize("hook", ["agent_request", "step_result", "tools_guard", "turn_continuation", "request_error"])
def test_C7_a_hook_that_cancels_its_own_task_is_a_failing_hook(scripted, how, hook):
    """As any fault of that hook; the agent runs the next turn (case X06)."""
    body = SELF[how]

    async def bad(agent: Any) -> None:
        await body()

    first = [error("SERVER")] if hook == "request_error" else []
    model = scripted(*first, *[call("nap", {"seconds": 1})] * (hook != "agent_request"), forever([wait(1), text("ok")]))

    async def main() -> Any:
        async with Agent(model, tools=[nap], plugins=[plugin("acme", **{hook: bad})]) as agent:
            result = await agent.run("go")
            balanced(agent)
            agent.harness.plugins.unregister("acme")
            assert (await agent.run("on")).ok
            return agent, result

    agent, result = run_asyncio(main)
    assert result.reason.kind in ("completed", "error"), result.reason
    assert {f.plugin for f in of(agent, "plugin/fault")} == {"acme"}
    if hook in ("agent_request", "step_result", "turn_continuation"):
        assert (result.reason.error, result.reason.plugin) == ("plugin", "acme")
    elif hook == "tools_guard":
        assert results(agent) == [("c1.1.1", "REFUSED_BY_FAULT")]


@pytest.mark.parametrize("how", SELF)
def test_C7_a_provider_that_cancels_its_own_task_is_a_failing_provider(scripted, how):
    """Turn error, kind generate or stream; never `cancelled`, never a leak."""
    body = SELF[how]
    model = scripted([wait(body), text("said")], [wait(1), text("ok")])

    async def main() -> Any:
        async with Agent(model) as agent:
            result = await agent.run("go")
            balanced(agent)
            assert (await agent.run("on")).ok
            return agent, result

    agent, result = run_asyncio(main)
    assert result.reason.kind == ("completed" if how.endswith("returns") else "error"), result.reason
    assert {f.plugin for f in of(agent, "plugin/fault")} == {"scripted"}


# --- C10 ----------------------------------------------------------------------------------------------------


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


def test_C6_streams_are_closed_wherever_a_turn_ends(run3, scripted):
    """Opened = closed: cancelled, failed, torn, completed, and one never started."""
    model = scripted(hang(), error("SERVER"), [text("x"), error("SERVER")], "ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await spin(lambda: of(agent, "request/start"))
            agent.cancel()
            await receipt.result()
            for _ in range(3):
                await agent.run("on")
            return reasons(agent)

    assert run3(main) == ["cancelled", "error", "error", "completed"]
    assert model.opened == model.closed == 4


def test_C1_types_of_a_cancelled_turn(run3, scripted):
    """The whole picture once: what a cancel in a tool leaves in the log."""
    model = scripted([text("I"), call("nap")])

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            receipt = agent.send("go")
            await spin(lambda: of(agent, "tool/start"))
            agent.cancel()
            await receipt.result()
            return types(agent)

    assert run3(main) == [
        *("turn/start", "user/message", "step/start", "request/start", "request/end", "assistant/message"),
        *("tool/call", "tool/result", "step/end", "turn/end"),
    ]


EVENTS = (
    "inbox/accepted turn/start user/message step/start prompt/part request/header request/start assistant/thinking"
    " request/end assistant/message tool/call tool/start tool/end tool/result decision step/end turn/end"
)


@pytest.mark.parametrize("suspends", [True, False])
@pytest.mark.parametrize("kind", EVENTS.split())
def test_C1_cancel_from_an_observer_of_each_event(run3, scripted, kind, suspends):
    """Whatever was just logged: balanced, cancelled if a turn was open or owed, and the agent goes on."""

    async def pass_by() -> None:
        if suspends:
            await anyio.sleep(0)

    @tool
    async def brief(n: int) -> int:
        """Return."""
        await pass_by()
        return n

    async def main() -> Any:
        asked = [thinking("hm"), wait(pass_by), call("brief", {"n": 1}), call("add", {"a": 1, "b": 1})]
        model = scripted(asked, forever([wait(pass_by), text("ok")]))
        votes = [Continue("more", "go on")]
        probe = plugin(turn_continuation=lambda: votes.pop() if votes else None)
        async with Agent(model, tools=[brief, add], plugins=[probe], system_prompt="be brief") as agent:
            done: list[bool] = []

            def observer(event: Any) -> None:
                if event.type == kind and not done:
                    done.append(True)
                    agent.cancel()

            agent.session.observe(observer)
            receipt = agent.send("go")
            result = await receipt.result()
            balanced(agent)
            assert done or kind == "tool/end"  # nothing has to finish before an earlier sibling
            assert (await agent.run("on")).ok
            return result

    reason = run3(main).reason
    if kind not in ("inbox/accepted", "turn/end", "tool/end"):
        assert reason.kind == "cancelled"


def test_C4_a_cancel_from_the_observer_of_the_status(run3, scripted):
    """`running` is told before the turn: its input is in a cancelled turn; `idle` arms nothing."""
    model = scripted("never", "on")

    async def main() -> Any:
        box: list[Any] = []
        probe = plugin(agent_status=lambda status: box[0].cancel() if box and status in words else None)
        words = ["running"]
        async with Agent(model, plugins=[probe]) as agent:
            box.append(agent)
            first = agent.send("go")
            words[:] = ["idle"]
            reason = (await first.result()).reason
            await agent.idle()
            second = await agent.run("on")
            return reason, second

    reason, second = run3(main)
    assert reason.kind == "cancelled"
    assert second.ok


def test_I1_a_send_from_the_observer_of_idle_begins_the_next_turn(run3, scripted):
    """One driver at a time, and nothing is left lying."""
    model = scripted("one", "two", "three")

    async def main() -> Any:
        box: list[Any] = []
        words = ["again", "and again"]
        probe = plugin(agent_status=lambda status: box[0].send(words.pop(0)) if status == "idle" and words else None)
        async with Agent(model, plugins=[probe]) as agent:
            box.append(agent)
            await agent.run("go")
            await spin(lambda: len(of(agent, "turn/end")) == 3)
            await agent.idle()
            return agent

    agent = run3(main)
    assert said(agent) == ["go", "again", "and again"]
    assert reasons(agent) == ["completed"] * 3
