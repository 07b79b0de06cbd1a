"""X1-X8: how the calls of a step run, with the real loop under virtual time."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import anyio
import pytest

import checkrein_loop.execute as execute_module
from checkrein import Agent, Harness, hookimpl, tool
from checkrein import events as ev
from checkrein.agents import AgentSpec
from checkrein.calls import Outcome
from checkrein.config.types import HarnessConfig, LimitsConfig
from checkrein.live import ToolProgress
from checkrein.memory_store import MemoryStore
from checkrein.messages import MediaBlock, TextBlock, ToolMessage, content_text
from checkrein.testing import ScriptedModel, call
from checkrein.tools import ToolContext


def of(events: Any, kind: type) -> list[Any]:
    return [event for event in events if type(event) is kind]


def codes(events: Any) -> list[tuple[str, str]]:
    """Call id and error code (or `ok`) of every result, in order."""
    return [(e.call_id, e.error.code if e.error is not None else "ok") for e in of(events, ev.ToolResulted)]


def text_of(event: Any) -> str:
    return content_text(event.content)


class Meter:
    """Counts who runs at once."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.most = 0
        self.spans: dict[str, tuple[float, float]] = {}
        self.together: list[set[str]] = []

    async def run(self, name: str, seconds: float) -> None:
        self.now.append(name)
        self.most = max(self.most, len(self.now))
        self.together.append(set(self.now))
        begin = anyio.current_time()
        await anyio.sleep(seconds)
        self.spans[name] = (begin, anyio.current_time())
        self.now.remove(name)

    def tools(self) -> list[Any]:
        @tool(read_only=True)
        async def nap(name: str, seconds: float = 1.0) -> str:
            """Sleep."""
            await self.run(name, seconds)
            return name

        @tool(exclusive=True)
        async def alone(name: str, seconds: float = 1.0) -> str:
            """Sleep alone."""
            await self.run(name, seconds)
            return name

        return [nap, alone]


def nap(name: str, seconds: float = 1.0) -> Any:
    return call("nap", {"name": name, "seconds": seconds})


def alone(name: str) -> Any:
    return call("alone", {"name": name})


def play(run: Any, *turns: Any, tools: Any, plugins: Any = (), act: Any = None, **options: Any) -> Any:
    """Run one turn; returns its result, the events, and how long it took in virtual seconds."""

    async def main() -> Any:
        async with Agent(ScriptedModel(*turns), tools=tools, plugins=plugins, **options) as agent:
            begin = anyio.current_time()
            result = await (act(agent) if act is not None else agent.run("go"))
            took = anyio.current_time() - begin
            await agent.idle()
            return result, list(agent.session.events), took

    return run(main)


