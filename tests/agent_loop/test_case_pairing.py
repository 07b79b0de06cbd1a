"""Public bug reports of other harnesses about calls and their results, acted out: none is ever without the other.

Each test is named by the report's id; its docstring says what went wrong there. docs/cases.md lists them all.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import Flush, Latch, add, house, nap, of, plugin, results, sent, unpaired

from checkrein import Agent, Source, tool
from checkrein.agents import Approver
from checkrein.decisions import Ask
from checkrein.events import ToolResulted
from checkrein.memory_store import MemoryStore
from checkrein.messages import AssistantMessage, TextBlock, ToolMessage
from checkrein.rules import apply
from checkrein.testing import call, forever, text, wait


def test_case_P01_a_result_that_cannot_be_stored_is_neither_lost_nor_made_again(run, scripted):
    """The write of a result failed and the state had moved on: a call without result on disk, for ever."""
    ran: list[int] = []

    @tool
    async def send_mail() -> str:
        """Send."""
        ran.append(1)
        return "sent"

    model = scripted(call("send_mail"), "done")
    store, flush = MemoryStore(), Flush()

    def fails_once(session: Any, gate: str) -> None:
        if gate == "request" and of_session(session, "tool/result") and not of_session(session, "plugin/fault"):
            raise OSError("disk full")

    async def main() -> Any:
        flush.fail = fails_once
        async with house(model, plugins=[flush], tools=[send_mail], store=store) as first:
            agent = first.agents["main"]
            broken = await agent.run("mail it")
            assert (broken.reason.kind, broken.reason.error) == ("error", "store")
            again = await agent.run("and?")
            session_id = agent.session.id
        stored = [bytes(line) for line in store.read(session_id).lines]
        assert stored == agent.session.lines
        return again

    assert run(main).text == "done"
    assert ran == [1]
    assert sent(model.requests[1]) == ["user: mail it", "assistant: ", "tool: sent", "user: and?"]


def of_session(session: Any, kind: str) -> list[Any]:
    """A session's events of one type."""
    return [event for event in session.events if event.type == kind]


def test_case_P02_a_cancelled_tool_leaves_a_pair(run3, scripted):
    """CancelledError is no Exception: the cancelled call had no result, every later request was refused."""
    model = scripted(call("slow_tool", {"query": "test"}), "hi yourself")
    begun: list[Latch] = []

    @tool
    async def slow_tool(query: str) -> str:
        """Wait for ever."""
        begun[0].open()
        await anyio.sleep_forever()
        return query

    async def main() -> Any:
        begun.append(Latch())
        async with Agent(model, tools=[slow_tool]) as agent:
            async with anyio.create_task_group() as group:
                group.start_soon(agent.run, "go")
                await begun[0].wait()
                group.cancel_scope.cancel()
            assert results(agent) == [("c1.1.1", "OUTCOME_UNKNOWN")]
            return await agent.run("hi")

    assert run3(main).ok
    assert unpaired(model.requests[1]) == []


def test_case_P03_a_refusal_is_a_result_like_any_other(run, scripted):
    """One of two parallel calls was rejected: its id had no result."""
    model = scripted([call("nap", {"seconds": 0}, id="c1"), call("add", {"a": 1, "b": 1}, id="c2")], "ok")

    class Person:
        async def decide(self, agent: Any, approval: Any) -> str:
            await anyio.sleep(5)  # the other call has finished
            return "denied"

    async def main() -> Any:
        guard = plugin(tools_guard=lambda call: Ask("sure?") if call.name == "nap" else None)
        async with Agent(model, tools=[nap, add], plugins=[guard]) as agent:
            agent.harness.provide(Approver, Person())
            result = await agent.run("go")
            return agent, result

    agent, result = run(main)
    assert result.ok
    assert results(agent) == [("c1.1.1", "DENIED"), ("c1.1.2", "ok")]
    assert unpaired(model.requests[1]) == []
    assert [m.is_error for m in model.requests[1].messages if isinstance(m, ToolMessage)] == [True, False]


