"""T1-T8: turns and steps, how they end, and what a plugin can do about it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import add, nap, of, plugin, reasons, results, said, sent, types

from checkrein import Agent, Continue, Deny, Retry, Stop, TurnFailed
from checkrein.memory_store import MemoryStore
from checkrein.messages import Source
from checkrein.testing import call, error, finish, text, thinking, torn, usage
from checkrein.testing.script import hang


def test_T1_the_order_of_a_turn_with_a_tool(run, scripted):
    """user input inside the turn; then per step: request, answer, calls, results, end."""
    model = scripted([thinking("hm"), text("let me"), call("add", {"a": 1, "b": 2}), usage(input=1, output=1)], "3")

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent:
            await agent.run("1+2?")
            return agent

    agent = run(main)
    step = ["request/start", "assistant/thinking", "request/end", "assistant/message"]
    assert types(agent) == [
        *("turn/start", "user/message", "step/start", *step),
        *("tool/call", "tool/result", "step/end"),
        *("step/start", "request/start", "request/end", "assistant/message", "step/end", "turn/end"),
    ]
    assert types(agent, free=True).index("request/header") < types(agent, free=True).index("request/start")


def test_T1_all_calls_come_before_all_results(run, scripted):
    """tool/call of every call, then the results in the model's order, whoever is first."""
    model = scripted([call("nap", {"seconds": 5}), call("add", {"a": 1, "b": 1})], "done")

    async def main() -> Any:
        async with Agent(model, tools=[add, nap]) as agent:
            await agent.run("go")
            return agent

    agent = run(main)
    order = [t for t in types(agent, free=True) if t.startswith("tool/")]
    assert order[:2] == ["tool/call", "tool/call"]
    assert order[-2:] == ["tool/result", "tool/result"]
    assert results(agent) == [("c1.1.1", "ok"), ("c1.1.2", "ok")]


def _raises(exc: BaseException) -> Any:
    async def hook(*args: Any) -> Any:
        raise exc

    return hook


HOOKS = {
    "agent_request": lambda agent, request: 1 / 0,
    "step_result": lambda agent, message: 1 / 0,
    "tools_guard": lambda agent, call: 1 / 0,
    "turn_continuation": lambda agent: 1 / 0,
    "request_error": lambda agent, error: 1 / 0,
    "session_event": lambda session, event: 1 / 0,
    "stream_chunk": lambda agent, chunk: 1 / 0,
    "agent_status": lambda agent, status: 1 / 0,
    "session_flush": lambda session, gate: 1 / 0,
    "agent_created": lambda agent: 1 / 0,
    "agent_disposed": lambda agent: 1 / 0,
    "plugin_fault": lambda fault: 1 / 0,
}


async def _tools_execute(agent: Any, call: Any, proceed: Any) -> Any:
    raise ZeroDivisionError


ENDS = {"agent_request", "step_result", "turn_continuation"}


@pytest.mark.parametrize("hook", [*HOOKS, "tools_execute"])
def test_T8_a_raising_hook_ends_at_most_its_turn(run, scripted, hook):
    """Whatever hook raises, the log is balanced, the fault is named, and the same agent runs the next turn."""
    model = scripted(call("add", {"a": 1, "b": 2}), "first", "second", "third")
    probe = plugin(**{hook: HOOKS.get(hook, _tools_execute)})

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[probe]) as agent:
            manager = agent.harness.plugins
            if hook == "session_flush":
                with pytest.raises(Exception, match="probe"):
                    await agent.run("go")
            else:
                first = await agent.run("go")
                if hook in ENDS:
                    assert (first.reason.kind, first.reason.error) == ("error", "plugin")
                    assert first.reason.plugin == "probe"
                else:
                    assert first.ok
            await agent.idle()
            manager.unregister("probe")
            assert (await agent.run("again")).ok
            return agent

    agent = run(main)
    faults = of(agent, "plugin/fault")
    if hook not in ("agent_created", "agent_disposed", "request_error", "plugin_fault"):
        assert faults and {fault.plugin for fault in faults} == {"probe"}
    assert len(of(agent, "turn/start")) == len(of(agent, "turn/end"))
    assert len(of(agent, "step/start")) == len(of(agent, "step/end"))


