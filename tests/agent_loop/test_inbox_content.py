"""I3, L5, L9: what input may be: refused where no log or provider would take it, cleaned, made what they take."""

from __future__ import annotations

from typing import Any

import pytest
from loopkit import of

from checkrein import Agent
from checkrein.messages import MediaBlock, Source, TextBlock
from checkrein.session import Session


@pytest.mark.parametrize("content", ["", "  \n", [], [TextBlock("")]])
def test_I3_input_that_says_nothing_is_refused(run, scripted, content):
    """The caller is told; nothing is logged, nothing begins."""
    model = scripted()

    async def main() -> Any:
        async with Agent(model) as agent:
            for act in (agent.send, agent.steer, agent.inject):
                with pytest.raises(ValueError, match="expected input"):
                    act(content)
            with pytest.raises(ValueError, match="expected input"):
                await agent.run(content)
            assert agent.status == "idle"
            return agent

    assert not of(run(main), "inbox/accepted")


class Markup(str):
    """Text as a template engine makes it."""

    def __str__(self) -> str:
        return f"<{str.__str__(self)}>"


@pytest.mark.parametrize(
    "content",
    [
        5,
        None,
        [5],
        TextBlock(5),
        TextBlock("x", provider_metadata=5),
        MediaBlock("image/png"),
        MediaBlock("image/png", data="aGk=", url="https://x.test/a.png"),
        MediaBlock("image/png", data=5),
        MediaBlock("image/png", data="data:image/png;base64,aGk="),
        MediaBlock(5, data="aGk="),
    ],
)
def test_L5_input_that_no_log_or_provider_would_take_is_refused(run, scripted, content):
    """It would go into the history, and the provider would refuse this request and each one after it."""
    model = scripted()

    async def main() -> Any:
        async with Agent(model) as agent:
            for act in (agent.send, agent.steer, agent.inject):
                with pytest.raises((TypeError, ValueError), match=r"[Ee]xpected"):
                    act(content)
            return agent

    assert not of(run(main), "inbox/accepted")


def test_L5_input_is_made_what_providers_take(run, scripted):
    """Text of a subclass is text, bytes are base64, lines in that are joined."""
    model = scripted("ok", record=True)
    content = [TextBlock(Markup("a")), MediaBlock("image/png", data=b"hi"), MediaBlock("image/png", data="aG\nk=\n")]

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.inject(Markup("b"))
            (await agent.run(content)).check()
            return agent

    again = Session.load("again", (agent := run(main)).session.events, agent.session.lines)
    assert list(again.state.history.view()) == list(agent.session.state.history.view())
    said = [block for message in model.requests[0].messages for block in message.content]
    image = MediaBlock("image/png", data="aGk=")
    assert sorted(map(repr, said)) == sorted(map(repr, [TextBlock("a"), TextBlock("b"), image, image]))


def test_L9_an_inputs_text_and_the_names_of_its_source_are_cleaned_and_counted(run, scripted):
    """As it is accepted, and as it is replaced; nothing is said where nothing was cleaned."""
    model = scripted("ok")

    async def main() -> Any:
        async with Agent(model) as agent:
            agent.inject("half \ud800")
            agent.inject("whole", source=Source("client", name="n\ud800", id="i\ud800"))
            plain = agent.inject("plain", source=Source("client", name="n", id="i"))
            agent.replace(plain.id, "\ud800 \ud801")
            agent.replace(plain.id, "plain again")
            return agent

    agent = run(main)
    accepted = of(agent, "inbox/accepted")
    assert [event.cleaned for event in accepted] == [1, 2, None]
    assert (accepted[1].source.name, accepted[1].source.id) == ("n\ufffd", "i\ufffd")
    assert [event.cleaned for event in of(agent, "inbox/replaced")] == [2, None]
