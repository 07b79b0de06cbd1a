"""Public bug reports of other harnesses that concern the loop, acted out; docs/cases.md lists them all.

Each test is named by the report's id; its docstring says what went wrong there.
"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from loopkit import Flush, Latch, add, house, killed, nap, of, plugin, reasons, results, said, sent, types, unpaired

from checkrein import Agent, Source, tool
from checkrein.agents import Approver
from checkrein.decisions import Ask, Deny
from checkrein.events import ToolResulted
from checkrein.memory_store import MemoryStore
from checkrein.messages import AssistantMessage, TextBlock, ToolMessage, content_text
from checkrein.rules import apply
from checkrein.testing import call, forever, run_virtual, text, wait


async def until(holds: Any) -> None:
    """Pass the scheduler until something holds."""
    while not holds():
        await anyio.sleep(0.01)


# --- pairing --------------------------------------------------------------------------------------------------


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


# --- steering and queue -------------------------------------------------------------------------------------------


def test_case_Q02_steered_during_the_last_chunk(run, scripted):
    """Sent while the agent was finishing, it lay in the steering queue until the next input."""
    reached: list[Latch] = []
    release: list[Latch] = []

    async def main() -> Any:
        reached.append(Latch())
        release.append(Latch())

        async def last() -> None:
            reached[0].open()
            await release[0].wait()

        model = scripted([text("almost"), wait(last), text(" done")], "and that too")
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await reached[0].wait()
            steered = agent.steer("one more thing")
            release[0].open()
            result = await receipt.result()
            return agent, result, await steered.result(), model

    agent, result, steered, model = run(main)
    assert steered.ok and steered.turn == result.turn == 1
    assert sent(model.requests[1])[-1] == "user: one more thing"
    assert result.text == "and that too"
    assert not agent.pending


def test_case_Q02_steered_when_nothing_can_extend_the_turn_any_more(run, scripted):
    """In the observer of turn/end: it becomes the next turn."""
    model = scripted("one", "two")

    async def main() -> Any:
        async with Agent(model) as agent:
            done: list[bool] = []

            def late(event: Any) -> None:
                if event.type == "turn/end" and not done:
                    done.append(True)
                    agent.steer("late")

            agent.session.observe(late)
            await agent.run("go")
            await agent.idle()
            return agent

    agent = run(main)
    assert reasons(agent) == ["completed", "completed"]
    assert [(e.turn, e.mark) for e in of(agent, "user/message")] == [(1, None), (2, "steering")]


def test_case_Q03_steering_accepted_before_a_kill_is_delivered_once(run, scripted):
    """It existed in memory only: killed, the instruction was gone."""
    model = scripted(call("nap", {"seconds": 60}))
    store = MemoryStore()

    async def main() -> Any:
        async with house(model, plugins=[Flush()], tools=[nap], store=store) as first:
            agent = first.agents["main"]
            agent.send("build")
            await until(lambda: of(agent, "tool/start"))
            await agent.steer("merge and send").durable()
            left = killed(store, agent.session.id)
            agent.cancel(discard_pending=True)
        again = scripted("ok")
        async with house(again, plugins=[Flush()], tools=[nap], store=left) as second:
            agent = await second.resume(agent.session.id)
            assert [entry.content[0].text for entry in agent.pending] == ["merge and send"]
            await agent.run("continue")
            await agent.idle()
            return agent, again

    agent, again = run(main)
    everything = " ".join(sent(again.requests[-1]))
    assert everything.count("merge and send") == 1
    assert not agent.pending


def test_case_Q04_the_steer_is_in_the_next_request_not_what_was_queued(run, scripted):
    """The queued message was delivered instead of the steering."""
    model = scripted(call("nap", {"seconds": 5}), "ok", "and A")

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            agent.send("go")
            await anyio.sleep(1)
            agent.send("A")
            agent.steer("B")
            await agent.idle()

    run(main)
    assert sent(model.requests[1])[-1] == "user: B"
    assert sent(model.requests[2])[-1] == "user: A"


def test_case_Q07_one_way_of_delivery(run, scripted):
    """What came while busy was delivered live, and again as a block of queued messages."""
    model = scripted(call("nap", {"seconds": 5}), forever("ok"))

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            agent.send("go")
            await anyio.sleep(1)
            for act in (agent.send, agent.steer, agent.inject):
                act(f"by {act.__name__}")
            await agent.idle()
            await agent.run("last")
            return agent

    agent = run(main)
    seen = sent(model.requests[-1])
    for word in ("send", "steer", "inject"):
        assert sum(f"by {word}" in line for line in seen) == 1
    taken = [e.id for e in agent.session.events if e.type.endswith("/message") and getattr(e, "id", None)]
    assert sorted(taken) == sorted(set(taken)) == ["i1", "i2", "i3", "i4", "i5"]


def test_case_Q08_a_client_that_sends_again_after_a_reconnect(run, scripted):
    """The acknowledgement was lost; the same prompt ran twice. Here over a restart too."""
    model = scripted("ok")
    store = MemoryStore()

    async def main() -> Any:
        async with house(model, plugins=[Flush()], store=store) as first:
            agent = first.agents["main"]
            one = agent.send("deploy", key="u7")
            assert agent.send("deploy", key="u7").id == one.id
            await one.result()
            session_id = agent.session.id
        again = scripted()
        async with house(again, plugins=[Flush()], store=store) as second:
            agent = await second.resume(session_id)
            late = agent.send("deploy", key="u7")
            assert (late.id, late.status.turn) == (one.id, 1)
            assert (await late.result()).text == "ok"
            await agent.idle()
            return agent

    assert said(run(main)) == ["deploy"]


def test_case_Q09_accepted_while_the_process_ends(run, scripted):
    """Popped at turn end, a turn opened and aborted by the exit: in two of five cases it was nowhere on disk."""
    model = scripted([wait(5), text("one")])
    store = MemoryStore()

    async def main() -> Any:
        async with house(model, plugins=[Flush()], store=store) as first:
            agent = first.agents["main"]
            receipt = agent.send("one-shot")
            await anyio.sleep(1)
            agent.send("late")
            await receipt.result()
            session_id = agent.session.id
        again = scripted(forever("ok"))
        async with house(again, plugins=[Flush()], store=store) as second:
            agent = await second.resume(session_id)
            await agent.run("next")
            await agent.idle()
            return agent

    agent = run(main)
    assert said(agent).count("late") == 1
    assert sorted(said(agent)) == ["late", "next", "one-shot"]


def test_case_Q11_steering_without_an_open_turn_is_queued(run, scripted):
    """While a task of another kind ran, it stayed `working` for ever."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent, anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 60)  # a shell command of the user's, no turn
            result = await agent.steer("hi").result()
            await agent.idle()
            assert agent.status == "idle"
            return result

    assert run(main).ok