@pytest.mark.parametrize(
    ("turn", "kind", "error_kind", "code"),
    [
        ("hello", "completed", None, None),
        (error("RATE_LIMIT", "slow down", status=429), "error", "generate", "RATE_LIMIT"),
        ([text("half"), error("SERVER", "gone")], "error", "stream", "SERVER"),
        ([error(TimeoutError("idle"))], "error", "timeout", "TimeoutError"),
        ([text("half"), finish("max_tokens")], "error", "max_tokens", "MAX_TOKENS"),
        ([text("I"), finish("refusal")], "error", "refused", "REFUSAL"),
        ([text("I"), finish("content_filter")], "error", "refused", "CONTENT_FILTER"),
        ([text("")], "error", "output", "EMPTY_RESPONSE"),
        ([text("half"), torn()], "interrupted", None, None),
    ],
)
def test_T4_each_reason_of_a_step_with_its_fields(run, scripted, turn, kind, error_kind, code):
    """The same word in the event and in the result; code and message where they are known."""
    model = scripted(turn, "next")

    async def main() -> Any:
        async with Agent(model) as agent:
            result = await agent.run("go")
            assert result.reason == of(agent, "turn/end")[0].reason
            assert (await agent.run("again")).ok
            return result

    result = run(main)
    assert (result.reason.kind, result.reason.error, result.reason.code) == (kind, error_kind, code)
    if kind == "error":
        assert result.reason.message
        with pytest.raises(TurnFailed) as caught:
            result.check()
        assert caught.value.result is result
    elif kind == "completed":
        assert result.check() is result


def test_T4_a_model_that_cannot_be_used_is_an_error_of_kind_generate(run, scripted):
    """An unknown provider in the options of a turn ends that turn, not the agent."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            bad = await agent.run("go", model="nobody:x")
            assert (await agent.run("go")).ok
            return bad.reason

    reason = run(main)
    assert (reason.kind, reason.error, reason.code) == ("error", "generate", "ConfigError")
    assert "nobody" in reason.message


def test_T4_a_closed_gate_is_an_error_of_kind_store(run, scripted):
    """The request is not sent when the events before it are not with the store (R4)."""
    model = scripted("never", "later")
    gates: list[str] = []

    def flush(session: Any, gate: str) -> None:
        gates.append(gate)
        if gate == "request" and gates.count("request") == 1:
            raise OSError("disk full")

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(session_flush=flush)]) as agent:
            reason = (await agent.run("go")).reason
            assert not model.requests
            assert (await agent.run("go")).ok
            return reason

    reason = run(main)
    assert (reason.kind, reason.error) == ("error", "store")
    assert "disk full" in reason.message


def test_T4_step_limit_is_never_completed_and_never_exceeded(run, scripted):
    """max_steps steps without a final answer end the turn `step_limit`; the turn may go on in the next."""
    model = scripted(*[call("add", {"a": 1, "b": 1})] * 2, "went on")

    async def main() -> Any:
        async with Agent(model, tools=[add], max_steps=2) as agent:
            first = await agent.run("go")
            return first, await agent.run("continue")

    first, second = run(main)
    assert (first.reason.kind, first.reason.max_steps, first.steps, first.text) == ("step_limit", 2, 2, "")
    assert second.text == "went on"


def test_T4_exactly_as_many_steps_as_allowed_complete(run, scripted):
    """The boundary: the final answer in the last step allowed is a final answer (case L07)."""
    model = scripted(call("add", {"a": 1, "b": 1}), "done")

    async def main() -> Any:
        async with Agent(model, tools=[add], max_steps=2) as agent:
            return await agent.run("go")

    assert run(main).reason.kind == "completed"


def test_T4_zero_steps_mean_no_limit_and_the_turns_option_wins(run, scripted):
    """max_steps = 0 is unlimited; the option of a turn stands over the agent's."""
    model = scripted(*[call("add", {"a": 1, "b": 1})] * 120, "done", call("add", {"a": 1, "b": 1}))

    async def main() -> Any:
        async with Agent(model, tools=[add], max_steps=0) as agent:
            long = await agent.run("go")
            return long, await agent.run("go", max_steps=1)

    long, short = run(main)
    assert (long.steps, long.reason.kind) == (121, "completed")
    assert (short.steps, short.reason.kind, short.reason.max_steps) == (1, "step_limit", 1)


