"""Which plugins load, with which config, and what stops the start (H4, H5, H6)."""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checkrein.agents import AgentSpec
from checkrein.config import PluginsConfig
from checkrein.errors import ConfigError, PluginError
from checkrein.hookspecs import hookimpl
from checkrein.plugins import PluginManager

GOOD = """
from checkrein.hookspecs import hookimpl
class Plugin:
    @hookimpl
    def agent_status(self, agent, status): ...
"""
RAISING = "raise OSError('no such device')"


class Limit:
    @dataclass(frozen=True)
    class Config:
        max_calls: int = 20
        words: tuple[str, ...] = ()
        root: Path = Path(".")

    def __init__(self, config: Config) -> None:
        self.config = config

    @hookimpl
    def tools_guard(self, agent: Any, call: Any) -> None: ...


class WithStruct:
    class Config(msgspec.Struct, frozen=True):
        limit: int = 3

    def __init__(self, config: Config) -> None:
        self.config = config


class Bare:
    pass


def manager(tables: dict[str, Any] | None = None, **options: Any) -> PluginManager:
    found = options.pop("found", [])
    return PluginManager(PluginsConfig(tables=tables or {}, **options), found=found)


def state(of: PluginManager) -> dict[str, str]:
    return {report.name: report.state for report in of.reports}


# --- H6: config --------------------------------------------------------------------------------------


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


# --- H5: required or found ---------------------------------------------------------------------------


def test_H5_a_named_plugin_that_is_missing_stops_the_start(install: Any) -> None:
    found = install("acme-limit", {"limit": GOOD})
    with pytest.raises(PluginError, match=r"got 'limmit'; did you mean 'limit'.*plugins\.limmit"):
        manager({"limmit": {}}, found=found).load()
    with pytest.raises(PluginError, match=r"agents\[0\]\.plugins\.nix"):
        manager(found=found).load([AgentSpec(plugins={"nix": {}})])


def test_H5_a_named_plugin_that_fails_to_import_stops_the_start(install: Any) -> None:
    found = install("acme-limit", {"limit": RAISING}, version="0.3")
    with pytest.raises(
        PluginError, match=r"OSError: no such device \(from acme-limit 0\.3\).*--no-plugin limit"
    ) as caught:
        manager({"limit": {}}, found=found).load()
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("source", [RAISING, "raise SystemExit(3)", "import nowhere_to_be_found", "x = 1", "def ("])
def test_case_H01_a_found_plugin_that_fails_is_skipped_and_reported(install: Any, source: str) -> None:
    install("bad", {"bad": source}, version="9.1")
    plugins = manager(found=install("good", {"good": GOOD}))
    reports = plugins.load()
    assert state(plugins) == {"good": "loaded", "bad": "skipped"}
    bad = reports[-1]
    assert (bad.distribution, bad.version, bad.required) == ("bad", "9.1", False)
    assert bad.problem


