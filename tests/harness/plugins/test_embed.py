"""What `Agent(...)` is given: the plugins it names (H5), and the members of its AgentSpec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from loadkit import GOOD, RAISING

from checkrein import Agent, AgentSpec, Harness
from checkrein.errors import ConfigError, PluginError
from checkrein.testing import ScriptedModel


def test_H5_a_plugin_an_agent_names_and_that_is_not_installed_is_refused() -> None:
    """A misspelt guard guards nothing: it is not passed over."""
    with pytest.raises(PluginError, match=r"got 'permisions'; did you mean 'permissions'"):
        Agent(ScriptedModel(), plugins=["permisions"])


@pytest.mark.parametrize(("source", "loads"), [(GOOD, True), (RAISING, False)], ids=["good", "raising"])
def test_H5_a_plugin_an_agent_names_is_required(install: Any, source: str, loads: bool) -> None:
    """One that fails to import stops the start, as one that the config names."""
    install("acme-limit", {"limit": source})
    agent = Agent(ScriptedModel("hi"), plugins=["limit"])
    if loads:
        assert agent.run_sync("go").ok
    else:
        with pytest.raises(PluginError, match="no such device"):
            agent.run_sync("go")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_steps": "5"}, "expected int, got str .at AgentSpec.'main'..max_steps"),
    ({"max_parallel_tool_calls": 0}, "expected int >= 1, got 0"),
    ({"queue_mode": "One"}, "got 'One'; did you mean 'one'"),
    ({"id": "a b"}, "without blanks"),
    ({"settings": [1]}, "settings"),
    ({"system_prompt": None}, "system_prompt"),
]


@pytest.mark.parametrize(("member", "says"), WRONG, ids=[next(iter(member)) for member, _ in WRONG])
def test_what_an_agent_is_made_of_is_held_to_what_a_file_may_say(member: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Agent(ScriptedModel("hi"), **member).run_sync("go")


LISTS: list[tuple[dict[str, Any], str]] = [
    ({"tools": print}, r"expected a list of tools, got <built-in function print>; write tools=\[...\]"),
    ({"plugins": "files"}, "expected a list of plugins, got 'files'"),
]


@pytest.mark.parametrize(("member", "says"), LISTS, ids=["tools", "plugins"])
@pytest.mark.parametrize("kind", [Agent, Harness])
def test_one_instead_of_a_list_of_them_is_said(kind: Any, member: dict[str, Any], says: str, tmp_path: Path) -> None:
    given = (ScriptedModel("hi"),) if kind is Agent else ()
    with pytest.raises(ConfigError, match=says):
        kind(*given, workspace=tmp_path, **member)


@pytest.mark.parametrize("model", [3, None, object()])
def test_a_model_is_an_id_or_a_provider(model: Any) -> None:
    with pytest.raises(ConfigError, match="`provider:model`, `auto` or a Provider object"):
        Agent(model)


def test_who_uses_an_agent_that_is_not_entered_is_told_how() -> None:
    agent: Any = Agent(ScriptedModel("hi"))
    for name in ("run", "stream", "session"):
        with pytest.raises(AttributeError, match=rf"'{name}' before it is entered: `async with Agent.*run_sync"):
            getattr(agent, name)
    with pytest.raises(AttributeError, match=r"^an Agent has no 'rnu'$"):
        agent.rnu  # noqa: B018
    assert not hasattr(agent, "__len__") and agent.run_sync("go").text == "hi"


def test_run_sync_where_an_event_loop_runs_is_told_what_to_write() -> None:
    """As in a notebook."""

    async def cell() -> None:
        Agent(ScriptedModel("hi")).run_sync("go")

    with pytest.raises(RuntimeError, match="one runs here already; write `async with Agent"):
        anyio.run(cell)


def test_agents_are_made_in_an_open_harness_of_a_spec() -> None:
    spec = AgentSpec(id="other", model="scripted:x")

    async def main() -> None:
        harness = Harness(providers=[ScriptedModel("hi")], overrides={"model": "scripted:x"}, found=())
        for act in (lambda: harness.create_agent(spec), lambda: harness.resume("s")):
            with pytest.raises(ConfigError, match="not open yet: `async with Harness"):
                await act()
        async with harness:
            wrong: Any = "other"
            with pytest.raises(ConfigError, match=r"expected AgentSpec\(.*got str 'other'"):
                await harness.create_agent(wrong)
            assert (await (await harness.create_agent(spec)).run("go")).text == "hi"
        with pytest.raises(ConfigError, match="this one is closed"):
            await harness.create_agent(spec)

    anyio.run(main)
