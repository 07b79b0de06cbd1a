"""Tools through the real loop: threads, timeouts, late results, caps, and pages of what was cut (X2-X5, L9, C2)."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein import Agent, Outcome, ToolContext, ToolError, hookimpl, tool
from checkrein.calls import error_outcome
from checkrein.memory_store import MemoryStore
from checkrein.messages import content_text
from checkrein.testing import ScriptedModel
from checkrein.testing.scripted import call
from checkrein_files import Plugin as Files


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return lambda fn: anyio.run(fn, backend=request.param)


def results(turn: Any) -> list[Any]:
    """The results in the model's order, each with its content: that of a `tool/end` if it came before its turn (X1)."""
    ends = {event.seq: event for event in turn.events if event.type == "tool/end"}
    return [ends.get(event.end, event) for event in turn.events if event.type == "tool/result"]


def words(event: Any) -> str:
    return content_text(event.content)


def test_X2_errors_of_one_call_leave_the_others_their_results(run: Any) -> None:
    @tool(read_only=True)
    def good(a: int) -> int:
        return a

    @tool
    def bad() -> None:
        raise ToolError("no such row", code="NO_ROW")

    @tool
    def worse() -> None:
        raise SystemExit(3)

    @tool(read_only=True)
    def odd() -> object:
        return object()

    @tool(read_only=True)
    async def surrogate() -> str:
        return "a\ud800b"

    async def main() -> Any:
        calls = [call("good", {"a": 1}), call("bad"), call("good", '{"a":"x"}'), call("worse"), call("odd")]
        model = ScriptedModel([*calls, call("surrogate"), call("missing")], "done")
        async with Agent(model, tools=[good, bad, worse, odd, surrogate]) as agent:
            return await agent.run("go")

    turn = run(main)
    assert turn.reason.kind == "completed"
    codes = [event.error.code if event.error else words(event) for event in results(turn)]
    assert codes == ["1", "NO_ROW", "INVALID_ARGUMENTS", "TOOL_ERROR", "TOOL_ERROR", "a\ufffdb", "UNKNOWN_TOOL"]
    assert results(turn)[3].error.name == "SystemExit"
    assert "call again" in words(results(turn)[2])


def test_case_T04_sync_tools_run_in_threads_side_by_side(run: Any) -> None:
    barrier = threading.Barrier(3, timeout=10)
    threads: set[str] = set()

    @tool
    def meet() -> str:
        barrier.wait()
        threads.add(threading.current_thread().name)
        return "met"

    async def main() -> Any:
        async with Agent(ScriptedModel([call("meet"), call("meet"), call("meet")], "done"), tools=[meet]) as agent:
            return await agent.run("go")

    assert [words(event) for event in results(run(main))] == ["met"] * 3
    assert threading.current_thread().name not in threads


def test_X3_X4_a_thread_past_its_timeout_is_left_and_told_later(run: Any) -> None:
    go = threading.Event()
    noticed: list[bool] = []

    @tool(timeout_s=0.05)
    def slow(context: ToolContext) -> str:
        go.wait(10)
        noticed.append(context.cancelled())
        return "late"

    async def main() -> Any:
        async with Agent(ScriptedModel(call("slow"), "done"), tools=[slow]) as agent:
            turn = await agent.run("go")
            assert [entry.label for entry in agent.harness.threads.given_up]
            go.set()
            with anyio.fail_after(10):
                while not any(event.type == "tool/late" for event in agent.session.events):
                    await anyio.sleep(0.001)
            assert agent.harness.threads.given_up == []
            return turn

    turn = run(main)
    assert turn.reason.kind == "completed" and results(turn)[0].error.code == "TIMEOUT"
    assert "may have run" in words(results(turn)[0]) and noticed == [True]


def test_X3_closing_never_waits_for_a_thread(run: Any) -> None:
    go = threading.Event()
    began = threading.Event()

    @tool
    def stuck() -> None:
        began.set()
        go.wait(20)

    async def main() -> None:
        async with Agent(ScriptedModel(call("stuck"), "done"), tools=[stuck]) as agent:
            agent.send("go")
            while not began.is_set():
                await anyio.sleep(0.001)

    start = time.monotonic()
    run(main)
    go.set()
    assert time.monotonic() - start < 8


def test_X5_the_model_pages_through_what_was_cut(run: Any, tmp_path: Path) -> None:
    whole = "".join(f"row {n}\n" for n in range(40_000))

    @tool(read_only=True)
    def dump() -> str:
        return whole

    def cut_at(text: str) -> dict[str, Any]:
        output_id = text.split('read_output(output_id="')[1].split('"')[0]
        return {"output_id": output_id, "offset": int(text.split("offset=")[1].split(")")[0])}

    async def main() -> tuple[str, str]:
        model = ScriptedModel(call("dump"), "ok")
        async with Agent(model, tools=[dump], plugins=["persistence"], store=MemoryStore()) as agent:
            first = words(results(await agent.run("go"))[0])
            read = next(item for item in Files().register_tools(agent.harness) if item.name == "read_output")
            context = ToolContext(agent, agent.session, "c", 1, tmp_path)
            return first, read.invoke(context, read.validate(cut_at(first)))

    first, page = run(main)
    assert len(first.encode()) <= 65_536 and whole.startswith(first.split("\n[... ")[0])
    body = page.split("\n", 1)[1]
    assert whole.split(first.split("\n[... ")[0])[1].startswith(body) and len(body) > 15_000


def test_L9_an_answer_of_a_plugin_is_checked_as_a_tools_is(run: Any) -> None:
    answers = [
        Outcome.text("a\ud800"),
        error_outcome("MINE", "no \udfff"),
        Outcome.of([]),
        Outcome.text("x", value=object()),
    ]

    class Answers:
        @hookimpl
        async def tools_execute(self, agent: Any, call: Any, proceed: Any) -> Outcome:
            return answers[call.arguments["n"]]

    @tool
    def fn(n: int) -> None: ...

    async def main() -> Any:
        model = ScriptedModel([call("fn", {"n": n}) for n in range(4)], "done")
        async with Agent(model, tools=[fn], plugins=[Answers]) as agent:
            return await agent.run("go")

    turn = run(main)
    assert turn.reason.kind == "completed"
    assert [words(event)[:5] for event in results(turn)[:2]] == ["a\ufffd", "no \ufffd"]
    assert len(results(turn)) == 4 and results(turn)[3].is_error
