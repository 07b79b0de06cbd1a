"""The worlds of the fault sweeps: many small scripts that together use every feature of the loop.

`SCRIPTS` maps a name to a `Script`; `run_script` plays one under seams and looks at everything a fault may
not break: balance by the oracle, the reason, deltas, streams, faults recorded, and the agent's next turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import expected
from props import kept_plugin, kept_tools, now

from checkrein import Agent, Continue, Retry, Stop, hookimpl
from checkrein.calls import Outcome
from checkrein.chunks import FinishChunk, TextChunk
from checkrein.decisions import Allow, Ask, Deny
from checkrein.errors import GateClosed
from checkrein.events import AssistantAnswer, AssistantPartial, AssistantThinking, PluginFaulted
from checkrein.live import TextDelta, ThinkingDelta
from checkrein.memory_store import MemoryStore
from checkrein.messages import content_text
from checkrein.testing import ScriptedModel, call, error, finish, metadata, text, thinking, torn, usage
from checkrein.testing.faults import KINDS, Seams, Seen
from checkrein.testing.seams import SeamModel, SeamStore
from checkrein.text import clean
from checkrein_invariants import check_events


class Flush:
    """A small persistence: every gate hands the new lines to the session's writer."""

    @hookimpl
    def session_flush(self, session: Any, gate: str) -> None:
        writer = session.writer
        if writer is not None and writer.taken != len(session.lines):
            writer.append(session.lines[writer.taken :])


class Policy:
    """Votes and answers a script asks for, by hook."""

    name = "policy"

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: dict[str, int] = {}

    def _next(self, hook: str) -> Any:
        answers = self.answers.get(hook, ())
        n = self.asked[hook] = self.asked.get(hook, 0) + 1
        return answers[n - 1] if n <= len(answers) else None

    @hookimpl
    def tools_guard(self, agent: Any, call: Any) -> Any:
        return self._next("tools_guard")

    @hookimpl
    def turn_continuation(self, agent: Any) -> Any:
        return self._next("turn_continuation")

    @hookimpl
    def request_error(self, attempt: int) -> Any:
        return self._next("request_error")

    @hookimpl
    async def step_result(self, message: Any) -> Any:
        change = self._next("step_result")
        return change(message) if change is not None else None

    @hookimpl
    async def agent_request(self, request: Any) -> Any:
        change = self._next("agent_request")
        return change(request) if change is not None else None

    @hookimpl
    async def tools_execute(self, agent: Any, call: Any, proceed: Any) -> Any:
        change = self._next("tools_execute")
        return await proceed(call) if change is None else await change(call, proceed)


class Then:
    """Plays a script; once it is `over`, answers plainly, however much of the script is left."""

    def __init__(self, inner: ScriptedModel) -> None:
        self.name = inner.name
        self.inner = inner
        self.over = False

    def stream(self, request: Any) -> Any:
        return self._plain() if self.over else self.inner.stream(request)

    async def _plain(self) -> Any:
        yield TextChunk(0, "still here")
        yield FinishChunk("stop")

    def missing(self) -> None:
        return None

    def default_model(self) -> str:
        return "script"

    def window_tokens(self, model: str) -> None:
        return None


class Person:
    """Answers approvals in order."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.answers = list(answers)

    async def decide(self, agent: Any, approval: Any) -> str:
        await anyio.sleep(1)
        return self.answers.pop(0) if self.answers else "denied"


@dataclass
class Script:
    """One scenario: the model's turns, what plugins answer, and what is done from outside."""

    turns: Sequence[Any]
    policy: dict[str, Sequence[Any]] = field(default_factory=dict)
    act: Callable[[Any], Awaitable[Any]] | None = None
    store: bool = False
    hooks: str = "async"
    approvals: Sequence[str] | None = None
    spec: dict[str, Any] = field(default_factory=dict)
    live: bool = False


def problems(agent: Any, seams: Seams, buffer: Sequence[Any]) -> list[str]:
    """What a fault may not leave behind."""
    session = agent.session
    found = [f"{v.rule} at {v.seq}: {v.message}" for v in check_events(session.events)]
    faults = [e for e in session.events if type(e) is PluginFaulted]
    for event in session.events:
        if event.type == "turn/end" and event.reason.error == "internal":
            found.append(f"the turn ended internal: {event.reason.message}")
    for fault in faults:
        if fault.plugin == "checkrein":
            found.append(f"a fault of our own: {fault.hook}: {fault.error}")
    kept: dict[tuple[int, int], str] = {}
    for event in session.events:
        if isinstance(event, (AssistantAnswer, AssistantPartial, AssistantThinking)):
            said = content_text(event.content) if isinstance(event, AssistantAnswer) else event.text
            if isinstance(event, AssistantAnswer) and event.replaced:
                said += "".join(b.get("text", "") for b in event.replaced["content"])
            kept[event.turn, event.step] = kept.get((event.turn, event.step), "") + said
    for delta in buffer:
        if isinstance(delta, (TextDelta, ThinkingDelta)):
            if clean(delta.text)[0] not in kept.get((delta.turn, delta.step), ""):
                found.append(f"the delta {delta.text!r} is in no event")
    if session.state.turn_open or session.state.step_open or session.state.due:
        found.append("something is open")
    return found


