"""What needs trust in a project's file, by itself; through the command line in tests/e2e/test_config.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkrein.config import load_config
from checkrein.config.trust import beyond, check_found, digest
from checkrein.config.types import AgentConfig, HarnessConfig, PluginsConfig
from checkrein.errors import ConfigError
from checkrein.harness import Harness

NEEDS: dict[str, Any] = {
    "guard": ("*",),
    "host": ("url",),
    "free": (),
    "picky": lambda table: ["url"] if table.get("url") == "far" else [],
}


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({}, []),
        ({"model": "a:b", "agents": [{"id": "x", "tools": ["*"]}], "limits": {}, "session": {}}, []),
        ({"plugins": {"block": [], "free": {"url": "x"}, "unknown": {"url": "x"}}}, []),
        ({"plugins": {"picky": {"url": "far", "port": 1}}}, ["plugins.picky.url"]),
        ({"plugins": {"picky": {"url": "near", "port": 1}}}, []),
        ({"plugins": {"guard": {"mode": 1, "deny": 2}}}, ["plugins.guard.mode", "plugins.guard.deny"]),
        ({"plugins": {"host": {"url": "x", "timeout_s": 1}, "guard": {}}}, ["plugins.host.url"]),
        ({"agents": [{"id": "x"}, {"id": "y", "plugins": {"host": {"url": 1}}}]}, ["agents[1].plugins.host.url"]),
    ],
)
def test_what_reaches_beyond_the_folder(document: dict[str, Any], paths: list[str]) -> None:
    assert beyond(document, NEEDS) == paths


def test_a_new_section_is_looked_at_before_a_found_file_may_set_it(tmp_path: Path) -> None:
    """Every section is either harmless or said aloud; every switch of `[plugins]` is said aloud."""
    harmless = {"model", "agents", "session", "limits"}
    assert set(HarnessConfig.__struct_fields__) == {*harmless, "loop", "plugins"}
    environ = {"CHECKREIN_CONFIG_HOME": str(tmp_path / "home")}
    file = tmp_path / "checkrein.toml"
    for switch in {*PluginsConfig.__struct_fields__} - {"tables"}:
        value = "true" if switch == "autoload" else "[]"
        file.write_text(f"plugins.{switch} = {value}\n")
        loaded = load_config(cwd=tmp_path, environ=environ)
        assert f"sets plugins.{switch};" in (check_found(loaded, {}, environ) or "")
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


def test_a_program_names_the_file_it_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CHECKREIN_CONFIG_HOME", str(tmp_path / "home"))
    file = tmp_path / "checkrein.toml"
    file.write_text('plugins.openai.base_url = "https://other.example/v1"\nplugins.block = ["demo"]\n')
    with pytest.raises(ConfigError, match=r"plugins\.openai\.base_url, got one that was found.*config trust"):
        Harness(workspace=tmp_path).load()
    for named in (file, tmp_path):
        assert "demo" not in [each.name for each in Harness(named).load() if each.state == "loaded"]
    assert not caplog.records
    file.write_text('plugins.block = ["demo"]\n')
    assert "demo" not in [each.name for each in Harness(workspace=tmp_path).load() if each.state == "loaded"]
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{file} was found in this folder and sets plugins.block; ")
