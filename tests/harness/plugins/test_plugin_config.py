"""H5, H6: what is a plugin, the config it is made with, and config that stops the start."""

from __future__ import annotations

import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from loadkit import Bare, Limit, manager

from checkrein.agents import AgentSpec
from checkrein.config import PluginsConfig
from checkrein.config.check import problems_in
from checkrein.errors import ConfigError, PluginError
from checkrein.hookspecs import hookimpl
from checkrein.plugins import PluginManager


class WithStruct:
    class Config(msgspec.Struct, frozen=True):
        limit: int = 3

    def __init__(self, config: Config) -> None:
        self.config = config


def test_H6_a_class_is_made_with_its_typed_config() -> None:
    plugins = manager({"limit": {"max_calls": 3, "words": ["a"], "root": "/x"}, "struct": {"limit": 9}})
    plugins.add(Limit, "limit")
    plugins.add(WithStruct, "struct")
    plugins.add(Bare, "bare")
    reports = plugins.load()
    assert plugins.plugin("limit").config == Limit.Config(3, ("a",), Path("/x"))
    assert plugins.plugin("struct").config.limit == 9
    assert isinstance(plugins.plugin("bare"), Bare)
    assert [report.name for report in reports] == ["limit", "struct", "bare"]
    assert reports[0].hooks == ("tools_guard",)
    assert plugins.config_types() == {"limit": Limit.Config, "struct": WithStruct.Config, "bare": None}


def test_H6_modules_and_instances_are_plugins_too() -> None:
    module = types.ModuleType("stateless")

    @hookimpl
    def agent_status(agent: Any, status: str) -> None: ...

    module.agent_status = agent_status  # type: ignore[attr-defined]
    plugins = manager()
    assert plugins.add(module) == "stateless"
    assert plugins.add(Limit(Limit.Config(7))) == "Limit"
    assert plugins.add(Limit) == "Limit-2"
    plugins.load()
    assert [impl.plugin_name for impl in plugins.impls("agent_status")] == ["stateless"]
    assert plugins.config_for("Limit") == Limit.Config(7)
    assert plugins.config_for("Limit-2") == Limit.Config()


def test_H6_an_agent_overrides_single_keys() -> None:
    plugins = manager({"limit": {"max_calls": 3, "words": ["a"]}})
    plugins.add(Limit, "limit")
    spec = AgentSpec(plugins={"limit": {"max_calls": 5}})
    plugins.load([spec])
    assert plugins.config_for("limit", spec) == Limit.Config(5, ("a",))
    assert plugins.config_for("limit", spec) is plugins.config_for("limit", spec)
    assert plugins.config_for("limit", AgentSpec()) is plugins.config_for("limit")
    assert plugins.config_for("limit") == Limit.Config(3, ("a",))


def test_H6_an_agent_overrides_an_instance_given_by_hand() -> None:
    plugins = manager()
    plugins.add(Limit(Limit.Config(7, ("b",))), "limit")
    plugins.load()
    assert plugins.config_for("limit", AgentSpec(plugins={"limit": {"max_calls": 1}})) == Limit.Config(1, ("b",))


def test_H6_configs_of_many_agents_are_bounded() -> None:
    plugins = manager()
    plugins.add(Limit, "limit")
    plugins.load()
    for count in range(1_100):
        assert plugins.config_for("limit", AgentSpec(plugins={"limit": {"max_calls": count}})).max_calls == count
    assert len(plugins._agent_configs) <= 1_024


@pytest.mark.parametrize(
    ("table", "path", "words"),
    [
        ({"max_cals": 1}, "plugins.limit.max_cals", "did you mean 'max_calls'?"),
        ({"max_calls": "1"}, "plugins.limit.max_calls", "expected int, got str"),
        ({"words": ["a", 1]}, "plugins.limit.words[1]", "expected str, got int"),
        ({"root": 1}, "plugins.limit.root", "expected str, got int"),
    ],
)
def test_H5_a_bad_config_is_refused_with_its_place(table: dict[str, Any], path: str, words: str) -> None:
    plugins = PluginManager(PluginsConfig(tables={"limit": table}), found=[], origins={path: "/etc/c.toml"})
    plugins.add(Limit, "limit")
    with pytest.raises(PluginError) as caught:
        plugins.load()
    assert caught.value.path == path
    assert caught.value.plugin == "limit"
    assert caught.value.file == "/etc/c.toml"
    assert words in str(caught.value)


