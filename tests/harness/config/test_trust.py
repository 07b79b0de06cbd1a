"""What needs trust in a project's file, by itself; through the command line in tests/e2e/test_config.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkrein.config.trust import beyond, digest
from checkrein.config.types import AgentConfig, HarnessConfig, PluginsConfig
from checkrein.errors import ConfigError
from checkrein.harness import Harness

NEEDS = {"guard": ("*",), "host": ("url",), "free": ()}


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({}, []),
        ({"model": "a:b", "agents": [{"id": "x", "tools": ["*"]}], "limits": {}, "session": {}}, []),
        ({"loop": "default"}, ["loop"]),
        ({"plugins": {"block": [], "free": {"url": "x"}, "unknown": {"url": "x"}}}, ["plugins.block"]),
        ({"plugins": {"guard": {"mode": 1, "deny": 2}}}, ["plugins.guard.mode", "plugins.guard.deny"]),
        ({"plugins": {"host": {"url": "x", "timeout_s": 1}, "guard": {}}}, ["plugins.host.url"]),
        ({"agents": [{"id": "x"}, {"id": "y", "plugins": {"host": {"url": 1}}}]}, ["agents[1].plugins.host.url"]),
    ],
)
def test_what_reaches_beyond_the_folder(document: dict[str, Any], paths: list[str]) -> None:
    assert beyond(document, NEEDS) == paths


def test_a_new_section_is_looked_at_before_a_found_file_may_set_it() -> None:
    harmless = {"model", "agents", "session", "limits"}
    assert set(HarnessConfig.__struct_fields__) == {*harmless, "loop", "plugins"}
    for switch in {*PluginsConfig.__struct_fields__} - {"tables"}:
        assert beyond({"plugins": {switch: []}}, {}) == [f"plugins.{switch}"]
    assert "plugins" in AgentConfig.__struct_fields__


def test_trust_is_for_what_is_said_of_loop_and_plugins() -> None:
    said: dict[str, Any] = {"plugins": {"a": {"x": 1, "y": 2}}, "agents": [{"id": "m", "plugins": {"a": {"x": 2}}}]}
    more = {"model": "x:y", "agents": [{"max_steps": 3, **said["agents"][0]}, {"id": "n"}]}
    assert digest(said) == digest({**said, **more, "plugins": {"a": {"y": 2, "x": 1}}})
    others = [
        {**said, "loop": "other"},
        {**said, "agents": [{"id": "n", "plugins": {"a": {"x": 2}}}]},
        {**said, "plugins": {"a": {"x": 1, "y": 3}}},
        {"plugins": said["plugins"]},
    ]
    assert len({digest(each) for each in [said, *others]}) == 5


def test_a_program_names_the_file_it_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKREIN_CONFIG_HOME", str(tmp_path / "home"))
    file = tmp_path / "checkrein.toml"
    file.write_text('plugins.block = ["demo"]\n')
    with pytest.raises(ConfigError, match=r"plugins\.block, got one that was found.*config trust"):
        Harness(workspace=tmp_path).load()
    for named in (file, tmp_path):
        assert "demo" not in [each.name for each in Harness(named).load() if each.state == "loaded"]
