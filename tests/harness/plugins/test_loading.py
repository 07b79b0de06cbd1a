"""H2, H4, H5, H6: which plugins load, in which order, what stops the start, and coming and leaving at run time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from loadkit import GOOD, RAISING, Bare, Limit, manager, state

from checkrein.agents import AgentSpec
from checkrein.errors import PluginError
from checkrein.hookspecs import hookimpl

# --- H5: required or found ----------------------------------------------------------------------------------


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


# --- H4: one owner per name ---------------------------------------------------------------------------------


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


# --- order --------------------------------------------------------------------------------------------------


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


# --- at run time --------------------------------------------------------------------------------------------


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


def test_H4_a_blocked_plugin_is_blocked_by_the_name_it_brings_too() -> None:
    plugins = manager(block=("Bare",))
    plugins.load()
    for name in (None, "Bare"):
        with pytest.raises(PluginError, match=r"'Bare': is blocked \(plugins\.block\)"):
            plugins.register(Bare, name)
    assert plugins.names() == []
    assert plugins.add(Bare) == "Bare"


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


@pytest.mark.parametrize("names", [None, "base", 5, ("base", 1)])
def test_H2_requires_that_is_no_tuple_of_names_is_told(names: Any) -> None:
    class Needing:
        requires = names

    plugins = manager()
    plugins.add(Needing)
    with pytest.raises(PluginError, match="expected `requires` to be a tuple of plugin names, got "):
        plugins.load()


def test_H4_the_same_instance_twice_is_refused() -> None:
    one = Bare()
    plugins = manager()
    plugins.add(one, "a")
    plugins.add(one, "b")
    with pytest.raises(PluginError, match="under another name"):
        plugins.load()
