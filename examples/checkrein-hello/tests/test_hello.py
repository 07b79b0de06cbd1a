"""The plugin under a scripted model: no network, no mocks; the oracle looks on by itself."""

import anyio
from checkrein_hello import Plugin

from checkrein import Agent
from checkrein.testing import ScriptedModel, call


def results(never: tuple[str, ...]) -> list[str]:
    async def talk() -> list[str]:
        model = ScriptedModel([call("hello", {"name": "Ada"}), call("hello", {"name": "Mallory"})], "done")
        async with Agent(model, plugins=[Plugin(Plugin.Config(never))]) as agent:
            await agent.run("greet them")
            messages = agent.next_request().messages
        return [message.content[0].text for message in messages if hasattr(message, "call_id")]

    return anyio.run(talk)


def test_greets() -> None:
    assert results(()) == ["Hello, Ada!", "Hello, Mallory!"]


def test_guard() -> None:
    assert results(("Mallory",)) == ["Hello, Ada!", "denied: Mallory is not greeted here"]