def test_T4_a_continuation_plugin_cannot_exceed_the_step_limit(run, scripted):
    """Nothing exceeds max_steps, a vote to continue neither (case L09)."""
    from checkrein.testing import forever

    model = scripted(forever("thinking about it"))
    probe = plugin(turn_continuation=lambda agent: Continue("more", "go on"))

    async def main() -> Any:
        async with Agent(model, plugins=[probe], max_steps=3) as agent:
            return await agent.run("go")

    result = run(main)
    assert (result.reason.kind, result.steps) == ("step_limit", 3)


def test_T4_an_error_reported_before_outranks_disposal_and_cancel(run, scripted):
    """Precedence: error > disposed > cancelled > the rest."""
    model = scripted(hang())

    class Breaks:
        """A provider that fails because it was cancelled."""

        name = "breaks"

        def stream(self, request: Any) -> Any:
            return self._play()

        async def _play(self) -> Any:
            try:
                await anyio.sleep_forever()
            finally:
                raise OSError("socket torn by the cancel")
            yield

        def missing(self) -> None:
            return None

        def default_model(self) -> str:
            return "x"

        def window_tokens(self, model: str) -> None:
            return None

    async def dispose() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            agent.cancel("user")
            await agent.dispose()
            return await receipt.result()

    async def broken() -> Any:
        async with Agent(Breaks()) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            agent.cancel("user")
            return await receipt.result()

    assert run(dispose).reason.kind == "disposed"
    assert run(broken).reason.kind in ("error", "cancelled")


def test_T4_the_first_cancel_cause_wins(run, scripted):
    """A second cancel, by whomever, changes nothing."""
    from checkrein.events import Cause

    model = scripted(hang())

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            agent.cancel(Cause("budget", which="cost", limit=1.0, used=2.0))
            agent.cancel("user")
            return await receipt.result()

    cause = run(main).reason.cause
    assert (cause.kind, cause.which, cause.limit, cause.used) == ("budget", "cost", 1.0, 2.0)


@pytest.mark.parametrize("kind", ["user", "parent", "signal", "task"])
def test_T4_cancelled_says_by_whom(run, scripted, kind):
    """The cause stands in the event and in the result."""
    model = scripted(hang())

    async def main() -> Any:
        async with Agent(model) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            agent.cancel(kind)
            return await receipt.result()

    reason = run(main).reason
    assert (reason.kind, reason.cause.kind) == ("cancelled", kind)


# --- T5: what goes on behind a final answer -------------------------------------------------------------


def _steers(n: int) -> Any:
    """Steers at each of the first n answers."""
    left = [n]

    def step_result(agent: Any, message: Any) -> None:
        if left[0]:
            left[0] -= 1
            agent.steer(f"s{left[0]}")

    return plugin("steers", step_result=step_result)


def test_T5_steering_that_waits_extends_the_turn(run, scripted):
    """A final answer is not the end while steering waits: it is in the next request of the same turn."""
    model = scripted("first", "second")

    async def main() -> Any:
        async with Agent(model, plugins=[_steers(1)]) as agent:
            result = await agent.run("go")
            return agent, result

    agent, result = run(main)
    assert (result.text, result.steps, reasons(agent)) == ("second", 2, ["completed"])
    assert said(agent, "steering/message") == ["s0"]
    assert sent(model.requests[1]) == ["user: go", "assistant: first", "user: s0"]


def test_T5_steering_extends_at_most_so_often_in_a_row(run, scripted):
    """Behind max_steering_extensions the rest becomes queued input, with its id and its mark."""
    from checkrein.testing import forever

    model = scripted(forever("ok"))

    async def main() -> Any:
        async with Agent(model, plugins=[_steers(4)], max_steering_extensions=2) as agent:
            await agent.run("go")
            await agent.idle()
            return agent

    agent = run(main)
    first, second = of(agent, "turn/end")
    assert (first.steps, first.reason.kind) == (3, "completed")
    left = [event for event in of(agent, "user/message") if event.turn == 2]
    accepted = {event.id: event.kind for event in of(agent, "inbox/accepted")}
    assert [(event.mark, accepted[event.id]) for event in left] == [("steering", "steering")]
    assert second.reason.kind == "completed"


