"""What broke the seeds, acted out (docs/traps.md), and what is left of their own test lists (docs/seed-tests.md)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import Flush, add, house, nap, of, plugin, reasons, results, said, sent, types

from checkrein import Agent, ConfigError, Continue, Stop, tool
from checkrein.config.types import AgentConfig, HarnessConfig
from checkrein.errors import PluginError, ProviderError
from checkrein.harness import Harness
from checkrein.memory_store import MemoryStore
from checkrein.messages import content_text
from checkrein.testing import call, error, finish, text, wait


def raises_at(kind: str, times: int = 1) -> Any:
    """An observer that raises at the first events of a type."""
    left = [times]

    def session_event(event: Any) -> None:
        if event.type == kind and left[0]:
            left[0] -= 1
            raise RuntimeError(f"at {kind}")

    return plugin("thrower", session_event=session_event)


def test_trap_X1_a_cancel_between_steps_is_heard(run, scripted):
    """From a continuation vote: no further model call, and the turn does not complete."""
    model = scripted(call("add", {"a": 1, "b": 1}), "never")

    async def main() -> Any:
        box: list[Any] = []
        async with Agent(model, tools=[add], plugins=[plugin(turn_continuation=lambda: box[0].cancel())]) as agent:
            box.append(agent)
            return await agent.run("go")

    assert run(main).reason.kind == "cancelled"
    assert len(model.requests) == 1


EVENTS = (
    "inbox/accepted turn/start user/message step/start request/start assistant/message"
    " tool/call tool/start tool/result step/end turn/end"
)


@pytest.mark.parametrize("kind", EVENTS.split())
def test_trap_X4_X5_X14_an_observer_that_raises_at_any_event_changes_nothing(run, scripted, kind):
    """The event stands, the turn is closed, the fault is in the log, the next turn works, with the oracle on.

    The fault says where it was: the turn and step that were open behind the event.
    """
    model = scripted(call("add", {"a": 1, "b": 1}), "ok", "next")

    async def main() -> Any:
        async with Agent(model, tools=[add], plugins=[raises_at(kind)]) as agent:
            first = await agent.run("go")
            return agent, first, await agent.run("on")

    agent, first, second = run(main)
    assert first.ok and second.ok
    faults = of(agent, "plugin/fault")
    assert [(f.plugin, f.hook, f.action) for f in faults] == [("thrower", "session_event", "contained")]
    in_turn, in_step = kind not in ("inbox/accepted", "turn/end"), EVENTS.split().index(kind) in range(3, 9)
    assert [(f.turn, f.step) for f in faults] == [(1 if in_turn else None, 1 if in_step else None)]
    assert reasons(agent) == ["completed", "completed"]


def test_trap_X6_a_failing_flush_and_a_raising_fault_observer_are_each_one_fault(run, scripted):
    """Not two errors for one failure, and nothing behind turn/end but the fault."""
    model = scripted("ok", "next")
    broken = [True]

    def flush(gate: str) -> None:
        if gate == "turn_end" and broken:
            broken.clear()
            raise OSError("disk full")

    def told(fault: Any) -> None:
        raise ValueError("observer of faults")

    async def main() -> Any:
        async with Agent(model, plugins=[plugin("store", session_flush=flush), plugin("seer", plugin_fault=told)]) as a:
            assert (await a.run("go")).ok
            assert (await a.run("on")).ok
            return a

    agent = run(main)
    assert [(f.plugin, f.hook) for f in of(agent, "plugin/fault")].count(("store", "session_flush")) == 1
    assert [(f.plugin, f.hook) for f in of(agent, "plugin/fault")].count(("seer", "plugin_fault")) == 1


@pytest.mark.parametrize("status", ["running", "idle"])
def test_trap_X16_a_raising_status_observer_does_not_stop_the_driver(run, scripted, status):
    """No turn is lost, the status goes on."""
    model = scripted("one", "two")

    def told(status_: str) -> None:
        if status_ == status:
            raise RuntimeError("status")

    async def main() -> Any:
        probe = plugin(agent_status=lambda status: told(status))
        async with Agent(model, plugins=[probe]) as agent:
            first = await agent.run("go")
            second = await agent.run("on")
            await agent.idle()
            return first, second, agent.status

    first, second, at_rest = run(main)
    assert first.ok and second.ok
    assert at_rest == "idle"


def test_trap_X17_a_raising_observer_of_the_acceptance_does_not_refuse_the_input(run, scripted):
    """send returns its receipt, and the message runs."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model, plugins=[raises_at("inbox/accepted")]) as agent:
            receipt = agent.send("go")
            assert receipt.id == "i1"
            return await receipt.result()

    assert run(main).ok


