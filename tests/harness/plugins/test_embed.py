"""What `Agent(...)` is given: the plugins it names (H5), and the members of its AgentSpec."""

from __future__ import annotations

from typing import Any

import pytest
from loadkit import GOOD, RAISING

from checkrein import Agent
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
