"""Calls that tools make: `ToolContext.call` goes the way of every call (X7), with the real loop."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from checkrein import Agent, Deny, hookimpl, tool
from checkrein import events as ev
from checkrein.errors import GateClosed, ToolError
from checkrein.testing import ScriptedModel, call
from checkrein.tools import ToolContext


@tool(read_only=True)
async def leaf(n: int) -> int:
    """Double."""
    return 2 * n


@tool(read_only=True)
async def both(context: ToolContext, n: int) -> str:
    """Call leaf twice."""
    first = await context.call("leaf", {"n": n})
    second = await context.call("leaf", {"n": n + 1})
    return f"{first.value or first.content[0].text} {second.content[0].text}"


@tool
async def deep(context: ToolContext, level: int) -> str:
    """Call itself."""
    if level == 0:
        return "bottom"
    return (await context.call("deep", {"level": level - 1})).content[0].text


def play(run: Any, *turns: Any, tools: list[Any], plugins: list[Any] = (), act: Any = None, **spec: Any) -> Any:  # type: ignore[assignment]
    async def main() -> Any:
        async with Agent(ScriptedModel(*turns), tools=tools, plugins=plugins, **spec) as agent:
            result = await (act(agent) if act is not None else agent.run("go"))
            return result, list(agent.session.events)

    return run(main)


def of(events: list[Any], kind: type) -> list[Any]:
    return [event for event in events if type(event) is kind]


def test_X7_nested_calls_are_logged_with_their_parent_and_hidden_from_the_model(run):
    seen: list[Any] = []

    async def act(agent: Any) -> Any:
        result = await agent.run("go")
        seen.extend(agent.session.state.history.view())
        return result

    result, events = play(run, call("both", {"n": 3}), "done", tools=[leaf, both], act=act)
    assert result.ok
    assert [(e.call_id, e.parent) for e in of(events, ev.ToolCalled)] == [
        ("c1.1.1", None),
        ("c1.1.1.1", "c1.1.1"),
        ("c1.1.1.2", "c1.1.1"),
    ]
    assert [e.call_id for e in of(events, ev.ToolResulted)] == ["c1.1.1.1", "c1.1.1.2", "c1.1.1"]
    assert [e.arguments for e in of(events, ev.ToolStarted)] == [None, {"n": 3}, {"n": 4}]
    assert [len(getattr(m, "content", [])) for m in seen] and sum(type(m).__name__ == "ToolMessage" for m in seen) == 1


def test_X7_guards_see_nested_calls_with_their_parent(run):
    asked: list[tuple[str, str | None]] = []

    class Guard:
        @hookimpl
        def tools_guard(self, call: Any) -> Any:
            asked.append((call.name, call.parent))
            return Deny("not twice") if call.arguments == {"n": 4} else None

    _, events = play(run, call("both", {"n": 3}), "done", tools=[leaf, both], plugins=[Guard()])
    assert asked == [("both", None), ("leaf", "c1.1.1"), ("leaf", "c1.1.1")]
    assert of(events, ev.ToolResulted)[-1].content[0].text == "6 denied: not twice"
    assert of(events, ev.ToolResulted)[1].error.code == "DENIED"


def test_X7_execute_hooks_wrap_and_rewrite_nested_calls_and_the_parent_stays(run):
    class Plus:
        @hookimpl
        async def tools_execute(self, call: Any, proceed: Any) -> Any:
            return await proceed(call.replace(n=10) if call.name == "leaf" else call)

    seen: list[str | None] = []

    class Guard:
        @hookimpl
        def tools_guard(self, call: Any) -> None:
            seen.append(call.parent)

    _, events = play(run, call("both", {"n": 3}), "done", tools=[leaf, both], plugins=[Plus(), Guard()])
    assert of(events, ev.ToolResulted)[-1].content[0].text == "20 20"
    assert seen == [None, "c1.1.1", "c1.1.1"]


def test_X7_unknown_tools_and_bad_arguments_are_outcomes(run):
    @tool
    async def tries(context: ToolContext) -> str:
        """Make bad calls."""
        codes = [await context.call("nope", {}), await context.call("leaf", {"n": "x"})]
        return " ".join(outcome.error.code for outcome in codes if outcome.error)

    _, events = play(run, call("tries"), "done", tools=[leaf, tries])
    assert of(events, ev.ToolResulted)[-1].content[0].text == "UNKNOWN_TOOL INVALID_ARGUMENTS"


def test_X7_nesting_is_bounded(run):
    _, events = play(run, call("deep", {"level": 5}), "done", tools=[deep])
    assert of(events, ev.ToolResulted)[-1].content[0].text == "bottom"
    _, events = play(run, call("deep", {"level": 30}), "done", tools=[deep])
    assert len(of(events, ev.ToolCalled)) == 9
    assert "nested at most 8 deep" in of(events, ev.ToolResulted)[0].content[0].text


def test_X7_nested_calls_of_a_step_are_bounded(run):
    """A thousand, whichever of its calls made them; the next one is refused, and the step goes on."""

    @tool(read_only=True)
    async def many(context: ToolContext, count: int) -> str:
        """Call leaf so often."""
        made = 0
        try:
            for n in range(count):
                await context.call("leaf", {"n": n})
                made += 1
        except ToolError as exc:
            return f"{made}: {exc}"
        return str(made)

    result, events = play(
        run, [call("many", {"count": 600})] * 2, "done", tools=[leaf, many], max_parallel_tool_calls=1
    )
    said = [e.content[0].text for e in of(events, ev.ToolResulted) if e.call_id.count(".") == 2]
    assert said[0] == "600" and said[1].startswith("400: expected at most 1000 nested calls in a step")
    assert result.ok and len(of(events, ev.ToolCalled)) == 1_002


@pytest.mark.parametrize("begun", [True, False])
def test_X4_a_timeout_answers_nested_calls_in_honest_words(run, begun):
    class Slow:
        @hookimpl
        async def tools_execute(self, call: Any, proceed: Any) -> Any:
            if call.name == "sleeps" and not begun:
                await anyio.sleep(50)
            return await proceed(call)

    @tool
    async def sleeps() -> None:
        """Sleep."""
        await anyio.sleep(100)

    @tool(timeout_s=5)
    async def outer(context: ToolContext) -> None:
        """Call it."""
        await context.call("sleeps", {})

    result, events = play(run, call("outer"), "done", tools=[outer, sleeps], plugins=[Slow()])
    assert result.ok
    codes = [(e.call_id, e.error.code) for e in of(events, ev.ToolResulted)]
    assert codes == [("c1.1.1.1", "OUTCOME_UNKNOWN" if begun else "NOT_STARTED"), ("c1.1.1", "TIMEOUT")]


def test_C2_cancelling_the_turn_answers_nested_calls(run):
    @tool
    async def outer(context: ToolContext) -> None:
        """Call it."""
        await context.call("sleeps", {})

    @tool
    async def sleeps() -> None:
        """Sleep."""
        await anyio.sleep(100)

    async def act(agent: Any) -> Any:
        receipt = agent.send("go")
        await anyio.sleep(1)
        agent.cancel()
        return await receipt.result()

    result, events = play(run, call("outer"), tools=[outer, sleeps], act=act)
    assert result.reason.kind == "cancelled"
    assert [e.error.code for e in of(events, ev.ToolResulted)] == ["OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN"]


def test_X7_what_a_tool_leaves_running_ends_with_it(run):
    late: list[Any] = []

    @tool
    async def sleeps() -> None:
        """Sleep."""
        await anyio.sleep(100)

    async def main() -> Any:
        async with anyio.create_task_group() as outside:

            @tool
            async def leaks(context: ToolContext) -> str:
                """Leave a nested call running."""

                async def nested() -> None:
                    try:
                        await context.call("sleeps", {})
                    except ToolError as exc:
                        late.append(str(exc))

                outside.start_soon(nested)
                await anyio.sleep(1)
                late.append(context)
                return "left"

            async with Agent(ScriptedModel(call("leaks"), "done"), tools=[leaks, sleeps]) as agent:
                result = await agent.run("go")
                try:
                    await late[0].call("sleeps", {})
                except ToolError as exc:
                    late.append(str(exc))
                return result, list(agent.session.events)

    result, events = run(main)
    assert result.ok
    assert [(e.call_id, e.error and e.error.code) for e in of(events, ev.ToolResulted)] == [
        ("c1.1.1.1", "OUTCOME_UNKNOWN"),
        ("c1.1.1", None),
    ]
    assert len(late) == 3 and all("c1.1.1" in text for text in late[1:])


def test_X1_an_exclusive_tool_is_nested_only_in_an_exclusive_one(run):
    @tool(exclusive=True)
    async def alone() -> str:
        """Run alone."""
        return "alone"

    @tool
    async def loose(context: ToolContext) -> str:
        """Call alone."""
        return (await context.call("alone", {})).content[0].text

    @tool(exclusive=True)
    async def strict(context: ToolContext) -> str:
        """Call alone."""
        return (await context.call("alone", {})).content[0].text

    _, events = play(run, [call("loose"), call("strict")], "done", tools=[alone, loose, strict])
    texts = [e.content[0].text for e in of(events, ev.ToolResulted)]
    assert "runs alone" in texts[0] and texts[2:] == ["alone", "alone"]


def test_X7_siblings_and_nested_calls_at_once(run):
    result, events = play(
        run, [call("both", {"n": n}) for n in range(6)], "done", tools=[leaf, both], max_parallel_tool_calls=3
    )
    assert result.ok and len(of(events, ev.ToolResulted)) == 18


def test_C12_a_tool_in_a_thread_is_told_to_be_async(run):
    @tool
    def threaded(context: ToolContext) -> str:
        """Call from a thread."""
        coroutine = context.call("leaf", {"n": 1})
        try:
            coroutine.send(None)
        except Exception as exc:
            return type(exc).__name__
        return "nothing"

    _, events = play(run, call("threaded"), "done", tools=[leaf, threaded])
    assert of(events, ev.ToolResulted)[0].content[0].text == "WrongThread"


# --- faults ---------------------------------------------------------------------------------------------


def test_no_single_fault_around_nested_calls_breaks_a_turn(faults):
    """Every seam of a step with nested calls fails in every way: balance, results and the next turn stay right."""
    from checkrein.testing import SeamModel, Seen, seam_plugin, seam_tool, sweep
    from checkrein.testing.faults import KINDS
    from checkrein_invariants import check_events

    async def scenario(seams: Any) -> Any:
        async def inner(n: int) -> int:
            """Double."""
            await anyio.sleep(1)
            return 2 * n

        async def outer(context: ToolContext, n: int) -> str:
            """Call inner twice at once, and once more."""
            async with anyio.create_task_group() as group:
                group.start_soon(context.call, "inner", {"n": n})
                group.start_soon(context.call, "inner", {"n": n + 1})
            return (await context.call("inner", {"n": 9})).content[0].text

        tools = [seam_tool(inner, seams, timeout_s=60), seam_tool(outer, seams, timeout_s=90)]
        model = SeamModel(ScriptedModel([call("outer", {"n": 1}), call("inner", {"n": 5})], "done"), seams)
        async with Agent(model, tools=tools, plugins=[seam_plugin(seams)]) as agent:
            seams.actions["cancel"] = agent.cancel
            kind = "KeyboardInterrupt"
            try:
                kind = (await agent.run("go")).reason.kind
            except (KeyboardInterrupt, GateClosed):
                pass
            await agent.idle()
            found = [f"{v.rule} at {v.seq}: {v.message}" for v in check_events(agent.session.events)]
            for event in agent.session.events:
                if type(event) is ev.TurnEnd and event.reason.error == "internal":
                    found.append(f"ended internal: {event.reason.message}")
            state = agent.session.state
            if state.turn_open or state.due or any(not c.resulted for c in state.calls.values()):
                found.append("something is open")
            return Seen(kind, found)

    sweep(scenario, kinds=[*KINDS, "cancel"], limit=faults and 2 * faults).check()


def test_X7_a_nested_call_names_its_tool(run):
    """A tool instead of its name failed as an event that cannot be encoded; a number was logged as a name (L5)."""
    said: list[str] = []

    @tool(read_only=True)
    async def wrong(context: ToolContext) -> str:
        for name in (leaf, 3):
            with pytest.raises(ToolError) as info:
                await context.call(name, {"n": 1})  # type: ignore[arg-type]
            said.append(str(info.value))
        return "ok"

    result, events = play(run, call("wrong", {}), "done", tools=[leaf, wrong])
    assert result.ok and len(of(events, ev.ToolCalled)) == 1
    assert said == [
        "expected the name of a tool, got FunctionTool; call 'leaf'",
        "expected the name of a tool, got int",
    ]


def test_X7_a_tool_may_change_the_outcome_it_got_not_what_is_logged(run):
    """As tools do that add a member to what another one found: the log's event changed with it (L2)."""

    @tool(read_only=True)
    async def found() -> dict[str, Any]:
        return {"rows": [1]}

    @tool(read_only=True)
    async def more(context: ToolContext) -> Any:
        asked = await context.call("found", {})
        asked.value["rows"].append(2)
        asked.content.clear()
        return asked.value

    result, events = play(run, call("more", {}), "done", tools=[found, more])
    assert result.ok
    inner, outer = of(events, ev.ToolResulted)
    assert (inner.value, inner.content[0].text) == ({"rows": [1]}, '{"rows":[1]}')
    assert outer.value == {"rows": [1, 2]}
