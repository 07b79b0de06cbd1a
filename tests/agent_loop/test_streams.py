"""`agent.stream()`: one turn, live, whole and bounded, however slow the consumer."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopkit import add, of, plugin, reasons, said

from checkrein import Agent, AgentDisposed, GateClosed, InboxFull, TextDelta, ToolCall, ToolContext, tool
from checkrein import events as ev
from checkrein.chunks import TextChunk, ThinkingChunk
from checkrein.live import ThinkingDelta, ToolProgress, ToolResult, TurnEnd
from checkrein.messages import content_text
from checkrein.testing import ScriptedModel, call, text, thinking, wait
from checkrein.testing.script import hang, torn


def test_stream_yields_one_union_in_the_order_it_happened(run, scripted):
    """Deltas before the event that holds them, calls with their arguments, results, and the end last."""
    model = scripted([thinking("hm"), text("let me", pieces=2), call("add", {"a": 1, "b": 2})], "3")

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent:
            async with agent.stream("1+2?") as turn:
                seen = [item async for item in turn]
                result = await turn.result()
            return agent, seen, result

    _agent, seen, result = run(main)
    assert result.text == "3"
    logged = [item for item in seen if not isinstance(item, (TextDelta, ThinkingDelta))]
    unwrapped = [getattr(item, "event", item) for item in logged]
    assert unwrapped == list(result.events[1:])  # all the turn's events, from its input on
    names = [type(item).__name__ for item in seen]
    assert names.index("ThinkingDelta") < names.index("TextDelta") < names.index("AssistantAnswer")
    assert names[-1] == "TurnEnd"
    asked = next(item for item in seen if isinstance(item, ToolCall))
    assert (asked.name, asked.call_id, asked.arguments) == ("add", "c1.1.1", '{"a":1,"b":2}')
    answered = next(item for item in seen if isinstance(item, ToolResult))
    assert (answered.call_id, answered.is_error) == ("c1.1.1", False)


def test_stream_shows_only_its_own_turn(run, scripted):
    """What ran before it, and what comes after, is not in it."""
    model = scripted([wait(5), text("one")], "two", "three")

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.send("a")
            await anyio.sleep(1)
            async with agent.stream("b") as turn:
                agent.send("c")
                words = [item.text async for item in turn if isinstance(item, TextDelta)]
            await agent.idle()
            return words, (await turn.result()).turn

    words, number = run(main)
    assert words == ["two"] and number == 2


def test_leaving_a_stream_early_cancels_the_turn(run, scripted):
    """break, or the end of the block: cancelled, and the block is left behind turn/end (case X03)."""
    model = scripted([text("a b c d", pieces=4), wait(3600)], "ok")
    ran: list[str] = []

    @tool
    async def never() -> str:
        """Never."""
        ran.append("ran")
        return "x"

    async def main() -> Any:
        async with Agent(model, tools=[never]) as agent:
            async with agent.stream("go") as turn:
                async for item in turn:
                    if isinstance(item, TextDelta):
                        break
            assert reasons(agent) == ["cancelled"]
            result = await turn.result()
            assert (await agent.run("on")).ok
            return agent, result

    agent, result = run(main)
    assert result.reason.cause.kind == "user"
    assert "".join(e.text for e in of(agent, "assistant/partial")) == "a b c d"
    assert not ran


def test_an_exception_in_the_block_leaves_unchanged_and_cancels(run, scripted):
    """Cause task; the exception is the caller's own."""
    model = scripted(hang(), "ok")
    mine = ValueError("mine")

    async def main() -> Any:
        async with Agent(model) as agent:
            with pytest.raises(ValueError, match="mine") as caught:
                async with agent.stream("go"):
                    await anyio.sleep(1)
                    raise mine
            assert caught.value is mine
            return of(agent, "turn/end")[0].reason

    assert run(main).cause.kind == "task"


def test_detach_lets_the_turn_go_on(run, scripted):
    """An explicit decision."""
    model = scripted([wait(60), text("done")])

    async def main() -> Any:
        async with Agent(model) as agent:
            async with agent.stream("go") as turn:
                turn.detach()
            assert agent.status == "running"
            assert not agent.live
            return await turn.result()

    assert run(main).text == "done"


def test_leaving_before_the_turn_began_withdraws_the_input(run, scripted):
    """It was pending: discarded with a reason, the running turn is not touched."""
    model = scripted([wait(60), text("one")])

    async def main() -> Any:
        async with Agent(model) as agent:
            first = agent.send("a")
            await anyio.sleep(1)
            async with agent.stream("b") as turn:
                pass
            assert turn.receipt.status.state == "discarded"
            assert not agent.inbox.waited
            return agent, await first.result()

    agent, result = run(main)
    assert result.ok
    assert said(agent) == ["a"]


