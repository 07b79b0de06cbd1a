"""T4, T8: the reasons a turn ends with, the step limit, and how far a raising hook reaches."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import add, of, plugin

from checkrein import Agent, Continue, Retry, TurnFailed
from checkrein.messages import Source
from checkrein.testing import call, error, finish, text, torn
from checkrein.testing.script import hang


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