async def run_script(script: Script, seams: Seams) -> Seen:
    """Play a script under one fault, then a plain turn, and report what is wrong."""
    inner = Then(ScriptedModel(*script.turns))
    model = SeamModel(inner, seams)
    now(seams)
    plugins: list[Any] = [Policy(**script.policy)] if script.policy else []
    if script.hooks != "none":
        plugins.append(kept_plugin(script.hooks))
    store = SeamStore(MemoryStore(), seams) if script.store else None
    if store is not None:
        plugins.append(Flush())
    maker = Agent(model, tools=kept_tools(), plugins=plugins, store=store, system_prompt="be brief", **script.spec)
    seen: list[Any] = []
    reason = ""
    async with maker as agent:
        if script.approvals is not None:
            from checkrein.agents import Approver

            maker._harness.provide(Approver, Person(script.approvals))
        seams.actions["cancel"] = agent.cancel
        try:
            if script.act is not None:
                result = await script.act(agent)
            elif script.live:
                async with agent.stream("go") as turn:
                    async for item in turn:
                        seen.append(item)
                    result = await turn.result()
            else:
                result = await agent.run("go")
            reason = result.reason.kind + (f"/{result.reason.error}" if result.reason.error else "")
        except KeyboardInterrupt:
            reason = "KeyboardInterrupt"
        except GateClosed:
            reason = "GateClosed"
        await agent.idle()
        found = problems(agent, seams, seen)
        seams.actions.clear()
        found += against_table(script, seams, reason, agent.session.events)
        plan, seams.plan = seams.plan, None
        inner.over = True
        again = await agent.run("and now?")
        seams.plan = plan
        if not again.ok:
            found.append(f"the next turn ended {again.reason}")
        found += problems(agent, seams, ())
    if agent.session.state.turn_open:
        found.append("a turn is open after the harness closed")
    return Seen(reason, found)


BASE: dict[int, str] = {}  # how each script ends without a fault


def against_table(script: Script, seams: Seams, reason: str, events: Sequence[Any]) -> list[str]:
    """Compare a run with the table of expected reasons and recorded faults."""
    plan = seams.plan
    if plan is None:
        BASE[id(script)] = reason
        return []
    base = BASE.get(id(script))
    if base is None or seams.hit is None or plan.then is not None or plan.kind not in KINDS:
        return []  # of two faults no table says which one ended the turn
    if script.act in (three, two_waiters):
        return []  # several turns or waiters: which of them was struck is not told by one reason
    allowed = expected.reasons(seams.hit, plan.kind, base, "request_error" in script.policy)
    if script.act is cancel_soon:
        allowed |= {"completed", "cancelled"}  # what was to be cancelled failed before; or it hung until then
    found = [] if reason in allowed else [f"ended {reason}, expected one of {sorted(allowed)}"]
    wrong = expected.recorded(seams.hit, plan.kind, events)
    return found if wrong is None else [*found, wrong]


# --- acts from outside ------------------------------------------------------------------------------


async def steer(agent: Any) -> Any:
    receipt = agent.send("go")
    agent.steer("and this")
    agent.inject("by the way")
    return await receipt.result()


async def steer_late(agent: Any) -> Any:
    receipt = agent.send("go")
    await anyio.sleep(2)
    agent.steer("late")
    return await receipt.result()


async def cancel_soon(agent: Any) -> Any:
    receipt = agent.send("go")
    await anyio.sleep(2)
    agent.cancel()
    return await receipt.result()


async def three(agent: Any) -> Any:
    first = agent.send("one")
    agent.send("two")
    result = await first.result()
    await agent.run("three")
    return result


async def replace_and_withdraw(agent: Any) -> Any:
    receipt = agent.send("go")
    other = agent.send("never")
    agent.withdraw(other.id)
    agent.replace(receipt.id, "go on")
    return await receipt.result()


async def two_waiters(agent: Any) -> Any:
    receipt = agent.send("go")
    results: list[Any] = []

    async def wait() -> None:
        try:
            results.append(await receipt.result())
        except (KeyboardInterrupt, GateClosed) as exc:  # out of a child task asyncio would let one blow up the loop
            results.append(exc)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results[0]


def both(message: Any) -> Any:
    from checkrein.messages import AssistantMessage, TextBlock

    return AssistantMessage([TextBlock("instead"), *message.calls])


async def answer_instead(call: Any, proceed: Any) -> Any:
    return Outcome.text("from a plugin")


async def rewrite(call: Any, proceed: Any) -> Any:
    return await proceed(call.replace(a=40))


async def twice(call: Any, proceed: Any) -> Any:
    await proceed(call)
    return await proceed(call)


def trim(request: Any) -> Any:
    return request.replace(settings={"temperature": 0})


ADD = call("add", {"a": 1, "b": 2})
SLOW = call("slow", {"seconds": 5})
SYNC = call("sync", {"a": 1})