def test_trap_X19_late_steering_keeps_its_identity(run, scripted):
    """As queued input of the next turn it has its id and its mark."""
    model = scripted("one", "two")
    votes = [Stop("enough")]

    async def main() -> Any:
        probe = plugin(
            turn_continuation=lambda: votes.pop() if votes else None,
            step_result=lambda agent: agent.steer("late") and None if votes else None,
        )
        async with Agent(model, plugins=[probe]) as agent:
            await agent.run("go")
            await agent.idle()
            return agent

    agent = run(main)
    assert [(e.turn, e.id, e.mark) for e in of(agent, "user/message")] == [(1, "i1", None), (2, "i2", "steering")]


def test_trap_X21_what_is_queued_at_disposal_is_in_the_log(run, scripted):
    """Pending there, and pending again when the session is opened."""
    model = scripted([wait(3600), text("never")])
    store = MemoryStore()

    async def main() -> Any:
        async with house(model, plugins=[Flush()], store=store) as first:
            agent = first.agents["main"]
            agent.send("go")
            await anyio.sleep(1)
            agent.send("queued")
            agent.inject("context")
            await anyio.sleep(1)
            session_id = agent.session.id
        async with house(scripted(), plugins=[Flush()], store=store) as second:
            agent = await second.resume(session_id)
            return [(entry.kind, content_text(entry.content)) for entry in agent.pending]

    assert run(main) == [("queued", "queued"), ("context", "context")]


# --- from the seeds' lists: what no rule's test says ---------------------------------------------------------------


def test_seed_the_same_status_is_not_told_again(run, scripted):
    """idle, running, idle, .. disposed: no repetition, disposed is the last."""
    model = scripted("one", "two", "three")
    seen: list[str] = []

    async def main() -> None:
        async with Agent(model, plugins=[plugin(agent_status=lambda status: seen.append(status))]) as agent:
            await agent.run("a")
            agent.send("b")
            agent.send("c")
            await agent.idle()
            await agent.dispose()

    run(main)
    assert seen == ["running", "idle", "running", "idle", "disposed"]


def test_seed_idle_waits_for_work_that_replaces_work(run, scripted):
    """idle() returns when nothing is owed, not between two turns."""
    model = scripted("one", "two", "three")

    async def main() -> Any:
        async with Agent(model, queue_mode="one") as agent:
            for word in ("a", "b", "c"):
                agent.send(word)
            await agent.idle()
            return reasons(agent)

    assert run(main) == ["completed"] * 3


def test_seed_a_burst_is_one_turn_and_settled_sends_are_turns_of_their_own(run, scripted):
    """All in one tick: one turn; each behind the other: 1..n; order kept, turns at most messages."""
    model = scripted(*"abcd")

    async def main() -> Any:
        async with Agent(model) as agent:
            for word in ("a", "b", "c"):
                agent.send(word)
            await agent.idle()
            for word in ("d", "e", "f"):
                agent.send(word)
                await agent.idle()
            return agent

    agent = run(main)
    assert [e.turn for e in of(agent, "user/message")] == [1, 1, 1, 2, 3, 4]
    assert said(agent) == list("abcdef")


def test_seed_continue_three_times_then_stop(run, scripted):
    """Votes to continue are each a step; then the turn is complete."""
    model = scripted(*"abcd")
    votes = [Continue("again", f"round {n}") for n in range(3)]

    async def main() -> Any:
        async with Agent(model, plugins=[plugin(turn_continuation=lambda: votes.pop() if votes else None)]) as agent:
            return await agent.run("go")

    result = run(main)
    assert (result.steps, result.text, result.reason.kind) == (4, "d", "completed")