# --- X1: the pool -----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 16])
def test_X1_at_most_so_many_calls_at_once(run, limit):
    meter = Meter()
    calls = [nap(f"n{i}") for i in range(6)]
    result, events, took = play(run, calls, "done", tools=meter.tools(), max_parallel_tool_calls=limit)
    assert result.ok
    assert meter.most == min(limit, 6)
    assert took == pytest.approx(-(-6 // min(limit, 6)), abs=0.01)
    assert [text for _, text in codes(events)] == ["ok"] * 6


def test_X1_the_default_is_four(run):
    meter = Meter()
    play(run, [nap(f"n{i}") for i in range(9)], "done", tools=meter.tools())
    assert meter.most == 4


def test_X1_less_than_one_still_runs_them_one_by_one(run):
    meter = Meter()
    result, _, _ = play(run, [nap("a"), nap("b")], "done", tools=meter.tools(), max_parallel_tool_calls=0)
    assert result.ok and meter.most == 1


def test_X1_the_pool_rolls_a_slow_call_keeps_one_place_only(run):
    meter = Meter()
    calls = [nap("slow", 5), *[nap(f"n{i}") for i in range(5)]]
    _, _, took = play(run, calls, "done", tools=meter.tools(), max_parallel_tool_calls=2)
    assert took == pytest.approx(5, abs=0.01)


def test_X1_an_exclusive_tool_runs_alone_in_its_place(run):
    meter = Meter()
    calls = [nap("a"), nap("b"), alone("x"), nap("c"), alone("y"), alone("z"), nap("d")]
    result, events, _ = play(run, calls, "done", tools=meter.tools())
    assert result.ok
    for name in "xyz":
        assert [names for names in meter.together if name in names] == [{name}]
    end = {name: span[1] for name, span in meter.spans.items()}
    begin = {name: span[0] for name, span in meter.spans.items()}
    assert max(end["a"], end["b"]) <= begin["x"] <= end["x"] <= begin["c"] <= end["c"] <= begin["y"] <= begin["z"]
    assert [call_id for call_id, _ in codes(events)] == [f"c1.1.{n}" for n in range(1, 8)]


def test_X1_what_finishes_early_is_logged_at_once_and_answered_in_order(run):
    meter = Meter()
    _, events, _ = play(run, [nap("first", 3), nap("second", 1), nap("third", 2)], "done", tools=meter.tools())
    told = [
        (type(e).__name__, e.call_id, getattr(e, "end", None))
        for e in events
        if type(e) in (ev.ToolEnded, ev.ToolResulted)
    ]
    second, third = (e.seq for e in of(events, ev.ToolEnded))
    assert told == [
        ("ToolEnded", "c1.1.2", None),
        ("ToolEnded", "c1.1.3", None),
        ("ToolResulted", "c1.1.1", None),
        ("ToolResulted", "c1.1.2", second),
        ("ToolResulted", "c1.1.3", third),
    ]
    assert [e.content is None for e in of(events, ev.ToolResulted)] == [False, True, True]


def test_X1_all_calls_are_logged_before_the_first_starts(run):
    meter = Meter()
    _, events, _ = play(run, [nap("a"), nap("b")], "done", tools=meter.tools())
    kinds = [e.type for e in events if e.type.startswith("tool/")]
    assert kinds[:3] == ["tool/call", "tool/call", "tool/start"]


def test_X1_the_model_gets_the_results_in_its_own_order(run):
    meter = Meter()
    model = ScriptedModel([nap("a", 3), nap("b", 2), nap("c", 1)], "done")

    async def main() -> None:
        async with Agent(model, tools=meter.tools()) as agent:
            await agent.run("go")

    run(main)
    messages = [m for m in model.requests[1].messages if type(m) is ToolMessage]
    assert [content_text(m.content) for m in messages] == ["a", "b", "c"]


def test_X1_a_seed_never_changes_the_order_of_results(seeds):
    from checkrein.testing import run_seeded

    async def main() -> Any:
        meter = Meter()
        calls = [nap(f"n{i}", 1) for i in range(5)]
        async with Agent(ScriptedModel(calls, "done"), tools=meter.tools(), max_parallel_tool_calls=3) as agent:
            await agent.run("go")
            return [call_id for call_id, _ in codes(agent.session.events)]

    for seed in seeds:
        assert run_seeded(main, seed=seed) == [f"c1.1.{n}" for n in range(1, 6)]


# --- X2: errors --------------------------------------------------------------------------------------


def raising(exc: BaseException) -> Any:
    @tool(read_only=True)
    async def bad() -> None:
        """Fail."""
        raise exc

    return bad


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("no"),
        SystemExit(3),
        GeneratorExit(),
        ExceptionGroup("many", [ValueError("a"), KeyError("b")]),
        BaseExceptionGroup("many", [SystemExit(1), GeneratorExit()]),
        StopAsyncIteration(),
        MemoryError(),
        RecursionError(),
        type("Odd", (BaseException,), {})("odd"),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_X2_any_exception_is_an_error_result_and_siblings_keep_theirs(run, exc):
    meter = Meter()
    result, events, _ = play(run, [nap("a"), call("bad"), nap("b", 2)], "done", tools=[*meter.tools(), raising(exc)])
    assert result.ok
    assert codes(events) == [("c1.1.1", "ok"), ("c1.1.2", "TOOL_ERROR"), ("c1.1.3", "ok")]
    failed = next(e for e in (*of(events, ev.ToolEnded), *of(events, ev.ToolResulted)) if e.call_id == "c1.1.2")
    assert failed.error.name == type(exc).__name__ and text_of(failed)


def test_case_T03_a_tool_that_cancels_itself_keeps_its_siblings_results(run):
    @tool
    async def task(n: int) -> str:
        """The child of one is cancelled."""
        await anyio.sleep(n)
        if n == 2:
            raise anyio.get_cancelled_exc_class()()
        return f"task {n}"

    calls = [call("task", {"n": n}) for n in (1, 2, 3)]
    if run.backend == "trio":
        pytest.skip("trio's Cancelled cannot be made by hand")
    result, events, _ = play(run, calls, "done", tools=[task])
    assert result.ok
    assert codes(events) == [("c1.1.1", "ok"), ("c1.1.2", "OUTCOME_UNKNOWN"), ("c1.1.3", "ok")]
    assert [e.plugin for e in of(events, ev.PluginFaulted)] == ["task"]


def test_case_T02_no_tool_outlives_its_turn(run):
    """A failing sibling neither stops the others nor leaves them running behind the turn's end."""
    meter = Meter()
    written: list[int] = []

    @tool
    async def shell() -> str:
        """Write a file, later."""
        await anyio.sleep(1)
        written.append(1)
        return "written"

    async def act(agent: Any) -> Any:
        result = await agent.run("go")
        before = len(written)
        await anyio.sleep(10)
        assert len(written) == before
        return result

    result, events, _ = play(
        run, [call("bad"), call("shell")], "done", tools=[raising(ValueError("x")), shell, *meter.tools()], act=act
    )
    assert result.ok and written == [1]
    end = next(e.seq for e in events if type(e) is ev.TurnEnd)
    assert all(e.seq < end for e in of(events, ev.ToolResulted))


def test_C10_a_keyboard_interrupt_of_a_tool_closes_the_turn_and_reaches_the_waiter(run):
    meter = Meter()
    seen: list[str] = []

    async def act(agent: Any) -> Any:
        with pytest.raises(KeyboardInterrupt):
            await agent.run("go")
        seen.extend(e.type for e in agent.session.events)
        return of(agent.session.events, ev.TurnEnd)[0]

    end, events, _ = play(run, [nap("a"), call("bad")], tools=[*meter.tools(), raising(KeyboardInterrupt())], act=act)
    assert (end.reason.kind, end.reason.cause.kind) == ("cancelled", "signal")
    assert codes(events) == [("c1.1.1", "OUTCOME_UNKNOWN"), ("c1.1.2", "OUTCOME_UNKNOWN")]


# --- X3: threads --------------------------------------------------------------------------------------


def test_case_T04_the_loop_stays_alive_while_sync_tools_block(run):
    """A heartbeat ticks while two threads wait for each other, and a steer comes in meanwhile."""
    go = threading.Event()
    beats: list[int] = []

    @tool
    def slow() -> str:
        """Block."""
        assert go.wait(20)
        return str(threading.get_ident())

    async def act(agent: Any) -> Any:
        receipt = agent.send("go")
        while not any(type(e) is ev.ToolStarted for e in agent.session.events):
            await anyio.sleep(0)
        for _ in range(20):
            await anyio.sleep(0)
            beats.append(1)
        agent.steer("hurry")
        go.set()
        return await receipt.result()

    result, events, _ = play(run, [call("slow"), call("slow")], "done", tools=[slow], act=act)
    assert result.ok and len(beats) == 20
    names = {text_of(e) for e in (*of(events, ev.ToolEnded), *of(events, ev.ToolResulted)) if e.content}
    assert names and str(threading.get_ident()) not in names
    assert of(events, ev.SteeringInput)


def test_case_T07_sync_tools_honour_the_limit(run):
    lock = threading.Lock()
    running: list[int] = [0, 0]
    barrier = threading.Barrier(3)

    @tool
    def sync(meet: bool) -> None:
        """Count who is here."""
        with lock:
            running[0] += 1
            running[1] = max(running)
        if meet:
            barrier.wait(10)
        with lock:
            running[0] -= 1

    play(run, [call("sync", {"meet": True})] * 3, "done", tools=[sync], max_parallel_tool_calls=3)
    assert running == [0, 3]
    running[:] = [0, 0]
    play(run, [call("sync", {"meet": False})] * 3, "done", tools=[sync], max_parallel_tool_calls=1)
    assert running == [0, 1]


def test_X3_context_variables_reach_the_thread(run):
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    class Sets:
        @hookimpl
        async def tools_execute(self, call: Any, proceed: Any) -> Any:
            variable.set("set by a plugin")
            return await proceed(call)

    @tool(read_only=True)
    def reads() -> str:
        """Read it."""
        return variable.get()

    _, events, _ = play(run, call("reads"), "done", tools=[reads], plugins=[Sets()])
    assert text_of(of(events, ev.ToolResulted)[0]) == "set by a plugin"


def test_X3_a_full_pool_answers_with_an_error_and_the_turn_goes_on(run):
    """One thread, kept by a call that was given up: the next call waits for it until its own timeout."""
    go = threading.Event()

    @tool(timeout_s=1)
    def stuck() -> None:
        """Block."""
        go.wait(20)

    async def main() -> Any:
        config = HarnessConfig(limits=LimitsConfig(tool_threads=1))
        harness = Harness(
            tools=[stuck],
            providers=[ScriptedModel(call("stuck"), call("stuck"), "done")],
            config=config,
            found=(),
        )
        harness.specs = [AgentSpec(model="scripted:x")]
        async with harness:
            agent = harness.agents["main"]
            from checkrein.testing import hold

            with hold():
                result = await agent.run("go")
            assert len(harness.threads.given_up) == 1
            go.set()
            return result, list(agent.session.events)

    result, events = run(main)
    assert result.ok
    assert [code for _, code in codes(events)] == ["TIMEOUT", "TIMEOUT"]


def test_X3_an_async_tool_that_holds_the_loop_is_reported(run, monkeypatch):
    monkeypatch.setattr(execute_module, "BLOCKED_S", -1.0)  # every step of the tool counts as too long

    @tool(read_only=True)
    async def blocks() -> str:
        """Compute for long."""
        return "ok"

    result, events, _ = play(run, call("blocks"), "done", tools=[blocks])
    assert result.ok and codes(events) == [("c1.1.1", "ok")]
    fault = of(events, ev.PluginFaulted)[0]
    assert (fault.plugin, fault.hook) == ("blocks", "tool") and "held the event loop" in fault.error.message


def test_X3_an_async_tool_that_waits_is_not_reported(run):
    meter = Meter()
    _, events, _ = play(run, nap("a", 3600), "done", tools=meter.tools())
    assert not of(events, ev.PluginFaulted)


# --- X4: timeouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("effect", "may"), [("read_only", False), ("idempotent", True), ("effectful", True)])
def test_X4_a_timeout_is_a_result_that_says_what_may_have_run(run, effect, may):
    options = {} if effect == "effectful" else {effect: True}

    @tool(timeout_s=5, **options)
    async def slow() -> None:
        """Sleep."""
        await anyio.sleep(100)

    result, events, took = play(run, call("slow"), "done", tools=[slow])
    assert result.ok and took == pytest.approx(5, abs=0.01)
    assert codes(events) == [("c1.1.1", "TIMEOUT")]
    assert ("may have run" in text_of(of(events, ev.ToolResulted)[0])) is may


def test_X4_a_timeout_leaves_the_siblings(run):
    meter = Meter()

    @tool(timeout_s=1)
    async def slow() -> None:
        """Sleep."""
        await anyio.sleep(100)

    _, events, _ = play(run, [call("slow"), nap("a", 3)], "done", tools=[slow, *meter.tools()])
    assert codes(events) == [("c1.1.1", "TIMEOUT"), ("c1.1.2", "ok")]


def test_X4_a_tool_may_have_timeouts_of_its_own(run):
    @tool(timeout_s=50, read_only=True)
    async def own() -> str:
        """Give up early."""
        with anyio.move_on_after(1):
            await anyio.sleep(10)
        with pytest.raises(TimeoutError):
            with anyio.fail_after(1):
                await anyio.sleep(10)
        return "moved on"

    _, events, took = play(run, call("own"), "done", tools=[own])
    assert codes(events) == [("c1.1.1", "ok")] and took == pytest.approx(2, abs=0.01)


def test_X4_the_clock_of_a_timeout_starts_with_the_tool_not_with_its_hooks(run):
    class Slow:
        @hookimpl
        async def tools_execute(self, call: Any, proceed: Any) -> Any:
            await anyio.sleep(30)
            return await proceed(call)

    @tool(timeout_s=5, read_only=True)
    async def quick() -> str:
        """Sleep."""
        await anyio.sleep(4)
        return "ok"

    _, events, _ = play(run, call("quick"), "done", tools=[quick], plugins=[Slow()])
    assert codes(events) == [("c1.1.1", "ok")]


# --- X5: caps -----------------------------------------------------------------------------------------


def test_X5_long_output_is_capped_and_the_whole_is_in_a_blob(run):
    whole = "".join(f"{n:07d}\n" for n in range(50_000))

    @tool(read_only=True)
    async def dump() -> str:
        """Dump."""
        return whole

    store = MemoryStore()

    class Keeps:
        @hookimpl
        def session_flush(self, session: Any, gate: str) -> None:
            if session.writer is not None and session.writer.taken != len(session.lines):
                session.writer.append(session.lines[session.writer.taken :])

    async def main() -> Any:
        async with Agent(ScriptedModel(call("dump"), "done"), tools=[dump], plugins=[Keeps()], store=store) as agent:
            await agent.run("go")
            return agent.session.id, list(agent.session.events)

    session_id, events = run(main)
    shown = text_of(of(events, ev.ToolResulted)[0])
    assert len(shown.encode()) <= 65_536
    assert shown.startswith("0000000\n") and shown.endswith("0049999\n")
    import re

    (sha,) = set(re.findall(r"[0-9a-f]{64}", shown))
    assert store.get_blob(session_id, sha).decode() == whole


def test_X5_binary_output_is_described_not_dumped(run):
    @tool(read_only=True)
    async def image() -> bytes:
        """A picture."""
        return b"\x89PNG\r\n\x1a\n" + bytes(1000)

    _, events, _ = play(run, call("image"), "done", tools=[image])
    assert "PNG" in text_of(of(events, ev.ToolResulted)[0]) and len(text_of(of(events, ev.ToolResulted)[0])) < 200


# --- X6: effects --------------------------------------------------------------------------------------


class Gates:
    """Notes which gate was passed after which event."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    @hookimpl
    def session_flush(self, session: Any, gate: str) -> None:
        self.seen.append((gate, session.events[-1].type))


@pytest.mark.parametrize(("effect", "flushed"), [("read_only", 0), ("idempotent", 1), ("effectful", 1)])
def test_X6_the_start_is_flushed_before_what_is_not_read_only(run, effect, flushed):
    gates = Gates()
    options = {} if effect == "effectful" else {effect: True}
    order: list[int] = []

    @tool(**options)
    async def act() -> None:
        """Act."""
        order.append(sum(gate == "call" for gate, _ in gates.seen))

    _, events, _ = play(run, call("act"), "done", tools=[act], plugins=[gates])
    assert order == [flushed]
    assert [what for gate, what in gates.seen if gate == "call"] == ["tool/start"] * flushed
    assert of(events, ev.ToolStarted)[0].effect == effect


def test_X6_a_closed_gate_starts_nothing(run):
    ran: list[int] = []

    class Closed:
        @hookimpl
        def session_flush(self, gate: str) -> None:
            if gate == "call":
                raise OSError("disk full")

    @tool
    async def act() -> None:
        """Act."""
        ran.append(1)

    result, events, _ = play(run, call("act"), "done", tools=[act], plugins=[Closed()])
    assert result.ok and not ran
    assert codes(events) == [("c1.1.1", "NOT_STARTED")]


def test_case_T06_a_call_id_is_executed_at_most_once(run):
    count: dict[str, int] = {}

    @tool
    async def render(context: ToolContext, n: int) -> str:
        """Render."""
        count[context.call_id] = count.get(context.call_id, 0) + 1
        await anyio.sleep(n)
        return f"rendered {n}"

    class Again:
        """Tries every call a second time."""

        @hookimpl
        async def tools_execute(self, call: Any, proceed: Any) -> Any:
            first = await proceed(call)
            try:
                await proceed(call)
            except Exception as exc:
                assert type(exc).__name__ == "AlreadyBegun"
            return first

    calls = [call("render", {"n": n}) for n in (1, 2, 3)]
    result, events, _ = play(run, calls, "done", tools=[render], plugins=[Again()])
    assert result.ok and count == {"c1.1.1": 1, "c1.1.2": 1, "c1.1.3": 1}
    assert [e.attempt for e in of(events, ev.ToolStarted)] == [1, 1, 1]


def test_X6_an_idempotent_call_may_be_run_again_as_a_new_attempt(run):
    attempts: list[int] = []

    @tool(idempotent=True)
    async def put(context: ToolContext) -> str:
        """Put."""
        attempts.append(context.attempt)
        if context.attempt == 1:
            raise OSError("try again")
        return "put"

    class Again:
        @hookimpl
        async def tools_execute(self, call: Any, proceed: Any) -> Any:
            first = await proceed(call)
            return await proceed(call) if first.is_error else first

    _, events, _ = play(run, call("put"), "done", tools=[put], plugins=[Again()])
    assert attempts == [1, 2] and [e.attempt for e in of(events, ev.ToolStarted)] == [1, 2]
    assert codes(events) == [("c1.1.1", "ok")]


# --- X7, X8 -------------------------------------------------------------------------------------------


def test_case_T08_what_a_tool_returns_besides_text_stays_with_its_result(run):
    meter = Meter()

    @tool(read_only=True)
    async def picture() -> list[Any]:
        """Text and a picture."""
        return [TextBlock("a cat"), MediaBlock("image/png", data="aGk=")]

    model = ScriptedModel([call("picture"), nap("b", 2)], "done")

    async def main() -> None:
        async with Agent(model, tools=[picture, *meter.tools()]) as agent:
            (await agent.run("go")).check()

    run(main)
    tail = model.requests[1].messages[-2:]
    assert [type(m) for m in tail] == [ToolMessage, ToolMessage]
    assert [type(block).__name__ for block in tail[0].content] == ["TextBlock", "MediaBlock"]


def test_X8_a_tool_context_says_where_a_tool_runs(run, tmp_path):
    seen: dict[str, Any] = {}

    @tool(timeout_s=30)
    async def look(context: ToolContext, n: int = 1) -> None:
        """Look."""
        seen.update({name: getattr(context, name) for name in ("agent", "session", "call_id", "attempt", "workspace")})
        seen["deadline"] = context.deadline
        seen["cancelled"] = context.cancelled()
        context.progress("half\x00way\ud800")

    async def act(agent: Any) -> Any:
        async with agent.stream("go") as turn:
            seen["live"] = [item async for item in turn]
            seen["me"] = agent
        return await turn.result()

    play(run, call("look"), "done", tools=[look], act=act, workspace=tmp_path)
    assert seen["agent"] is seen["me"] and seen["session"] is seen["me"].session
    assert (seen["call_id"], seen["attempt"], seen["workspace"], seen["cancelled"]) == ("c1.1.1", 1, tmp_path, False)
    assert isinstance(seen["deadline"], float)
    assert [item.text for item in seen["live"] if isinstance(item, ToolProgress)] == ["half\x00way\ufffd"]
    assert "context" not in look.parameters["properties"]


def test_X8_progress_from_a_thread_is_shown(run):
    @tool
    def works(context: ToolContext) -> str:
        """Work."""
        for n in range(3):
            context.progress(f"step {n}")
        return "worked"

    live: list[Any] = []

    async def act(agent: Any) -> Any:
        async with agent.stream("go") as turn:
            live.extend([item async for item in turn])
        return await turn.result()

    result, events, _ = play(run, call("works"), "done", tools=[works], act=act)
    assert result.ok
    assert [item.text for item in live if isinstance(item, ToolProgress)] == ["step 0", "step 1", "step 2"]
    assert not any("step 1" in str(event) for event in events)


def test_C2_cancelled_calls_are_answered_in_honest_words_and_finished_ones_keep_their_result(run):
    meter = Meter()

    async def act(agent: Any) -> Any:
        receipt = agent.send("go")
        await anyio.sleep(2)
        agent.cancel()
        return await receipt.result()

    calls = [nap("quick", 1), nap("slow", 9), nap("waits"), nap("never")]
    result, events, took = play(run, calls, tools=meter.tools(), act=act, max_parallel_tool_calls=1)
    assert result.reason.kind == "cancelled" and took == pytest.approx(2, abs=0.01)
    assert [code for _, code in codes(events)] == ["ok", "OUTCOME_UNKNOWN", "NOT_STARTED", "NOT_STARTED"]


def test_C2_a_finished_call_behind_an_open_one_keeps_its_result_when_cancelled(run):
    meter = Meter()

    async def act(agent: Any) -> Any:
        receipt = agent.send("go")
        await anyio.sleep(2)
        agent.cancel()
        return await receipt.result()

    _, events, _ = play(run, [nap("slow", 9), nap("quick", 1)], tools=meter.tools(), act=act)
    assert codes(events) == [("c1.1.1", "OUTCOME_UNKNOWN"), ("c1.1.2", "ok")]


def test_C1_a_cancel_is_heard_between_calls_that_never_suspend(run):
    ran: list[int] = []

    @tool
    async def quick(context: ToolContext, n: int) -> None:
        """Cancel at the second."""
        ran.append(n)
        if n == 2:
            context.agent.cancel()

    calls = [call("quick", {"n": n}) for n in range(1, 6)]
    result, events, _ = play(run, calls, "never", tools=[quick], max_parallel_tool_calls=1)
    assert result.reason.kind == "cancelled" and ran == [1, 2]
    assert [code for _, code in codes(events)] == ["ok", "ok", "NOT_STARTED", "NOT_STARTED", "NOT_STARTED"]


def test_outcomes_pass_through(run):
    @tool
    async def mine() -> Outcome:
        """An outcome of its own."""
        return Outcome.text("mine", value={"n": 1})

    _, events, _ = play(run, call("mine"), "done", tools=[mine])
    assert of(events, ev.ToolResulted)[0].value == {"n": 1}