SCRIPTS: dict[str, Script] = {
    "answer": Script(["hello"]),
    "answer_live": Script([[thinking("hm"), text("hello there", pieces=3), usage(input=1, output=2)]], live=True),
    "empty_then_answer": Script([[text("")], "never"]),
    "one_call": Script([ADD, "three"]),
    "one_call_sync_hooks": Script([ADD, "three"], hooks="sync"),
    "one_call_no_hooks": Script([ADD, "three"], hooks="none"),
    "one_call_stored": Script([ADD, "three"], store=True),
    "effectful_stored": Script([SLOW, "slept"], store=True, hooks="none"),
    "text_and_call_live": Script([[text("let me see"), ADD], "three"], live=True),
    "three_parallel": Script([[ADD, SLOW, SYNC], "done"]),
    "three_parallel_no_hooks": Script([[SLOW, ADD, SYNC], "done"], hooks="none"),
    "parallel_two_at_once": Script([[ADD, SLOW, ADD, ADD], "done"], spec={"max_parallel_tool_calls": 2}, hooks="none"),
    "one_after_another": Script([[ADD, ADD], "done"], spec={"max_parallel_tool_calls": 1}, hooks="none"),
    "exclusive": Script([[ADD, call("alone"), ADD], "done"], hooks="none"),
    "thread_tool": Script([SYNC, "two"], hooks="sync"),
    "failing_tool": Script([[call("fails"), ADD], "sorry"], hooks="none"),
    "unknown_tool": Script([call("nope"), "sorry"], hooks="none"),
    "bad_arguments": Script([[call("add", raw='{"a":'), call("add", raw="[]")], "sorry"], hooks="none"),
    "two_steps": Script([ADD, ADD, "done"]),
    "torn": Script([[text("half"), torn()]]),
    "torn_retried": Script([[text("half"), torn()], "whole"], policy={"request_error": [Retry(1.0)]}, live=True),
    "error_retried": Script([error("SERVER"), "whole"], policy={"request_error": [Retry()]}),
    "error": Script([error("SERVER")]),
    "half_call_torn": Script([[text("x"), call("add", raw='{"a'), torn()]]),
    "max_tokens": Script([[text("cut"), call("add", {"a": 1, "b": 1}), finish("max_tokens")]], hooks="none"),
    "refused": Script([[text("I"), finish("refusal")]], hooks="none"),
    "opaque_metadata": Script([[thinking("sign this"), metadata("c2ln"), text("ok")], "ok"]),
    "denied": Script([ADD, "fine"], policy={"tools_guard": [Deny("no")]}),
    "allowed": Script([ADD, "fine"], policy={"tools_guard": [Allow()]}),
    "asked_allowed": Script([ADD, "fine"], policy={"tools_guard": [Ask("really?")]}, approvals=["allowed_once"]),
    "asked_denied_stored": Script(
        [ADD, "fine"], policy={"tools_guard": [Ask("really?")]}, approvals=["denied"], store=True, hooks="none"
    ),
    "asked_nobody": Script([ADD, "fine"], policy={"tools_guard": [Ask("really?")]}),
    "continued": Script(["one", "two"], policy={"turn_continuation": [Continue("more", "go on")]}),
    "stopped_after_calls": Script([ADD], policy={"turn_continuation": [Stop("enough")]}),
    "stopped_after_answer": Script(["one"], policy={"turn_continuation": [Stop("enough")]}),
    "stopped_by_budget": Script(
        [ADD], policy={"turn_continuation": [Stop("money", budget="cost", limit=1.0, used=2.0)]}, hooks="none"
    ),
    "step_limit": Script([ADD, ADD], spec={"max_steps": 2}, hooks="none"),
    "replaced_answer": Script(["said"], policy={"step_result": [both]}),
    "replaced_with_call": Script([[text("said"), ADD], "end"], policy={"step_result": [both]}, hooks="none"),
    "rewritten_call": Script([ADD, "end"], policy={"tools_execute": [rewrite]}),
    "answered_instead": Script([ADD, "end"], policy={"tools_execute": [answer_instead]}),
    "proceeded_twice": Script([[ADD, SLOW], "end"], policy={"tools_execute": [twice, twice]}, hooks="none"),
    "changed_request": Script(["ok"], policy={"agent_request": [trim]}),
    "steered": Script([ADD, "both"], act=steer),
    "steered_late": Script([SLOW, "both"], act=steer_late, hooks="none"),
    "cancelled_in_tool": Script([[ADD, SLOW, SYNC], "done"], act=cancel_soon, hooks="none"),
    "cancelled_in_tool_stored": Script([SLOW, "done"], act=cancel_soon, store=True),
    "three_turns": Script(["1", "2", "3"], act=three),
    "queue_one": Script(["1", "2", "3"], act=three, spec={"queue_mode": "one"}, hooks="none"),
    "replace_and_withdraw": Script(["ok"], act=replace_and_withdraw, store=True, hooks="none"),
    "two_waiters": Script([ADD, "ok"], act=two_waiters, hooks="sync"),
}