def test_case_Q13_a_message_during_an_approval_is_queued_and_the_question_decided_once(run, scripted):
    """A plain message raised the same interrupt again, for ever, without an outcome."""
    model = scripted(call("nap", {"seconds": 0}), forever("ok"))
    asked: list[str] = []

    class Person:
        async def decide(self, agent: Any, approval: Any) -> str:
            asked.append(approval.id)
            await anyio.sleep(30)
            return "allowed_once"

    async def main() -> Any:
        async with Agent(model, tools=[nap], plugins=[plugin(tools_guard=lambda call: Ask("sure?"))]) as agent:
            agent.harness.provide(Approver, Person())
            receipt = agent.send("go")
            await until(lambda: asked)
            for _ in range(3):
                agent.send("what are you doing?")
            await receipt.result()
            await agent.idle()
            return agent

    agent = run(main)
    assert asked == ["a1"]
    assert [e.outcome for e in of(agent, "approval/decided")] == ["allowed_once"]
    assert said(agent) == ["go", *["what are you doing?"] * 3]


def test_case_Q14_cancel_writes_results_at_once_and_the_question_does_not_come_back(run, scripted):
    """Approved, then cancelled while the tool hung: no result, and the approval appeared again."""
    import threading

    model = scripted(call("hangs"), "ok")
    entered, release = threading.Event(), threading.Event()
    asked: list[str] = []

    @tool
    def hangs() -> str:
        """Hear nothing."""
        entered.set()
        release.wait(10)
        return "at last"

    class Person:
        async def decide(self, agent: Any, approval: Any) -> str:
            asked.append(approval.id)
            return "allowed_once"

    async def main() -> Any:
        async with Agent(model, tools=[hangs], plugins=[plugin(tools_guard=lambda call: Ask("sure?"))]) as agent:
            agent.harness.provide(Approver, Person())
            receipt = agent.send("go")
            await until(entered.is_set)
            agent.cancel()
            result = await receipt.result()
            assert not release.is_set()  # the tool still hangs
            await agent.run("on")
            release.set()
            return agent, result

    agent, result = run(main)
    assert result.reason.kind == "cancelled"
    assert results(agent) == [("c1.1.1", "OUTCOME_UNKNOWN")]
    assert asked == ["a1"]


