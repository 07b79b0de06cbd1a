"""Agents driven at random: any script of the model, any act from outside at any time, and the log is balanced.

Everything runs under virtual time with a drawn order of tasks, so a failing example replays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein import Agent, Continue, Deny, Outcome, Retry, Stop, hookimpl, tool
from checkrein.errors import AgentDisposed, ProviderError, UnknownInput
from checkrein.testing import ScriptedModel, call, error, finish, opaque, run_virtual, text, thinking, torn, usage, wait
from checkrein_invariants import Plugin, check_events
from checkrein_invariants.deep import EVERY, Deep
from checkrein_invariants.rules import Report

SLEEPS = (0.0, 0.3, 0.7, 2.0)


@tool
async def write(seconds: float = 0.0) -> str:
    """Write, after a while."""
    await anyio.sleep(seconds)
    return "written"


@tool(read_only=True)
async def read(seconds: float = 0.0) -> str:
    """Read, after a while."""
    await anyio.sleep(seconds)
    return "text"


@tool(idempotent=True, timeout_s=1.0)
async def fail(seconds: float = 0.0) -> str:
    """Fail, after a while, or time out."""
    await anyio.sleep(seconds)
    raise ValueError("no")


@tool(exclusive=True)
async def alone(seconds: float = 0.0) -> str:
    """Run alone."""
    await anyio.sleep(seconds)
    return "alone"


TOOLS = ("write", "read", "fail", "alone", "nope")
CALLS = st.builds(lambda name, s: call(name, {"seconds": s}), st.sampled_from(TOOLS), st.sampled_from(SLEEPS))
BAD_CALLS = st.sampled_from(["", "[1]", '{"seconds"', '{"seconds":"x"}', "{}"]).map(lambda raw: call("write", raw=raw))
PLAIN = st.sampled_from([text("a"), text("b \ud83c"), thinking("hm"), opaque({"a": 1}), wait(0.5), wait(2.0)])
PARTS = st.one_of(PLAIN, CALLS, CALLS, CALLS, BAD_CALLS)
ENDS = st.sampled_from(
    [None] * 9 + [torn(), finish("max_tokens"), finish("content_filter"), error(ProviderError("lost", kind="stream"))]
)


@st.composite
def turns(draw: st.DrawFn) -> list[Any]:
    """One answer of the model, or a piece of one."""
    parts = draw(st.lists(PARTS, min_size=1, max_size=5))
    if draw(st.booleans()):
        parts.append(usage(input=draw(st.integers(0, 9)), output=3))
    end = draw(ENDS)
    return [*parts, end] if end is not None else parts


@dataclass(frozen=True)
class Act:
    """Something done from outside, after a while."""

    after_s: float
    what: str


ACTS = st.builds(
    Act,
    st.sampled_from(SLEEPS),
    st.sampled_from(["send", "send", "steer", "inject", "cancel", "cancel all", "withdraw", "replace", "wake", "run"]),
)


class Meddles:
    """A plugin that does what it drew, each time it is asked."""

    def __init__(self, draws: dict[str, list[Any]]) -> None:
        self._draws = draws

    def _next(self, hook: str) -> Any:
        left = self._draws[hook]
        return left.pop() if left else None

    @hookimpl
    async def request_error(self) -> Any:
        return self._next("request_error")

    @hookimpl
    async def turn_continuation(self) -> Any:
        return self._next("turn_continuation")

    @hookimpl
    async def tools_guard(self) -> Any:
        return self._next("tools_guard")

    @hookimpl
    async def tools_execute(self, call: Any, proceed: Any) -> Any:
        answer = self._next("tools_execute")
        return await proceed(call) if answer is None else answer


ANSWER = Outcome.text("from the plugin")
DRAWS = st.fixed_dictionaries(
    {
        "request_error": st.lists(st.sampled_from([None, Retry(), Retry(1.0)]), max_size=4),
        "turn_continuation": st.lists(st.sampled_from([None, Continue("more", "go on"), Stop("enough")]), max_size=4),
        "tools_guard": st.lists(st.sampled_from([None, None, Deny("no")]), max_size=4),
        "tools_execute": st.lists(st.sampled_from([None, None, Outcome.text("from the plugin")]), max_size=3),
    }
)


async def act(agent: Any, what: str, receipts: list[Any]) -> None:
    try:
        if what in ("send", "steer", "inject"):
            receipts.append(getattr(agent, what)(f"{what} {len(receipts)}"))
        elif what.startswith("cancel"):
            agent.cancel(discard_pending=what.endswith("all"))
        elif what == "wake":
            agent.wake()
        elif what == "run":
            with anyio.move_on_after(1.5):
                await agent.run("run")
        elif receipts and what == "withdraw":
            agent.withdraw(receipts[-1].id)
        elif receipts and what == "replace":
            agent.replace(receipts[-1].id, "replaced")
    except (UnknownInput, AgentDisposed):
        pass


async def play(script: list[Any], acts: list[Act], draws: dict[str, list[Any]], spec: dict[str, Any]) -> list[Any]:
    plugin = Plugin()
    receipts: list[Any] = []
    model = ScriptedModel(*script, *["the end"] * 50)
    async with Agent(model, tools=[write, read, fail, alone], plugins=[Meddles(draws), plugin], **spec) as agent:
        agent.send("begin")
        for each in acts:
            await anyio.sleep(each.after_s)
            await act(agent, each.what, receipts)
        agent.wake()
        with anyio.move_on_after(60):
            await agent.idle()
        events = agent.session.events
    assert plugin.violations == {}
    return list(events)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_agent_under_any_acts_is_balanced(backend: str, data: st.DataObject) -> None:
    script = data.draw(st.lists(turns(), min_size=1, max_size=5), "script")
    acts = data.draw(st.lists(ACTS, max_size=8), "acts")
    draws = {hook: list(answers) for hook, answers in data.draw(DRAWS, "votes").items()}
    spec = {
        "max_steps": data.draw(st.sampled_from([2, 100]), "max_steps"),
        "max_parallel_tool_calls": data.draw(st.sampled_from([1, 4]), "parallel"),
        "queue_mode": data.draw(st.sampled_from(["all", "one"]), "queue_mode"),
    }
    seed = data.draw(st.none() | st.integers(0, 99), "seed")
    events = run_virtual(play, script, acts, draws, spec, backend=backend, seed=seed)
    assert [str(violation) for violation in check_events(events)] == []
    report = Report()
    derived = Deep(report, when=EVERY)
    for event in events:
        report.seq = event.seq
        derived.feed(event)
    assert [str(violation) for violation in report.violations] == []