def test_T5_tool_calls_begin_the_count_of_extensions_anew(run, scripted):
    """`in a row` means without tool calls between."""
    model = scripted("a", call("add", {"a": 1, "b": 1}), "b", "c")

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[_steers(3)], max_steering_extensions=1) as agent:
            result = await agent.run("go")
            await agent.idle()
            return agent, result

    agent, result = run(main)
    assert result.steps == 4
    assert reasons(agent) == ["completed"]


def test_T5_stop_beats_waiting_steering(run, scripted):
    """After a final answer Stop ends the turn `completed`; the steering becomes the next turn's."""
    model = scripted("first", "second")
    votes = [Stop("enough")]
    probe = plugin(turn_continuation=lambda agent: votes.pop() if votes else None)

    async def main() -> Any:
        async with Agent(model, plugins=[probe, _steers(1)]) as agent:
            result = await agent.run("go")
            await agent.idle()
            return agent, result

    agent, result = run(main)
    assert (result.reason.kind, result.steps) == ("completed", 1)
    assert [(event.turn, event.mark) for event in of(agent, "user/message")] == [(1, None), (2, "steering")]
    decision = of(agent, "decision")[0]
    assert (decision.hook, decision.outcome, decision.reason, decision.plugin) == (
        *("turn_continuation", "stop", "enough", "probe"),
    )


def test_T5_stop_after_tool_calls_is_a_cancel_by_the_hook(run, scripted):
    """Cause hook with plugin and reason; the calls keep their results."""
    model = scripted(call("add", {"a": 1, "b": 2}))
    probe = plugin(turn_continuation=lambda agent: Stop("too expensive"))

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[probe]) as agent:
            return await agent.run("go"), results(agent)

    result, answered = run(main)
    cause = result.reason.cause
    assert (result.reason.kind, cause.kind, cause.plugin, cause.reason) == (
        *("cancelled", "hook", "probe", "too expensive"),
    )
    assert answered == [("c1.1.1", "ok")]


def test_T5_continue_is_logged_as_context_from_the_plugin(run, scripted):
    """Continue brings content; the model reads who says it."""
    model = scripted("one", "two")
    votes = [Continue("not done", "check the tests")]
    probe = plugin(turn_continuation=lambda agent: votes.pop() if votes else None)

    async def main() -> Any:
        async with Agent(model, plugins=[probe]) as agent:
            result = await agent.run("go")
            return agent, result

    agent, result = run(main)
    assert (result.text, result.steps) == ("two", 2)
    context = of(agent, "context/message")[0]
    assert (context.source.kind, context.source.name, context.plugin) == ("plugin", "probe", "probe")
    assert model.requests[1].messages[-1].content[0].text == "[from probe] check the tests"
    assert of(agent, "decision")[0].outcome == "continue"


@pytest.mark.parametrize("content", ["", []])
def test_T5_continue_without_content_is_refused_at_the_vote(run, scripted, content):
    """A vote that brings nothing is the plugin's fault: the turn ends error, kind plugin."""
    model = scripted("one", "two")
    votes: list[Any] = [Continue("more", content)]
    probe = plugin(turn_continuation=lambda agent: votes.pop() if votes else None)

    async def main() -> Any:
        async with Agent(model, plugins=[probe]) as agent:
            bad = await agent.run("go")
            assert (await agent.run("go")).ok
            return bad.reason

    reason = run(main)
    assert (reason.kind, reason.error, reason.plugin) == ("error", "plugin", "probe")
    assert "expected input" in reason.message


@pytest.mark.parametrize("content", [" \n", [object()], 7])
def test_T5_continue_with_content_that_says_nothing_is_the_plugins_fault(run, scripted, content):
    """Blank text, or what is no content at all, never becomes an error of our own."""
    model = scripted("one", "two")
    votes: list[Any] = [Continue("more", content)]
    probe = plugin(turn_continuation=lambda agent: votes.pop() if votes else None)

    async def main() -> Any:
        async with Agent(model, plugins=[probe]) as agent:
            bad = await agent.run("go")
            assert (await agent.run("go")).ok
            return bad.reason

    reason = run(main)
    assert (reason.kind, reason.error, reason.plugin) == ("error", "plugin", "probe")