@pytest.mark.parametrize("buffer", [1, 2, 7])
def test_a_slow_consumer_with_a_small_buffer_gets_the_whole_text(run, scripted, buffer):
    """Deltas of one block are joined; the loop never waits; events are read back from the log."""
    pieces = [f"w{n} " for n in range(300)]
    model = scripted([*[text(piece, index=0) for piece in pieces], call("add", {"a": 1, "b": 2})], [text("end")])

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent:
            seen: list[Any] = []
            async with agent.stream("go", buffer=buffer) as turn:
                await anyio.sleep(10)  # everything has happened
                assert agent.status == "idle"
                held = len(turn._buffer.items)
                async for item in turn:
                    await anyio.sleep(1)
                    seen.append(item)
            return seen, held

    seen, held = run(main)
    assert held <= max(buffer, 4)
    assert "".join(item.text for item in seen if isinstance(item, TextDelta)) == "".join(pieces) + "end"
    assert next(item.arguments for item in seen if isinstance(item, ToolCall)) == '{"a":1,"b":2}'
    assert isinstance(seen[-1], TurnEnd)


def test_a_consumer_that_comes_late_to_its_items_reads_each_calls_own_arguments(run, scripted):
    """Not those of the latest answer."""
    model = scripted(call("add", {"a": 1, "b": 1}), call("add", {"a": 2, "b": 2}), "ok")

    async def main() -> Any:
        async with Agent(model, tools=[add]) as agent, agent.stream("go") as turn:
            await anyio.sleep(10)
            return [item.arguments async for item in turn if isinstance(item, ToolCall)]

    assert run(main) == ['{"a":1,"b":1}', '{"a":2,"b":2}']


def test_progress_of_a_tool_is_live_and_never_logged(run, scripted):
    """From the loop and from a thread."""
    model = scripted([call("works"), call("works_in_a_thread")], "ok")

    @tool
    async def works(ctx: ToolContext) -> str:
        """Work."""
        ctx.progress("half way")
        return "x"

    @tool
    def works_in_a_thread(ctx: ToolContext) -> str:
        """Work."""
        ctx.progress("from a thread")
        return "x"

    async def main() -> Any:
        async with Agent(model, tools=[works, works_in_a_thread]) as agent, agent.stream("go") as turn:
            return agent, [item.text async for item in turn if isinstance(item, ToolProgress)]

    agent, lines = run(main)
    assert sorted(lines) == ["from a thread", "half way"]
    assert "half way" not in repr(agent.session.lines)


def test_a_stream_has_one_consumer(run, scripted):
    """A second one is told, instead of taking the first one's items or hanging (case X02)."""
    model = scripted(hang())

    async def main() -> Any:
        async with Agent(model) as agent, agent.stream("go") as turn:
            raised: list[BaseException] = []

            async def consume() -> None:
                try:
                    async for _ in turn:
                        pass
                except RuntimeError as exc:
                    raised.append(exc)

            async with anyio.create_task_group() as group:
                group.start_soon(consume)
                group.start_soon(consume)
                await anyio.sleep(1)
                agent.cancel()
            return raised

    raised = run(main)
    assert len(raised) == 1 and "one consumer" in str(raised[0])


def test_a_consumer_that_is_cancelled_may_go_on_reading(run, scripted):
    """No scope is open across a yield: a timeout around one item breaks nothing (case X02)."""
    model = scripted([text("a"), wait(10), text("b")])

    async def main() -> Any:
        async with Agent(model) as agent, agent.stream("go") as turn:
            words, timeouts = [], 0
            while True:
                with anyio.move_on_after(2) as scope:
                    try:
                        item = await anext(turn)
                    except StopAsyncIteration:
                        break
                if scope.cancelled_caught:
                    timeouts += 1
                elif isinstance(item, TextDelta):
                    words.append(item.text)
            return words, timeouts, model

    words, timeouts, model = run(main)
    assert words == ["a", "b"] and timeouts >= 3
    assert model.opened == model.closed == 1


def test_a_stream_whose_input_is_withdrawn_ends(run, scripted):
    """There will be no turn: the iteration ends, a second one too; result() says why."""
    model = scripted([wait(60), text("one")])

    async def main() -> Any:
        async with Agent(model) as agent:
            first = agent.send("a")
            await anyio.sleep(1)
            async with agent.stream("b") as turn:
                agent.withdraw(turn.receipt.id, "not needed")
                items = [item for _ in range(2) async for item in turn]
                with pytest.raises(Exception, match="not needed"):
                    await turn.result()
            await first.result()
            return items

    assert run(main) == []