def test_case_P04_cancelled_inside_the_arguments(run3, scripted):
    """A call that was still being streamed was kept, without a result."""
    reached: list[Latch] = []
    ran: list[str] = []

    @tool
    async def edit_file(path: str = "") -> str:
        """Edit."""
        ran.append(path)
        return "edited"

    async def main() -> Any:
        reached.append(Latch())

        async def stay() -> None:
            reached[0].open()
            await anyio.sleep_forever()

        model = scripted([text("editing"), call("edit_file", raw='{"path": "a'), wait(stay)], "ok")
        async with Agent(model, tools=[edit_file]) as agent:
            receipt = agent.send("go")
            await reached[0].wait()
            agent.cancel()
            await receipt.result()
            assert (await agent.run("continue")).ok
            return model

    model = run3(main)
    assert not ran
    assert sent(model.requests[1]) == ["user: go", "user: continue"]


def test_case_P05_no_unclosable_window_between_answer_and_first_result(run, scripted):
    """Cancelled behind the answer and before the first tool: `unprocessed tool calls`, for ever."""
    model = scripted([call("nap"), call("add", {"a": 1, "b": 1})], "ok")

    async def main() -> Any:
        box: list[Any] = []

        async def cancels(call: Any, proceed: Any) -> Any:
            box[0].cancel()
            await anyio.sleep(0)
            return await proceed(call)

        async with Agent(model, tools=[nap, add], plugins=[plugin(tools_execute=cancels)]) as agent:
            box.append(agent)
            first = await agent.run("go")
            agent.harness.plugins.unregister("probe")
            return agent, first, await agent.run("next")

    agent, first, second = run(main)
    assert (first.reason.kind, second.ok) == ("cancelled", True)
    assert results(agent) == [("c1.1.1", "NOT_STARTED"), ("c1.1.2", "NOT_STARTED")]
    assert unpaired(model.requests[1]) == []


def _log_without(run: Any, scripted: Any, calls: int, lost: set[str]) -> tuple[MemoryStore, str]:
    """A stored session whose first turn lost the results of some calls, as a broken writer leaves it."""
    store = MemoryStore()
    model = scripted([call("add", {"a": n, "b": n}) for n in range(calls)], "sum", "on")

    async def main() -> str:
        async with house(model, plugins=[Flush()], tools=[add], store=store) as first:
            agent = first.agents["main"]
            await agent.run("go")
            await agent.run("and on")
            return agent.session.id

    session_id = run(main)
    lines = store.read(session_id).lines
    kept = [line for line in lines if not (b'"tool/result"' in line and any(name.encode() in line for name in lost))]
    assert len(kept) == len(lines) - len(lost)
    broken = MemoryStore()
    broken.create(session_id, kept).close()
    return broken, session_id


@pytest.mark.checkrein_oracle_off(reason="the stored log is broken on purpose")
@pytest.mark.parametrize(
    ("calls", "lost"),
    [(2, {"c1.1.2"}), (2, {"c1.1.1", "c1.1.2"}), (9, {f"c1.1.{n}" for n in range(1, 10)})],
)
def test_case_P15_P18_a_stored_call_without_result_is_answered_next_to_it(run, scripted, calls, lost):
    """A long session with one lost result was refused at that message for ever."""
    store, session_id = _log_without(run, scripted, calls, lost)
    model = scripted("still usable")

    async def main() -> Any:
        async with house(model, plugins=[Flush()], tools=[add], store=store) as second:
            agent = await second.resume(session_id)
            return agent, await agent.run("hello?")

    agent, result = run(main)
    assert result.ok
    request = model.requests[0]
    assert unpaired(request) == []
    answers = [place for place, m in enumerate(request.messages) if isinstance(m, AssistantMessage) and m.calls]
    behind = request.messages[answers[0] + 1 : answers[0] + 1 + calls]
    assert [m.call_id for m in behind] == [f"c1.1.{n}" for n in range(1, calls + 1)]
    assert {m.call_id for m in behind if m.is_error} == lost
    assert of(agent, "session/repaired") or of(agent, "log/gap")  # and it is said