# --- T6, T7 ---------------------------------------------------------------------------------------------


def test_T6_all_queued_input_is_taken_at_once(run, scripted):
    """queue_mode all: a burst is one turn, each input its own message, in order."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            receipts = [agent.send(word) for word in ("a", "b", "c")]
            turns = [(await receipt.result()).turn for receipt in receipts]
            return agent, turns

    agent, turns = run(main)
    assert turns == [1, 1, 1]
    assert said(agent) == ["a", "b", "c"]
    assert of(agent, "turn/start")[0].trigger == {"kind": "input", "ids": ["i1", "i2", "i3"]}


def test_T6_one_input_a_turn(run, scripted):
    """queue_mode one: the first, then the next."""
    model = scripted("1", "2", "3")

    async def main() -> Any:
        async with Agent(model, queue_mode="one") as agent:
            receipts = [agent.send(word) for word in ("a", "b", "c")]
            return [(await receipt.result()).turn for receipt in receipts]

    assert run(main) == [1, 2, 3]


def test_T6_input_of_run_and_stream_is_always_a_turn_of_its_own(run, scripted):
    """One run, one turn, one result: also in the middle of queued input; `own_turn` in the log."""
    model = scripted(*"12345")

    async def main() -> Any:
        async with Agent(model) as agent:
            got: dict[str, int] = {}

            async def one(word: str) -> None:
                got[word] = (await agent.run(word)).turn

            async def live() -> None:
                async with agent.stream("s") as turn:
                    async for _ in turn:
                        pass
                    got["s"] = (await turn.result()).turn

            first = agent.send("a")
            second = agent.send("b")
            async with anyio.create_task_group() as group:
                group.start_soon(one, "r")
                group.start_soon(one, "q")
                group.start_soon(live)
            got["a"], got["b"] = (await first.result()).turn, (await second.result()).turn
            return agent, got

    agent, got = run(main)
    assert got["a"] == got["b"] == 1
    assert sorted((got["r"], got["q"], got["s"])) == [2, 3, 4]
    assert [event.own_turn for event in of(agent, "inbox/accepted")] == [False, False, True, True, True]


def test_T7_numbers_are_consecutive_and_go_on_over_a_resume(run, scripted):
    """Turns and steps count from 1; a resumed session continues."""
    from checkrein.config.types import AgentConfig, HarnessConfig
    from checkrein.harness import Harness

    store = MemoryStore()

    def flush(session: Any, gate: str) -> None:
        writer = session.writer
        if writer is not None and writer.taken != len(session.lines):
            writer.append(session.lines[writer.taken :])

    def harness(*turns: Any) -> Any:
        model = scripted(*turns)
        config = HarnessConfig(agents=(AgentConfig(id="main", model="scripted:x"),))
        return Harness(config=config, providers=[model], store=store, plugins=[plugin(session_flush=flush)], found=[])

    async def main() -> Any:
        async with harness("1", "2") as first:
            agent = first.agents["main"]
            await agent.run("a")
            await agent.run("b")
            session_id = agent.session.id
        async with harness("3", "4") as second:
            agent = await second.resume(session_id)
            third = await agent.run("c")
            await agent.run("d")
            return agent, third

    agent, third = run(main)
    assert third.turn == 3
    assert [event.turn for event in of(agent, "turn/start")] == [1, 2, 3, 4]
    assert [event.step for event in of(agent, "step/start")] == [1, 1, 1, 1]
    assert [event.id for event in of(agent, "inbox/accepted")] == ["i1", "i2", "i3", "i4"]


# --- T9 -------------------------------------------------------------------------------------------------


def test_T9_run_returns_behind_the_flush(run, scripted):
    """The session is flushed, awaited, after turn/end; the result comes after it."""
    model = scripted("ok")
    seen: list[str] = []

    async def flush(session: Any, gate: str) -> None:
        await anyio.sleep(1)
        seen.append(f"{gate}:{session.events[-1].type}")

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(session_flush=flush)]) as agent:
            await agent.run("go")
            return list(seen)

    assert run(main) == ["input:inbox/accepted", "request:request/start", "turn_end:turn/end"]


@pytest.mark.parametrize("how", ["raise", "hang"])
def test_T9_a_flush_that_fails_at_turn_end_is_a_fault_and_the_agent_lives(run, scripted, how):
    """It raises or passes its deadline: visible, contained, and the next turn works."""
    model = scripted("1", "2")
    broken = [True]

    async def flush(session: Any, gate: str) -> None:
        if gate == "turn_end" and broken:
            broken.clear()
            if how == "raise":
                raise OSError("disk full")
            await anyio.sleep_forever()

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(session_flush=flush)]) as agent:
            assert (await agent.run("a")).ok
            assert (await agent.run("b")).ok
            return agent

    agent = run(main)
    fault = of(agent, "plugin/fault")[0]
    assert (fault.plugin, fault.hook, fault.action) == ("probe", "session_flush", "contained")
    assert reasons(agent) == ["completed", "completed"]


def test_T2_a_turn_whose_plugins_refuse_everything_is_balanced(run, scripted):
    """Each call is denied, each result is there, the model may answer."""
    model = scripted([call("add", {"a": 1, "b": 1}), call("add", {"a": 2, "b": 2})], "then not")
    probe = plugin(tools_guard=lambda agent, call: Deny("no"))

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[probe]) as agent:
            result = await agent.run("go")
            return agent, result

    agent, result = run(main)
    assert result.ok
    assert results(agent) == [("c1.1.1", "DENIED"), ("c1.1.2", "DENIED")]


@pytest.mark.checkrein_oracle_off(reason="MemoryError is raised inside our own closing: a fault of ours is right")
@pytest.mark.parametrize("strikes", [1, 2, 5])
def test_T3_closing_is_run_again_when_something_strikes_inside_it(run, scripted, monkeypatch, strikes):
    """MemoryError in the middle of closing, also several times: what was open is closed all the same."""
    from checkrein.session import Session

    model = scripted([call("nap"), call("nap")], "ok")
    left = [strikes]
    plain = Session._commit

    def commit(self: Any, event: Any) -> None:
        if left[0] and event.type in ("tool/result", "step/end", "turn/end"):
            left[0] -= 1
            if left[0] % 2:
                plain(self, event)
            raise MemoryError
        plain(self, event)

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            receipt = agent.send("go")
            await anyio.sleep(1)
            monkeypatch.setattr(Session, "_commit", commit)
            agent.cancel()
            result = await receipt.result()
            assert (await agent.run("again")).ok
            return agent, result

    agent, result = run(main)
    assert result.reason.kind == "cancelled"
    assert results(agent) == [("c1.1.1", "OUTCOME_UNKNOWN"), ("c1.1.2", "OUTCOME_UNKNOWN")]
    assert reasons(agent) == ["cancelled", "completed"]
    assert len(of(agent, "step/start")) == len(of(agent, "step/end"))


def test_C3_a_cancel_before_the_first_step_leaves_start_input_end(run, scripted):
    """Also where nothing suspends: a cancel from an observer of turn/start is looked at before the first step."""
    model = scripted("never", "next")

    async def main() -> Any:
        async with Agent(model) as agent:
            stop = agent.session.observe(lambda event: agent.cancel() if event.type == "turn/start" else None)
            result = await agent.run("go")
            assert not model.requests
            assert types(agent) == ["turn/start", "user/message", "turn/end"]
            stop()
            assert (await agent.run("again")).ok
            return result

    assert run(main).reason.kind == "cancelled"


def test_T4_steps_and_retries_are_not_turns(run, scripted):
    """A retried request is one step; the result counts steps."""
    model = scripted(error("SERVER"), "ok")
    probe = plugin(request_error=lambda error: Retry())

    async def main() -> Any:
        async with Agent(model, plugins=[probe]) as agent:
            return await agent.run("go")

    result = run(main)
    assert (result.steps, result.turn, result.ok) == (1, 1, True)
    assert Source("user") == result.events[1].source