def test_a_stream_that_waits_for_its_turn_ends_with_the_agent(run, scripted):
    """Disposed before it began: no hang, no leak from the block; result() raises AgentDisposed."""
    model = scripted(hang())

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.send("a")
            await anyio.sleep(1)
            async with anyio.create_task_group() as group, agent.stream("b") as turn:

                async def dispose() -> None:
                    await anyio.sleep(5)
                    await agent.dispose()

                group.start_soon(dispose)
                items = [item async for item in turn]
                with pytest.raises(AgentDisposed):
                    await turn.result()
            return agent, items

    agent, items = run(main)
    assert items == []
    assert list(agent.session.state.pending) == ["i2"]


def test_a_stream_refused_at_the_door_leaves_nothing_attached(run, scripted):
    """InboxFull, empty content, a closed gate."""
    model = scripted([wait(5), text("x")])
    gates: list[str] = []

    def flush(gate: str) -> None:
        if gates:
            raise OSError("disk full")

    async def main() -> None:
        async with Agent(model, inbox_max=1, plugins=[plugin(session_flush=flush)]) as agent:
            with pytest.raises(ValueError, match="expected input"):
                async with agent.stream(""):
                    pass
            agent.send("a")
            await anyio.sleep(1)
            agent.send("b")
            with pytest.raises(InboxFull):
                async with agent.stream("c"):
                    pass
            agent.cancel(discard_pending=True)
            await agent.idle()
            gates.append("closed")
            with pytest.raises(GateClosed):
                async with agent.stream("d") as turn:
                    async for _ in turn:
                        pass
                    await turn.result()
            assert not agent.live and not agent.inbox.waited

    run(main)


def test_a_stream_left_behind_its_turns_end_cancels_nobody_elses(run, scripted):
    """A slow consumer that breaks off when its turn is over: what runs by then is not its turn."""
    model = scripted("one", [wait(5), text("two")])

    async def main() -> Any:
        async with Agent(model) as agent:
            async with agent.stream("mine") as turn:
                async for _ in turn:
                    other = agent.send("another's")
                    await anyio.sleep(1)
                    break
            assert (await turn.result()).text == "one"
            return await other.result()

    result = run(main)
    assert (result.reason.kind, result.text) == ("completed", "two")


def test_a_stream_that_was_left_ends_and_is_not_entered_again(run, scripted):
    """Behind the block it yields what it had, and waits for nothing: nobody would wake it."""
    model = scripted([text("so far"), wait(5), text("more")])

    async def main() -> Any:
        async with Agent(model) as agent:
            async with agent.stream("go") as turn:
                await anyio.sleep(1)
                turn.detach()
            with anyio.fail_after(1):
                words = [item.text async for item in turn if isinstance(item, TextDelta)]
            with pytest.raises(RuntimeError, match="once"):
                await turn.__aenter__()
            assert (await turn.result()).ok
            return agent, words

    agent, words = run(main)
    assert words == ["so far"]
    assert said(agent) == ["go"]


ODD = st.text(alphabet=["a", "\u00e9", "\ud83d", "\ude00", "\U0001f600", "\ufffd"], max_size=3)


@given(pieces=st.lists(st.tuples(st.booleans(), ODD), max_size=8), end=st.sampled_from(["whole", "torn"]))
def test_L9_the_deltas_of_a_block_are_its_text_in_the_log_wherever_a_pair_is_split(pieces, end):
    said = [ThinkingChunk(0, piece) if hidden else TextChunk(1, piece) for hidden, piece in pieces]

    async def main() -> tuple[list[Any], list[Any]]:
        model = ScriptedModel([*said, TextChunk(1, "."), *([torn()] if end == "torn" else [])])
        async with Agent(model) as agent, agent.stream("go") as turn:
            return [item async for item in turn], list(agent.session.events)

    seen, events = anyio.run(main)
    logged = {TextDelta: "", ThinkingDelta: ""}
    for event in events:
        if isinstance(event, ev.AssistantThinking):
            logged[ThinkingDelta] += event.text
        elif isinstance(event, (ev.AssistantAnswer, ev.AssistantPartial)):
            logged[TextDelta] += event.text if isinstance(event, ev.AssistantPartial) else content_text(event.content)
    for kind, whole in logged.items():
        shown = [item.text for item in seen if isinstance(item, kind)]
        assert "".join(shown) == whole
        assert not [piece for piece in shown if any("\ud800" <= char <= "\udfff" for char in piece)]