@pytest.mark.checkrein_oracle_off(reason="the stored log is broken on purpose")
def test_case_P11_a_strangers_result_in_the_middle_is_dropped(run, scripted):
    """A result without its call, in the middle, still reached the provider."""
    store, session_id = _log_without(run, scripted, 1, {"c1.1.1"})
    model = scripted("ok")

    async def main() -> Any:
        async with house(model, plugins=[Flush()], tools=[add], store=store) as second:
            agent = await second.resume(session_id)
            stranger = ToolResulted(
                *(10_000, 0), turn=9, step=9, call_id="c9.9.9", content=[TextBlock("zz")], is_error=False
            )
            apply(agent.session.state, stranger)  # what a damaged log may hold
            return await agent.run("on")

    assert run(main).ok
    assert "zz" not in repr(sent(model.requests[0]))
    assert unpaired(model.requests[0]) == []


@pytest.mark.checkrein_oracle_off(reason="sessions are cut where a kill can fall")
def test_case_P21_P20_killed_at_every_row_it_goes_on(run, scripted):
    """Killed in mid tool: a call without result on disk, a crash loop; or a finished call lost, and run again."""
    model = scripted([call("add", {"a": 1, "b": 1}), call("nap", {"seconds": 1})], "done")
    store = MemoryStore()

    async def record() -> Any:
        async with house(model, plugins=[Flush()], tools=[add, nap], store=store) as first:
            await first.agents["main"].run("go")
            return first.agents["main"].session

    session = run(record)
    for cut in range(2, len(session.lines) + 1):
        after = MemoryStore()
        after.create(session.id, session.lines[:cut]).close()
        again = scripted(forever("went on"))

        async def resume(again: Any = again, after: MemoryStore = after) -> Any:
            async with house(again, plugins=[Flush()], tools=[add, nap], store=after) as second:
                agent = await second.resume(session.id)
                before = len(agent.session.events)
                result = await agent.run("continue")
                return agent, result, before

        agent, result, _ = run(resume)
        assert result.ok, cut
        assert unpaired(again.requests[0]) == [], cut
        starts = [e.call_id for e in of(agent, "tool/start")]
        assert len(starts) == len(set(starts)), cut  # nothing began twice
        finished = [e.call_id for e in session.events[:cut] if e.type in ("tool/end", "tool/result")]
        ok = {call_id for call_id, code in results(agent) if code == "ok"}
        assert set(finished) <= ok, cut  # what had finished kept its result
        assert len(of(agent, "turn/start")) == len(of(agent, "turn/end"))


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("what", ["error", "group", "exit", "object", "protocol"])
def test_case_P23_every_way_a_tool_can_fail_is_a_result(run, scripted, what, calls):
    """A protocol error left the call unanswered; only a restart helped."""

    class McpError(BaseException):
        """What is no Exception."""

    @tool
    async def bad() -> Any:
        """Fail."""
        if what == "object":
            return {"self": object(), "nan": float("nan")}
        raise {
            "error": RuntimeError("x"),
            "group": BaseExceptionGroup("g", [SystemExit(), KeyError("k")]),
            "exit": SystemExit(2),
            "protocol": McpError("-32603"),
        }[what]

    model = scripted([call("bad"), *[call("add", {"a": 1, "b": 1})] * (calls - 1)], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[bad, add]) as agent:
            return agent, await agent.run("go")

    agent, result = run(main)
    assert result.ok
    assert [code == "ok" for _, code in results(agent)][1:] == [True] * (calls - 1)
    assert unpaired(model.requests[1]) == []


@pytest.mark.parametrize("kind", ["steer", "inject"])
def test_case_P19_T08_what_comes_during_a_batch_waits_behind_all_results(run, scripted, kind):
    """A message was spliced between a sibling's call and its result."""
    model = scripted([call("reveal"), call("nap", {"seconds": 5})], "ok")

    async def main() -> Any:
        box: list[Any] = []

        @tool
        async def reveal() -> str:
            """Reveal."""
            getattr(box[0], kind)("here are more tools", source=Source("plugin", name="reveal"))
            return "revealed"

        async with Agent(model, tools=[reveal, nap]) as agent:
            box.append(agent)
            return await agent.run("go")

    assert run(main).ok
    assert sent(model.requests[1])[2:] == ["tool: revealed", "tool: slept", "user: [from reveal] here are more tools"]