def test_H5_a_bad_override_stops_the_start_with_the_agents_place() -> None:
    plugins = manager()
    plugins.add(Limit, "limit")
    with pytest.raises(PluginError, match=r"agents\[1\]\.plugins\.limit\.max_calls"):
        plugins.load([AgentSpec(id="a"), AgentSpec(id="b", plugins={"limit": {"max_calls": None}})])


def test_H6_a_plugin_without_config_takes_no_table() -> None:
    plugins = manager({"bare": {"x": 1}})
    plugins.add(Bare, "bare")
    with pytest.raises(PluginError, match=r"expected no config.*plugins\.bare\.x"):
        plugins.load()


def test_H6_an_instance_given_by_hand_takes_no_table() -> None:
    plugins = manager({"limit": {"max_calls": 1}})
    plugins.add(Limit(Limit.Config()), "limit")
    with pytest.raises(PluginError, match="give the class"):
        plugins.load()


def test_H6_a_parameter_without_a_config_is_refused() -> None:
    class Odd:
        def __init__(self, thing: int) -> None: ...

    plugins = manager()
    plugins.add(Odd)
    with pytest.raises(PluginError, match="takes 'thing' and has no Config"):
        plugins.load()


@pytest.mark.parametrize("thing", [None, "name", 5, lambda: None, {}])
def test_H6_what_is_no_plugin_is_refused(thing: Any) -> None:
    plugins = manager()
    plugins.add(thing, "thing")
    with pytest.raises(PluginError, match="expected a class, module or instance"):
        plugins.load()


def test_H6_a_config_may_refuse_by_itself() -> None:
    class Strict:
        @dataclass(frozen=True)
        class Config:
            share: float = 0.5

            def __post_init__(self) -> None:
                if not 0 < self.share < 1:
                    raise ValueError("share is between 0 and 1")

        def __init__(self, config: Config) -> None: ...

    plugins = manager({"strict": {"share": 2.0}})
    plugins.add(Strict, "strict")
    with pytest.raises(PluginError, match=r"share is between 0 and 1 \(at plugins\.strict"):
        plugins.load()


@pytest.mark.parametrize("error", [KeyError("share"), RuntimeError("no such share"), ZeroDivisionError("share")])
def test_H6_whatever_a_config_refuses_with_is_a_problem_with_its_place(error: Exception) -> None:
    class Strict:
        @dataclass(frozen=True)
        class Config:
            share: float = 0.5

            def __post_init__(self) -> None:
                if self.share == 2:
                    raise error

        def __init__(self, config: Config) -> None: ...

    words = f"{type(error).__name__}: .*share"
    said = problems_in({"plugins": {"strict": {"share": 2.0}}}, {"strict": Strict.Config})
    assert [problem.path for problem in said] == ["plugins.strict"]
    spec = AgentSpec(id="a", model="x:y", plugins={"strict": {"share": 2.0}})
    plugins = manager()
    plugins.add(Strict, "strict")
    with pytest.raises(PluginError, match=rf"{words}.* \(at agents\[0\]\.plugins\.strict"):
        plugins.load([spec])
    with pytest.raises(PluginError, match=rf"{words}.* \(at agents\.a\.plugins\.strict"):
        plugins.config_for("strict", spec)


def test_H6_a_plugin_may_refuse_its_config_when_it_is_made() -> None:
    class Strict:
        @dataclass(frozen=True)
        class Config:
            sync: str = "normal"

        def __init__(self, config: Config) -> None:
            raise ConfigError("expected normal or always, got x", path="plugins.strict.sync")

    origins = {"plugins.strict.sync": "/etc/c.toml"}
    plugins = PluginManager(PluginsConfig(tables={"strict": {"sync": "x"}}), found=[], origins=origins)
    plugins.add(Strict, "strict")
    words = r"plugin 'strict': expected normal or always, got x \(at plugins\.strict\.sync\) \(/etc/c\.toml\)"
    with pytest.raises(PluginError, match=words):
        plugins.load()


def test_P4_two_managers_share_nothing() -> None:
    one, two = manager({"limit": {"max_calls": 1}}), manager()
    for plugins in (one, two):
        plugins.add(Limit, "limit")
        plugins.load()
    one.unregister("limit")
    assert "limit" not in one
    assert two.plugin("limit").config.max_calls == 20
    assert len(two.impls("tools_guard")) == 1