def test_seed_steering_before_the_second_steps_request(run, scripted):
    """In the log: the step's start, then its steering, then the request."""
    model = scripted(call("nap", {"seconds": 5}), "ok")

    async def main() -> Any:
        async with Agent(model, tools=[nap]) as agent:
            agent.send("go")
            await anyio.sleep(1)
            agent.steer("s")
            await agent.idle()
            return types(agent)

    order = run(main)
    second = [i for i, kind in enumerate(order) if kind == "step/start"][1]
    assert order[second : second + 3] == ["step/start", "steering/message", "request/start"]


def test_seed_an_error_keeps_its_code_and_any_value_becomes_text(run, scripted):
    """Coded errors keep their code; what has none goes by its class; an absent code is absent."""
    model = scripted(
        error("RATE_LIMIT"), error(ValueError("plain")), error(ProviderError("x", kind="generate", code="")), "ok"
    )

    async def main() -> Any:
        async with Agent(model) as agent:
            return [(await agent.run("go")).reason for _ in range(4)]

    first, second, third, fourth = run(main)
    assert (first.code, second.code, fourth.kind) == ("RATE_LIMIT", "ValueError", "completed")
    assert "plain" in second.message
    assert third.kind == "error"


def test_seed_a_tools_error_carries_its_name_and_code(run, scripted):
    """ToolError{code} in the result, for the model in words."""
    from checkrein import ToolError

    @tool
    async def bad() -> str:
        """Raise."""
        raise ToolError("quota used up", code="QUOTA")

    model = scripted(call("bad"), "ok")

    async def main() -> Any:
        async with Agent(model, tools=[bad]) as agent:
            await agent.run("go")
            return agent

    event = of(run(main), "tool/result")[0]
    assert (event.error.name, event.error.code, event.is_error) == ("ToolError", "QUOTA", True)
    assert "quota used up" in content_text(event.content)


def test_seed_agents_of_the_config_are_there_at_the_start(run, scripted):
    """Empty or repeated ids fail before anything starts; one without a usable model too."""
    model = scripted("hello")

    def config(*ids: str, name: str = "scripted:x") -> HarnessConfig:
        return HarnessConfig(agents=tuple(AgentConfig(id=each, model=name) for each in ids))

    async def main() -> Any:
        async with Harness(config=config("a", "b"), providers=[model], found=[]) as both:
            assert [agent.id for agent in both.agents] == ["a", "b"]
            result = await both.agents["b"].run("go")
        for wrong in (config("a", "a"), config(""), config("a", name="nobody:x")):
            with pytest.raises((ConfigError, PluginError)):
                async with Harness(config=wrong, providers=[model], found=[]):
                    pass
        return result

    assert run(main).text == "hello"


def test_seed_two_sessions_do_not_disturb_each_other(run, scripted):
    """Turns of two agents at once: each log is whole and its own."""
    model = scripted(lambda request: [wait(1), text(f"to {sent(request)[-1]}")], repeat=True)

    async def main() -> Any:
        async with house(model, agents=("a", "b")) as both:
            async with anyio.create_task_group() as group:
                for agent in both.agents:
                    group.start_soon(agent.run, f"I am {agent.id}")
            return list(both.agents)

    for agent in run(main):
        assert said(agent) == [f"I am {agent.id}"]
        assert of(agent, "assistant/message")[0].content[0].text == f"to user: I am {agent.id}"


def test_seed_a_finish_of_another_kind_is_no_answer(run, scripted):
    """`pause` and `other` end a stream properly: what is there is the answer; nothing there is an error."""
    model = scripted([text("x"), finish("pause")], [text("y"), finish("other")], [finish("stop")])

    async def main() -> Any:
        async with Agent(model) as agent:
            return [await agent.run("go") for _ in range(3)]

    first, second, third = run(main)
    assert first.ok and second.ok
    assert (third.reason.error, third.reason.code) == ("output", "EMPTY_RESPONSE")


def test_seed_no_observer_is_left_behind(run, scripted):
    """After the agent is gone, its session has no observers of ours."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            before = len(agent.session._observers)
            async with agent.stream("go") as turn:
                async for _ in turn:
                    pass
            assert len(agent.session._observers) == before
            async with agent.harness.events():
                pass
            assert len(agent.session._observers) == before
            assert results(agent) == []

    run(main)
