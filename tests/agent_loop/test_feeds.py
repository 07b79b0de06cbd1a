"""`harness.events()`: what all agents do, live, resumed from the log and bounded, however slow the consumer."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from loopkit import Latch, nap, plugin, results
from loopkit import house as harness

from checkrein import StepReset, TextDelta, ToolContext, tool
from checkrein.agents import AgentSpec
from checkrein.live import ThinkingDelta, ToolProgress, TurnEnd
from checkrein.memory_store import MemoryStore
from checkrein.testing import call, forever, text, thinking, wait


def test_harness_events_tells_of_all_agents_those_that_come_later_too(run, scripted):
    """Each in its own order, with agent, session and seq; it ends when the harness closes."""
    model = scripted(forever([text("a b", pieces=2)]))

    async def main() -> Any:
        seen: list[Any] = []
        house = harness(model, agents=("one", "two"))
        async with anyio.create_task_group() as group:
            await house.__aenter__()
            ready = Latch()

            async def follow() -> None:
                async with house.events() as feed:
                    ready.open()
                    seen.extend([item async for item in feed])

            group.start_soon(follow)
            await ready.wait()
            await house.agents["one"].run("x")
            await house.agents["two"].run("y")
            third = await house.create_agent(AgentSpec(id="three", model="scripted:x"))
            await third.run("z")
            sessions = {agent.id: agent.session for agent in house.agents}
            await house.__aexit__(None, None, None)
        return seen, sessions

    seen, sessions = run(main)
    assert {item.agent for item in seen} == {"one", "two", "three"}
    for name, session in sessions.items():
        mine = [item for item in seen if item.agent == name]
        events = [item for item in mine if not isinstance(item.item, TextDelta)]
        assert [item.seq for item in events] == [e.seq for e in session.events][-len(events) :]
        assert "".join(item.item.text for item in mine if isinstance(item.item, TextDelta)) == "a b"
        assert all(item.session == session.id for item in mine)
        assert [item.seq for item in mine] == sorted(item.seq for item in mine)
    assert next(item for item in seen if item.agent == "three").seq == 0  # from its very first event
    assert all(item.seq > 0 for item in seen if item.agent == "one")  # from now on


def test_harness_events_resumes_from_the_log(run, scripted):
    """`after` says what the consumer has: the rest is read back from the log, without a hole or a repetition."""
    model = scripted(forever("ok"))

    async def main() -> Any:
        async with harness(model) as house:
            agent = house.agents["main"]
            await agent.run("a")
            first: list[int] = []
            async with house.events({agent.session.id: -1}) as feed:
                async for item in feed:
                    first.append(item.seq)
                    if len(first) == 5:
                        break
            await agent.run("b")
            rest: list[int] = []
            async with house.events({agent.session.id: first[-1]}) as feed:
                async for item in feed:
                    rest.append(item.seq)
                    if item.seq == agent.session.events[-1].seq:
                        break
            return agent, first, rest

    agent, first, rest = run(main)
    assert first + rest == [event.seq for event in agent.session.events]


@pytest.mark.parametrize("known", [True, False])
def test_a_feed_goes_on_where_it_was_when_a_session_is_resumed(run, scripted, known):
    """It told the whole log again; what the consumer does not have of a session it named comes first, and once."""
    model = scripted(forever("ok"))

    async def main() -> Any:
        async with harness(model, store=MemoryStore()) as house:
            agent = house.agents["main"]
            await agent.run("a")
            session_id, before = agent.session.id, len(agent.session.events)
            await agent.dispose()
            seqs: list[int] = []
            async with house.events({session_id: 4} if known else None) as feed:

                async def read() -> None:
                    with anyio.move_on_after(1):
                        async for item in feed:
                            if not isinstance(item.item, TextDelta):
                                seqs.append(item.seq)

                for word in ("b", "c"):
                    agent = await house.resume(session_id)
                    await agent.run(word)
                    await read()
                    await agent.dispose()
                await read()
            return seqs, before, len(agent.session.events)

    seqs, before, after = run(main)
    assert seqs == list(range(5 if known else before, after))


def test_harness_events_with_a_slow_consumer_is_bounded_and_whole(run, scripted):
    """As a stream: joined, never a hole, and the agents do not wait."""
    pieces = [f"w{n} " for n in range(500)]
    model = scripted(forever([text(piece, index=0) for piece in pieces]))

    async def main() -> Any:
        async with harness(model, agents=("one", "two")) as house, house.events(buffer=4) as feed:
            for agent in house.agents:
                await agent.run("go")
            assert all(len(source.items) <= 8 for source in feed._sources.values())
            texts = {"one": "", "two": ""}
            ended = 0
            async for item in feed:
                if isinstance(item.item, TextDelta):
                    texts[item.agent] += item.item.text
                ended += isinstance(item.item, TurnEnd)
                if ended == 2:
                    return texts
        return None

    texts = run(main)
    assert texts == {"one": "".join(pieces), "two": "".join(pieces)}


def test_a_slow_consumer_keeps_the_latest_lines_of_progress_and_all_text(run, scripted):
    """A tool that tells of each of its lines took the memory for all of them, as long as nobody read."""

    @tool(read_only=True)
    async def count(context: ToolContext) -> str:
        for n in range(5_000):
            context.progress(str(n))
        return "done"

    model = scripted([text("a b c", pieces=3), call("count", {})], [text("d e", pieces=2)])

    async def main() -> Any:
        async with harness(model, tools=[count]) as house, house.events(buffer=40) as feed:
            await house.agents["main"].run("go")
            assert all(len(source.items) <= source.limit == 40 for source in feed._sources.values())
            items: list[Any] = []
            async for item in feed:
                items.append(item.item)
                if isinstance(item.item, TurnEnd):
                    return items
        return None

    items = run(main)
    lines = [int(item.text) for item in items if isinstance(item, ToolProgress)]
    assert 10 < len(lines) <= 40 and lines == list(range(5_000 - len(lines), 5_000))
    assert "".join(item.text for item in items if isinstance(item, TextDelta)) == "a b cd e"


def test_harness_events_agents_take_turns(run, scripted):
    """One that talks much does not starve the others of a slow consumer."""
    model = scripted(forever([text(f"w{n} ", index=n) for n in range(50)]))

    async def main() -> Any:
        async with harness(model, agents=("one", "two")) as house, house.events() as feed:
            for agent in house.agents:
                await agent.run("go")
            order = []
            async for item in feed:
                order.append(item.agent)
                if len(order) == 20:
                    return order
        return None

    order = run(main)
    assert order.count("one") == order.count("two") == 10


def test_harness_events_of_a_disposed_agent_are_read_to_the_end(run, scripted):
    """Its closing events too (trap X11)."""
    model = scripted([call("nap")])

    async def main() -> Any:
        async with harness(model, tools=[nap]) as house, house.events() as feed:
            agent = house.agents["main"]
            agent.send("go")
            await anyio.sleep(1)
            await agent.dispose()
            assert not feed._sources
            feed.close()
            return agent, [item.seq async for item in feed]

    agent, seen = run(main)
    assert seen[-1] == agent.session.events[-1].seq
    assert results(agent) == [("c1.1.1", "OUTCOME_UNKNOWN")]


def test_harness_events_shows_retries(run, scripted):
    """StepReset comes through, in its place."""
    from checkrein import Retry
    from checkrein.testing import error

    model = scripted([text("half"), error("SERVER")], "whole")

    async def main() -> Any:
        house = harness(model, plugins=[plugin(request_error=lambda error: Retry())])
        async with house, house.events() as feed:
            await house.agents["main"].run("go")
            shown: list[str] = []
            async for item in feed:
                if isinstance(item.item, (TextDelta, StepReset)):
                    shown.append(getattr(item.item, "text", "reset"))
                if isinstance(item.item, TurnEnd):
                    return shown
        return None

    assert run(main) == ["half", "reset", "whole"]


def test_harness_events_has_one_consumer_and_may_be_left_and_taken_again(run, scripted):
    """A second reader is told; after the block nothing is attached."""
    model = scripted(forever("ok"))

    async def main() -> Any:
        async with harness(model) as house:
            raised: list[BaseException] = []
            async with house.events() as feed:

                async def consume() -> None:
                    try:
                        async for _ in feed:
                            pass
                    except RuntimeError as exc:
                        raised.append(exc)

                async with anyio.create_task_group() as group:
                    group.start_soon(consume)
                    group.start_soon(consume)
                    await anyio.sleep(1)
                    group.cancel_scope.cancel()
            assert not house.feeds and not house.agents["main"].live
            return raised

    raised = run(main)
    assert len(raised) == 1 and "one consumer" in str(raised[0])


def test_a_feed_is_entered_and_once(run, scripted):
    """Iterated over without `async with` it waited for ever, entered again it was silently empty."""

    async def main() -> None:
        house = harness(scripted())
        async with house:
            with pytest.raises(RuntimeError, match="enter the feed first"):
                await anext(house.events())
            async with house.events() as feed:
                pass
            with pytest.raises(RuntimeError, match="entered once"):
                await feed.__aenter__()

    run(main)


def test_harness_events_brings_text_when_it_comes(run, scripted):
    """A page that follows a feed shows each piece of an answer at once, not at the answer's end."""
    model = scripted([text("a"), wait(50), text("b"), wait(50), text("c"), wait(50)])

    async def main() -> Any:
        house = harness(model)
        async with house, house.events() as feed:
            began = anyio.current_time()
            house.agents["main"].send("go")
            seen: list[tuple[str, float]] = []
            async for item in feed:
                if isinstance(item.item, TextDelta):
                    seen.append((item.item.text, anyio.current_time() - began))
                if isinstance(item.item, TurnEnd):
                    break
        return seen

    assert run(main) == [("a", 0), ("b", 50), ("c", 100)]


def test_harness_events_brings_progress_and_thinking_when_they_come(run, scripted):
    """Not with the next event: a tool may run for an hour."""
    model = scripted([thinking("hm"), wait(50), call("slow")], "done")

    @tool
    async def slow(context: ToolContext) -> str:
        """Tell, and go on."""
        context.progress("half")
        await anyio.sleep(50)
        return "x"

    async def main() -> Any:
        house = harness(model, tools=[slow])
        async with house, house.events() as feed:
            began = anyio.current_time()
            house.agents["main"].send("go")
            seen: list[tuple[str, float]] = []
            async for item in feed:
                if isinstance(item.item, (ThinkingDelta, ToolProgress)):
                    seen.append((item.item.text, anyio.current_time() - began))
                if isinstance(item.item, TurnEnd):
                    break
        return seen

    assert run(main) == [("hm", 0), ("half", 50)]


def test_harness_events_of_a_closed_harness_end_at_once(run, scripted):
    """A page that comes while a server shuts down is not kept waiting for ever."""

    async def main() -> Any:
        house = harness(scripted())
        async with house:
            pass
        with anyio.fail_after(5):
            async with house.events() as feed:
                return [item async for item in feed]

    assert run(main) == []
