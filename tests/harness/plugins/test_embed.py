"""H5 where a program names its plugins: `Agent(plugins=["limit"])`."""

from __future__ import annotations

from typing import Any

import pytest
from loadkit import GOOD, RAISING

from checkrein import Agent
from checkrein.errors import PluginError
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