def test_case_Q15_three_endings_three_texts(run, scripted):
    """Cancelled in mid tool was told as `rejected, not written`, though it may have been."""
    guard = plugin(tools_guard=lambda call: Deny("not this one") if call.arguments.get("a") == 9 else None)
    model = scripted([call("nap"), call("add", {"a": 9, "b": 1}), call("nap"), call("nap")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[nap, add], plugins=[guard], max_parallel_tool_calls=2) as agent:
            receipt = agent.send("go")
            await until(lambda: len(of(agent, "tool/start")) == 2)
            agent.cancel()
            await receipt.result()
            await agent.run("on")
            return agent

    agent = run(main)
    assert [code for _, code in results(agent)] == ["OUTCOME_UNKNOWN", "DENIED", "OUTCOME_UNKNOWN", "NOT_STARTED"]
    told = [content_text(m.content) for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert "may" in told[0] and "denied" in told[1] and "before execution" in told[3]
    assert len({told[0], told[1], told[3]}) == 3


# --- cancellation, parallel tools ----------------------------------------------------------------------------------


def test_case_X03_a_stream_that_is_left_runs_no_further_tool(run, scripted):
    """A half-consumed generator was dropped; the run went on to its end in a detached thread."""
    ran: list[int] = []

    @tool
    async def work(n: int) -> str:
        """Work."""
        ran.append(n)
        await anyio.sleep(10)
        return "x"

    model = scripted(*[call("work", {"n": n}) for n in range(5)], "end")

    async def main() -> Any:
        async with Agent(model, tools=[work]) as agent:
            async with agent.stream("go") as turn:
                async for item in turn:
                    if type(item).__name__ == "ToolCall":
                        await until(lambda: ran)
                        break
            await anyio.sleep(100)
            return agent

    agent = run(main)
    assert ran == [0]
    assert reasons(agent) == ["cancelled"]


@pytest.mark.parametrize("hook", ["agent_request", "turn_continuation", "tools_guard"])
def test_case_X06_a_plugin_that_cancels_the_task_it_runs_in(scripted, hook):
    """A transport's cancel scope leaked into the loop and killed it."""

    async def host(agent: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    model = scripted(*[call("add", {"a": 1, "b": 1})] * (hook != "agent_request"), forever("ok"))

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[plugin("mcp", **{hook: host})]) as agent:
            result = await agent.run("go")
            agent.harness.plugins.unregister("mcp")
            assert (await agent.run("on")).ok
            return agent, result

    agent, result = run_virtual(main, backend="asyncio")
    assert {e.plugin for e in of(agent, "plugin/fault")} == {"mcp"}
    if hook == "tools_guard":
        assert results(agent)[0] == ("c1.1.1", "REFUSED_BY_FAULT")
    else:
        assert (result.reason.error, result.reason.plugin) == ("plugin", "mcp")


@pytest.mark.parametrize("calls", [1, 3])
def test_case_X08_T03_a_tool_that_raises_cancelled_error_by_itself(scripted, calls):
    """It went through everything that catches Exception, and killed the siblings or the process."""

    @tool
    async def task(n: int) -> str:
        """Cancelled inside."""
        await asyncio.sleep(1)
        if n == 1:
            raise asyncio.CancelledError
        return f"done {n}"

    model = scripted([call("task", {"n": n + 1}) for n in range(calls)], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[task]) as agent:
            return agent, await agent.run("go")

    agent, result = run_virtual(main, backend="asyncio")
    assert result.ok
    assert [code for _, code in results(agent)] == ["OUTCOME_UNKNOWN", *["ok"] * (calls - 1)]


def test_case_T02_no_tool_outlives_its_turn(run, scripted):
    """One failed, the run unwound, and its sibling went on and wrote to the disk."""
    wrote: list[float] = []
    ended: list[float] = []

    @tool
    async def computer() -> str:
        """Fail."""
        raise ValueError("user error")

    @tool
    async def shell() -> str:
        """Write later."""
        await anyio.sleep(1)
        wrote.append(anyio.current_time())
        return "written"

    model = scripted([call("computer"), call("shell")], "ok")

    async def main() -> Any:
        async with Agent(model, tools=[computer, shell]) as agent:
            result = await agent.run("go")
            ended.append(anyio.current_time())
            await anyio.sleep(10)
            return agent, result

    agent, result = run(main)
    assert result.ok
    assert results(agent) == [("c1.1.1", "TOOL_ERROR"), ("c1.1.2", "ok")]
    assert len(wrote) == 1 and wrote[0] <= ended[0]


def test_case_T06_a_call_is_executed_at_most_once(run, scripted):
    """Delivering one of several results made the others run again."""
    ran: list[int] = []

    @tool
    async def render(n: int) -> str:
        """Render."""
        ran.append(n)
        await anyio.sleep(n * 10)
        return f"video {n}"

    model = scripted([call("render", {"n": n}) for n in (1, 2, 3)], "ok", "and on")

    async def main() -> Any:
        async with Agent(model, tools=[render]) as agent:
            receipt = agent.send("go")
            await anyio.sleep(15)
            agent.steer("how far are you?")
            await receipt.result()
            await agent.run("on")
            return agent

    agent = run(main)
    assert sorted(ran) == [1, 2, 3]
    starts = [e.call_id for e in of(agent, "tool/start")]
    assert sorted(starts) == ["c1.1.1", "c1.1.2", "c1.1.3"]


def test_case_L05_the_step_limit_is_named_keeps_results_and_goes_on(run, scripted):
    """The cap was a quiet `break`, and the run a success."""
    model = scripted(*[call("add", {"a": n, "b": 0}) for n in range(3)], "finished")

    async def main() -> Any:
        async with Agent(model, tools=[add], max_steps=2) as agent:
            first = await agent.run("go")
            return agent, first, await agent.run("continue")

    agent, first, second = run(main)
    assert (first.reason.kind, first.reason.max_steps, first.ok) == ("step_limit", 2, False)
    assert results(agent)[:2] == [("c1.1.1", "ok"), ("c1.2.1", "ok")]
    assert second.reason.kind == "completed"
    assert types(agent)[-1] == "turn/end"
