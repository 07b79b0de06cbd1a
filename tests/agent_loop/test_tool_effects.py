"""X5-X8: a call's output is capped, its effect decides what is flushed and repeated, its context says where it runs."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from callkit import Meter, codes, nap, of, play, text_of
from loopkit import plugin

from checkrein import Agent, hookimpl, tool
from checkrein import events as ev
from checkrein.agents import Approver
from checkrein.decisions import Allow, Ask
from checkrein.live import ToolProgress
from checkrein.memory_store import MemoryStore
from checkrein.messages import MediaBlock, TextBlock, ToolMessage
from checkrein.testing import ScriptedModel, call
from checkrein.tools import ToolContext

# --- X5: caps -----------------------------------------------------------------------------------------------


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


# --- X6: effects --------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("vote", "answer", "outcome", "kept", "decision"),
    [
        (None, None, None, None, None),
        (Allow(), None, None, None, "allow"),
        (Ask("sure?", rule="nap *"), "allowed_once", "allowed_once", None, "ask"),
        (Ask("sure?", rule="nap *"), "allowed_rule", "allowed_rule", "nap *", "ask"),
        (Ask("sure?"), "allowed_rule", "allowed_once", None, "ask"),
    ],
)
def test_H1_a_result_says_how_its_call_was_allowed_and_a_rule_is_kept_when_it_was(
    run, vote, answer, outcome, kept, decision
):
    class Person:
        async def decide(self, agent: Any, approval: Any) -> Any:
            return answer

    async def act(agent: Any) -> Any:
        agent.harness.provide(Approver, Person())
        return await agent.run("go")

    guard = plugin(tools_guard=lambda call: vote)
    result, events, _ = play(run, nap("a"), "done", tools=Meter().tools(), plugins=[guard], act=act)
    assert result.ok and codes(events) == [("c1.1.1", "ok")]
    assert of(events, ev.ToolResulted)[0].decision == decision
    asked = [(e.summary, e.rule) for e in of(events, ev.ApprovalAsked)]
    assert asked == ([(vote.summary, vote.rule)] if isinstance(vote, Ask) else [])
    decided = [(e.outcome, e.rule) for e in of(events, ev.ApprovalDecided)]
    assert decided == ([] if outcome is None else [(outcome, kept)])


@pytest.mark.parametrize(("answer", "words"), [("denied", "denied by the user"), ("closed", "nobody is here")])
def test_H1_the_model_is_told_whether_a_person_said_no_or_nobody_was_there(run, answer, words):
    class Person:
        async def decide(self, agent: Any, approval: Any) -> Any:
            return answer

    async def act(agent: Any) -> Any:
        agent.harness.provide(Approver, Person())
        return await agent.run("go")

    guard = plugin(tools_guard=lambda call: Ask("sure?"))
    _, events, _ = play(run, nap("a"), "done", tools=Meter().tools(), plugins=[guard], act=act)
    assert codes(events) == [("c1.1.1", "DENIED")] and not of(events, ev.ToolStarted)
    assert words in text_of(of(events, ev.ToolResulted)[0])


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


# --- X7, X8 -------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("kind", ["hints", "schema"])
def test_X6_a_tool_that_changes_its_arguments_changes_only_its_own(run, kind):
    """Run again it got what it had left of them, and the event that had logged them lost them too (L2)."""
    took: list[int] = []

    def take(stack: list[int]) -> int:
        took.append(stack.pop())
        if len(took) == 1:
            raise ConnectionError("try again")
        return took[-1]

    @tool(name="take", idempotent=True)
    def by_hints(stack: list[int]) -> int:
        """Take the last one."""
        return take(stack)

    @tool(name="take", idempotent=True, parameters={"type": "object", "required": ["stack"]})
    def by_schema(arguments: dict[str, Any]) -> int:
        """Take the last one."""
        return take(arguments.pop("stack"))

    @tool
    async def outer(context: ToolContext) -> Any:
        """Call it."""
        return await context.call("take", {"stack": [1, 2]})

    class Again:
        @hookimpl
        async def tools_execute(self, call: Any, proceed: Any) -> Any:
            first = await proceed(call)
            return await proceed(call) if first.is_error else first

    tools = [by_hints if kind == "hints" else by_schema, outer]
    result, events, _ = play(run, call("outer"), "done", tools=tools, plugins=[Again()])
    assert result.ok and took == [2, 2]
    assert [event.arguments for event in of(events, ev.ToolStarted)][1:] == [{"stack": [1, 2]}] * 2