def test_H5_an_interrupt_while_importing_is_not_swallowed(install: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        manager(found=install("bad", {"bad": "raise KeyboardInterrupt"})).load()


def test_case_H17_a_found_plugin_of_another_version_is_skipped_alone(install: Any) -> None:
    old = """
    from checkrein.hookspecs import hookimpl
    class Plugin:
        @hookimpl
        def agent_request(self, old_argument): ...
    """
    install("old", {"old": old})
    plugins = manager(found=install("good", {"good": GOOD}))
    plugins.load()
    assert state(plugins) == {"good": "loaded", "old": "skipped"}
    assert "old_argument" in (plugins.reports[1].problem or "")
    with pytest.raises(PluginError, match="old_argument"):
        manager({"old": {}}, found=install("other", {"other": GOOD})).load()


def test_H5_the_built_in_guard_is_required_even_if_it_cannot_say_so(install: Any) -> None:
    found = install("checkrein", {"permissions": RAISING, "files": RAISING})
    with pytest.raises(PluginError, match="permissions"):
        manager(found=found).load()
    plugins = manager(found=found, block=("permissions",))
    plugins.load()
    assert state(plugins) == {"permissions": "blocked", "files": "skipped"}


def test_H5_a_plugin_can_call_itself_required(install: Any) -> None:
    found = install("acme", {"guard": f"{GOOD}\nPlugin.required = True\nPlugin.__init__ = lambda self: 1 / 0"})
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        manager(found=found).load()


def test_H5_allow_and_autoload_keep_the_built_in_guard(install: Any, imported: Any) -> None:
    install("checkrein", {"permissions": GOOD})
    found = install("acme", {"a": GOOD, "b": GOOD})
    for options in ({"allow": ("a",)}, {"autoload": False, "allow": ("a",)}):
        plugins = manager(found=found, **options)
        plugins.load()
        assert state(plugins) == {"permissions": "loaded", "a": "loaded", "b": "blocked"}
    assert [imported(one) for one in found if one.name == "b"] == [False]


def test_H5_without_autoload_what_the_config_names_still_loads(install: Any) -> None:
    found = install("acme", {"a": GOOD, "b": GOOD, "c": GOOD})
    plugins = manager({"a": {}}, found=found, autoload=False)
    plugins.load([AgentSpec(plugins={"b": {}})])
    assert state(plugins) == {"a": "loaded", "b": "loaded", "c": "blocked"}


def test_H5_a_table_that_allow_leaves_out_is_a_contradiction(install: Any) -> None:
    with pytest.raises(PluginError, match=r"plugins\.allow"):
        manager({"b": {}}, found=install("acme", {"a": GOOD, "b": GOOD}), allow=("a",)).load()


def test_case_H16_a_blocked_plugin_is_never_imported(install: Any, imported: Any) -> None:
    found = install("acme", {"heavy": RAISING, "light": GOOD})
    plugins = manager({"heavy": {"any": "thing"}}, found=found, block=("heavy", "hevy"))
    plugins.load()
    assert state(plugins) == {"light": "loaded", "heavy": "blocked", "hevy": "blocked"}
    assert [imported(one) for one in found] == [False, True]
    assert "did you mean 'heavy'" in (plugins.reports[-1].problem or "")


def test_case_H15_a_survey_imports_nothing_and_slow_imports_are_measured(install: Any, imported: Any) -> None:
    found = install("acme", {"slow": f"{GOOD}\nsum(range(200_000))"})
    plugins = manager(found=found)
    assert [(report.name, report.state) for report in plugins.survey()] == [("slow", "found")]
    assert not imported(found[0])
    plugins.load()
    assert plugins.reports[0].import_s > 0


# --- H4: one owner per name --------------------------------------------------------------------------


def test_H4_two_distributions_of_one_name_are_refused_naming_both(install: Any) -> None:
    install("acme", {"limit": GOOD}, version="1")
    found = install("zeta", {"limit": GOOD}, version="2")
    with pytest.raises(PluginError, match=r"of acme 1 and of zeta 2"):
        manager(found=found).load()
    blocked = manager(found=found, block=("limit",))
    blocked.load()
    assert state(blocked) == {"limit": "blocked"}


def test_H4_override_lets_another_distribution_replace_ours(install: Any) -> None:
    install("checkrein", {"files": RAISING})
    found = install("zeta", {"files": GOOD})
    plugins = manager(found=found, override=("files",))
    plugins.load()
    assert plugins.reports[0].distribution == "zeta"
    assert plugins.may_override("files")


def test_H4_a_plugin_given_by_hand_stands_for_its_own_entry_point(install: Any) -> None:
    found = install("acme", {"limit": GOOD})
    class_ = found[0].load()
    plugins = manager(found=found)
    plugins.add(class_(), "limit")
    plugins.load()
    assert state(plugins) == {"limit": "loaded"}
    other = manager(found=found)
    other.add(Bare, "limit")
    with pytest.raises(PluginError, match=r"of acme 1\.2 and of the program"):
        other.load()


def test_H4_a_name_given_twice_is_refused() -> None:
    plugins = manager()
    plugins.add(Bare, "one")
    with pytest.raises(PluginError, match="given twice"):
        plugins.add(Limit, "one")


def test_H6_a_plugin_named_plugin_is_called_after_its_package() -> None:
    Plugin = type("Plugin", (), {"__module__": "checkrein_files.plugin"})
    Other = type("Plugin", (), {"__module__": "acme.limit"})
    Named = type("Plugin", (), {"__module__": "acme.limit", "name": "mine"})
    plugins = manager()
    assert [plugins.add(each) for each in (Plugin, Other, Other, Named)] == ["files", "limit", "limit-2", "mine"]


# --- order -------------------------------------------------------------------------------------------


def test_H6_requires_orders_the_start(install: Any) -> None:
    needing = f"{GOOD}\nPlugin.requires = ('z', 'm')"
    found = install("acme", {"a": needing, "m": GOOD, "z": GOOD})
    plugins = manager(found=found)
    plugins.load()
    assert plugins.names() == ["m", "z", "a"]


def test_H6_what_requires_a_plugin_that_is_not_there_is_skipped_with_the_reason(install: Any) -> None:
    found = install(
        "acme",
        {
            "a": f"{GOOD}\nPlugin.requires = ('b',)",
            "b": f"{GOOD}\nPlugin.requires = ('bad',)",
            "bad": RAISING,
            "c": f"{GOOD}\nPlugin.requires = ('nix',)",
            "d": f"{GOOD}\nPlugin.requires = 'a'",
        },
    )
    plugins = manager(found=found)
    problems = {report.name: report.problem or "" for report in plugins.load()}
    assert plugins.names() == []
    assert "'b', which is skipped" in problems["a"]
    assert "'bad', which is skipped: OSError" in problems["b"]
    assert "'nix', which is not installed" in problems["c"]
    assert "expected `requires` to be a tuple" in problems["d"]
    with pytest.raises(PluginError, match="requires the plugin 'b'"):
        manager({"a": {}}, found=found).load()


def test_H6_a_circle_of_requires_is_named(install: Any) -> None:
    found = install(
        "acme", {"a": f"{GOOD}\nPlugin.requires = ('b',)", "b": f"{GOOD}\nPlugin.requires = ('a',)", "c": GOOD}
    )
    plugins = manager(found=found)
    plugins.load()
    assert plugins.names() == ["c"]
    assert "a -> b -> a" in (plugins.reports[1].problem or "")
    with pytest.raises(PluginError, match="a -> b -> a"):
        manager({"b": {}}, found=found).load()


def test_H2_ours_come_first_then_the_found_by_name_then_those_given_by_hand(install: Any) -> None:
    install("zeta", {"n": GOOD})
    install("acme", {"z": GOOD, "a": GOOD})
    found = install("checkrein", {"y": GOOD, "x": GOOD})
    plugins = manager(found=found)
    plugins.add(Bare, "hand")
    plugins.load()
    assert plugins.names() == ["y", "x", "a", "n", "z", "hand"]


# --- at run time -------------------------------------------------------------------------------------


@dataclass
class Watcher:
    seen: list[tuple[str, bool]] = field(default_factory=list)

    def __call__(self, name: str, present: bool) -> None:
        self.seen.append((name, present))


def test_H4_plugins_come_and_leave_at_run_time() -> None:
    plugins = manager({"limit": {"max_calls": 1}}, block=("never",))
    plugins.add(Limit, "limit")
    plugins.load()
    watcher = Watcher()
    end = plugins.on_change(watcher)
    assert plugins.register(Limit, "more") == "more"
    assert [impl.plugin_name for impl in plugins.impls("tools_guard")] == ["limit", "more"]
    assert plugins.unregister("limit").config.max_calls == 1  # type: ignore[attr-defined]
    assert [impl.plugin_name for impl in plugins.impls("tools_guard")] == ["more"]
    with pytest.raises(PluginError, match="blocked"):
        plugins.register(Bare, "never")
    with pytest.raises(PluginError, match="given twice"):
        plugins.register(Bare, "more")
    with pytest.raises(PluginError, match="not loaded; loaded are more"):
        plugins.config_for("limit")
    with pytest.raises(PluginError, match="did you mean 'more'"):
        plugins.unregister("mor")
    end()
    plugins.unregister("more")
    assert watcher.seen == [("more", True), ("limit", False)]
    assert state(plugins) == {"never": "blocked"}


def test_H4_a_plugin_that_does_not_fit_leaves_nothing_behind() -> None:
    class Misspelt:
        @hookimpl
        def tool_guard(self, call: Any) -> None: ...

        @hookimpl
        def agent_status(self, agent: Any) -> None: ...

    plugins = manager()
    plugins.load()
    with pytest.raises(PluginError, match="did you mean 'tools_guard'"):
        plugins.register(Misspelt)
    assert plugins.names() == []
    assert plugins.impls("agent_status") == []


def test_H5_a_start_up_hook_that_fails_skips_what_was_merely_found(install: Any) -> None:
    found = install("acme", {"a": GOOD, "b": f"{GOOD}\nPlugin.requires = ('a',)", "c": GOOD})
    plugins = manager({"c": {}}, found=found)
    plugins.load()
    watcher = Watcher()
    plugins.on_change(watcher)
    plugins.failed("a", "register_tools", OSError("no such device"))
    assert state(plugins) == {"c": "loaded", "a": "skipped", "b": "skipped"}
    problems = {report.name: report.problem or "" for report in plugins.reports}
    assert problems["a"] == "register_tools failed: OSError: no such device"
    assert "requires the plugin 'a', whose register_tools failed" in problems["b"]
    assert watcher.seen == [("b", False), ("a", False)]
    assert [impl.plugin_name for impl in plugins.impls("agent_status")] == ["c"]
    with pytest.raises(PluginError, match="register_tools failed: OSError"):
        plugins.failed("c", "register_tools", OSError("no such device"))


def test_H4_a_plugin_that_others_require_stays() -> None:
    class Needing:
        requires = ("base",)

    plugins = manager()
    plugins.add(Needing, "needing")
    plugins.add(Bare, "base")
    plugins.load()
    assert plugins.names() == ["base", "needing"]
    with pytest.raises(PluginError, match="is required by needing"):
        plugins.unregister("base")


def test_H4_the_same_instance_twice_is_refused() -> None:
    one = Bare()
    plugins = manager()
    plugins.add(one, "a")
    plugins.add(one, "b")
    with pytest.raises(PluginError, match="under another name"):
        plugins.load()
