"""The plugin manager: which plugins there are, which are loaded, in which order, with which config (H2-H6).

pluggy registers and orders; what calls the hooks is hooks.py, what a plugin must look like is
hookcheck.py. Plugin order is registration order: ours, then the found ones by name, then those given by hand,
each behind what it requires. Nothing is imported before `load`, and a blocked plugin never.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pluggy

from .agents import AgentSpec
from .config.types import PluginsConfig
from .discovery import PLUGINS, Found, discover
from .errors import ConfigError, PluginError
from .hookcheck import Registry, check_plugin, signature_of
from .hookspecs import SPECS, HookInfo
from .nearest import did_you_mean
from .pluginparts import Candidate, PluginReport, choose, configure, in_order, instantiate, name_of, origin_of, typed

__all__ = ["PluginManager", "PluginReport"]

MOST_CACHED_CONFIGS = 1_024


class PluginManager:
    """The plugins of one harness; two of them share nothing (P4).

    Args:
        config: the `[plugins]` section.
        found: plugins to choose from instead of the installed ones.
        origins: who set which key of the config (`LoadedConfig.origins`), for errors.
        file: the config file to name where `origins` does not say it.
    """

    def __init__(
        self,
        config: PluginsConfig | None = None,
        *,
        found: Iterable[Found] | None = None,
        origins: Mapping[str, str] | None = None,
        file: str | None = None,
    ) -> None:
        self.config = config or PluginsConfig()
        self.specs: dict[str, HookInfo] = dict(SPECS)
        self._pluggy = Registry()
        self._found = None if found is None else list(found)
        self._where = partial(origin_of, origins=origins or {}, otherwise=file)
        self._given: list[Candidate] = []
        self._loaded: dict[str, Candidate] = {}
        self._reports: dict[str, PluginReport] = {}
        self._watchers: list[Callable[[str, bool], None]] = []
        self._agent_configs: dict[tuple[str, int], tuple[dict[str, Any], Any]] = {}
        self._serial = 0

    # --- loading --------------------------------------------------------------------------------------

    def add(self, plugin: object, name: str | None = None) -> str:
        """Give a plugin by hand, to be loaded with the others; it is required.

        Args:
            plugin: a plugin class, instance or module.
            name: its name; without one it is taken from the plugin, and counted up if it is taken.

        Returns:
            The plugin's name.

        Raises:
            PluginError: the name was given twice.
        """
        taken = {each.name for each in self._given} | set(self._loaded)
        if name is None:
            base = name = name_of(plugin)
            count = 1
            while name in taken:
                count += 1
                name = f"{base}-{count}"
        elif name in taken:
            raise PluginError("this name is given twice; give one of them another", plugin=name)
        self._given.append(Candidate(name, given=plugin, required=True, target=plugin))
        return name

    def load(self, agents: Sequence[AgentSpec] = ()) -> list[PluginReport]:
        """Import, configure, check and register the chosen plugins, all or nothing for the required ones.

        Args:
            agents: the agents of the config, whose overrides are checked here.

        Returns:
            The load report: one line for each plugin that was found, given or named.

        Raises:
            PluginError: a required plugin is missing, does not import, has a bad config or does not fit its hooks (H5).
        """
        chosen, reports = self._choose(agents)
        self._reports = {report.name: report for report in reports}
        importable = [each for each in chosen if self._try(each, self._import)]
        ordered = in_order(importable, self._fail)
        made = [each for each in ordered if self._try(each, self._make)]
        for each in made:
            self._try(each, self._add_specs)
        for each in made:
            if each.name not in self._reports:
                self._try(each, self._enter)
        self._check_overrides(agents)
        return self.reports

    def survey(self, agents: Sequence[AgentSpec] = ()) -> list[PluginReport]:
        """Say what `load` would load, state `found`, and what not, without importing anything.

        Args:
            agents: the agents of the config, whose overrides name plugins too.

        Raises:
            PluginError: the config names what is not there or not allowed, or a name has two owners.
        """
        chosen, reports = self._choose(agents)
        return [each.report("found") for each in chosen] + sorted(reports, key=lambda report: report.name)

    def _choose(self, agents: Sequence[AgentSpec]) -> tuple[list[Candidate], list[PluginReport]]:
        found = discover(PLUGINS) if self._found is None else self._found
        return choose(self.config, found, self._given, agents, self._where)

    def _try(self, candidate: Candidate, act: Callable[[Candidate], None]) -> bool:
        """Do one step of loading; what goes wrong is fatal for a required plugin only."""
        try:
            act(candidate)
        except KeyboardInterrupt:
            raise
        except ConfigError as error:
            self._fail(candidate, str(error), error)
        except BaseException as error:  # a plugin may raise anything, SystemExit at import too
            self._fail(candidate, f"{type(error).__name__}: {error}", error)
        else:
            return True
        return False

    def _fail(self, candidate: Candidate, problem: str, error: BaseException | None = None) -> None:
        if candidate.required or getattr(candidate.target, "required", False) is True:
            if isinstance(error, PluginError):
                raise error
            if isinstance(error, ConfigError):  # a plugin refused its own config
                file = self._where(error.path or f"plugins.{candidate.name}")
                raise PluginError(str(error), plugin=candidate.name, file=file) from error
            raise PluginError(
                f"{problem} (from {candidate.origin}); "
                f"repair it, or block it with plugins.block or --no-plugin {candidate.name}",
                plugin=candidate.name,
                file=self._where(f"plugins.{candidate.name}"),
            ) from error
        self._reports[candidate.name] = candidate.report("skipped", problem=problem)

    def _import(self, candidate: Candidate) -> None:
        if candidate.found is not None:
            began = time.perf_counter()
            try:
                candidate.target = candidate.found.load()
            finally:
                candidate.import_s = time.perf_counter() - began

    def _make(self, candidate: Candidate) -> None:
        configure(candidate, self.config.tables.get(candidate.name, {}), self._where)
        candidate.instance = instantiate(candidate)

    def _add_specs(self, candidate: Candidate) -> None:
        """A plugin's own hooks: `hookspecs`, a class or module, and `hook_infos`, their contracts by name."""
        specs = getattr(candidate.instance, "hookspecs", None)
        if specs is None:
            return
        names = self._pluggy.specified_in(specs)
        if taken := [name for name in names if name in self.specs]:
            raise PluginError(f"its hook {taken[0]!r} exists already; give it another name", plugin=candidate.name)
        self._pluggy.add_hookspecs(specs)
        infos = getattr(candidate.instance, "hook_infos", {})
        for name in names:
            self.specs[name] = infos.get(name, HookInfo("observe", "contained", 10.0))

    def _drop_specs(self, candidate: Candidate) -> None:
        for hook in self._pluggy.remove_hookspecs(getattr(candidate.instance, "hookspecs", None)):
            del self.specs[hook]

    def _enter(self, candidate: Candidate) -> None:
        for other in candidate.requires:
            if other not in self._loaded:
                report = self._reports.get(other)
                why = f"{report.state}{f': {report.problem}' if report.problem else ''}" if report else "not installed"
                raise PluginError(f"requires the plugin {other!r}, which is {why}", plugin=candidate.name)
        hooks = check_plugin(candidate.name, candidate.instance, self._pluggy, self.specs)
        try:
            self._pluggy.register(candidate.instance, candidate.name)
        except ValueError as error:  # an instance equal to one that is registered
            raise PluginError("this very plugin is registered under another name", plugin=candidate.name) from error
        self._serial += 1
        candidate.serial = self._serial
        self._loaded[candidate.name] = candidate
        self._reports[candidate.name] = candidate.report("loaded", hooks=tuple(hooks))
        self._notify(candidate.name, True)

    def _check_overrides(self, agents: Sequence[AgentSpec]) -> None:
        for index, spec in enumerate(agents):
            for name, override in spec.plugins.items():
                at = f"agents[{index}].plugins.{name}"
                if (candidate := self._loaded.get(name)) is not None:
                    self._overridden(candidate, override, at)

    def _overridden(self, candidate: Candidate, override: dict[str, Any], at: str) -> Any:
        base = candidate.plain_config() if candidate.made_by_hand else self.config.tables.get(candidate.name, {})
        return typed(candidate, {**base, **override}, at, self._where)

    # --- at run time ----------------------------------------------------------------------------------

    def register(self, plugin: object, name: str | None = None) -> str:
        """Load one more plugin now (H4); calls that are running keep the chain they began with.

        Args:
            plugin: a plugin class, instance or module.
            name: its name; without one it is taken from the plugin.

        Returns:
            The plugin's name.

        Raises:
            PluginError: it does not fit, or a loaded plugin has this name.
        """
        name = self.add(plugin, name)
        candidate = self._given.pop()
        if name in self.config.block:
            raise PluginError("is blocked (plugins.block)", plugin=name)
        self._try(candidate, self._make)
        self._try(candidate, self._add_specs)
        try:
            self._try(candidate, self._enter)
        except BaseException:  # refused, it leaves nothing behind
            self._drop_specs(candidate)
            raise
        return name

    def unregister(self, name: str) -> object:
        """Take a plugin out; `on_change` tells everybody who keeps things of it (H4).

        Returns:
            The plugin that left.

        Raises:
            PluginError: no loaded plugin has this name, or a loaded one requires it.
        """
        candidate = self._loaded.get(name)
        if candidate is None:
            raise PluginError(f"is not loaded{did_you_mean(name, self._loaded)}", plugin=name)
        if needing := [each.name for each in self._loaded.values() if name in each.requires]:
            raise PluginError(f"is required by {', '.join(needing)}; unregister these first", plugin=name)
        self._pluggy.unregister(name=name)
        self._drop_specs(candidate)
        self._given = [each for each in self._given if each is not candidate]
        del self._loaded[name]
        del self._reports[name]
        self._agent_configs = {key: each for key, each in self._agent_configs.items() if key[0] != name}
        self._notify(name, False)
        return candidate.instance

    def failed(self, name: str, hook: str, error: BaseException) -> None:
        """Take a plugin out whose start-up hook failed, or stop the start if it is required (H5).

        Args:
            name: the plugin's name; one that left already, as what it requires did, stays skipped for that.
            hook: the hook it failed in.
            error: what it raised.

        Raises:
            PluginError: the plugin is required.
        """
        candidate = self._loaded.get(name)
        if candidate is None:
            return
        for needing in [each.name for each in self._loaded.values() if name in each.requires]:
            self.failed(
                needing, hook, PluginError(f"requires the plugin {name!r}, whose {hook} failed", plugin=needing)
            )
        problem = error if isinstance(error, ConfigError) else f"{hook} failed: {type(error).__name__}: {error}"
        self._fail(candidate, str(problem), error)
        report = self._reports[name]
        self.unregister(name)
        self._reports[name] = report

    def on_change(self, callback: Callable[[str, bool], None]) -> Callable[[], None]:
        """Call `callback(name, present)` after each plugin that comes or leaves.

        Returns:
            What ends it.
        """
        self._watchers.append(callback)

        def end() -> None:
            if callback in self._watchers:
                self._watchers.remove(callback)

        return end

    def _notify(self, name: str, present: bool) -> None:
        for watcher in list(self._watchers):
            watcher(name, present)

    # --- asking ---------------------------------------------------------------------------------------

    def impls(self, hook: str) -> list[pluggy.HookImpl]:
        """Return a hook's implementations without wrappers, the first to run first.

        Those marked tryfirst, then registration order, then those marked trylast.
        """
        return self._sorted(hook, wrapper=False)

    def wrappers(self, hook: str) -> list[pluggy.HookImpl]:
        """Return a hook's wrappers, the outermost first; the order is that of `impls`."""
        return self._sorted(hook, wrapper=True)

    def _sorted(self, hook: str, *, wrapper: bool) -> list[pluggy.HookImpl]:
        def place(impl: pluggy.HookImpl) -> tuple[int, int]:
            return (-1 if impl.tryfirst else 1 if impl.trylast else 0, self._loaded[impl.plugin_name].serial)

        caller = getattr(self._pluggy.hook, hook)
        return sorted((impl for impl in caller.get_hookimpls() if impl.wrapper is wrapper), key=place)

    def arguments(self, hook: str) -> tuple[str, ...]:
        """Return the names of a hook's arguments, in order."""
        spec = getattr(self._pluggy.hook, hook).spec
        return (*spec.argnames, *spec.kwargnames)

    def signature(self, hook: str) -> str:
        """Return a hook's specification as the line a plugin would write."""
        return signature_of(self._pluggy, hook)

    @property
    def reports(self) -> list[PluginReport]:
        """The load report: the loaded plugins in plugin order, then the others by name."""
        loaded = [self._reports[name] for name in self._loaded]
        return loaded + [each for name, each in sorted(self._reports.items()) if name not in self._loaded]

    def names(self) -> list[str]:
        """The loaded plugins' names, in plugin order."""
        return list(self._loaded)

    def __contains__(self, name: object) -> bool:
        return name in self._loaded

    def plugin(self, name: str) -> Any:
        """Return the loaded plugin of this name.

        Raises:
            PluginError: there is none.
        """
        return self._get(name).instance

    def config_for(self, name: str, spec: AgentSpec | None = None) -> Any:
        """Return a plugin's config, for an agent with the single keys it overrides (H6).

        Args:
            name: the plugin's name.
            spec: the agent's; None for the plugin's own config.

        Returns:
            An instance of the plugin's `Config`, None if it has none.

        Raises:
            PluginError: the plugin is not loaded, or the agent's keys do not fit.
        """
        candidate = self._get(name)
        override = spec.plugins.get(name) if spec is not None else None
        if not override:
            return candidate.config
        key = (name, id(override))
        if key not in self._agent_configs:  # the entry keeps `override` alive, so its id stays its own
            assert spec is not None
            config = self._overridden(candidate, override, f"agents.{spec.id}.plugins.{name}")
            if len(self._agent_configs) >= MOST_CACHED_CONFIGS:
                self._agent_configs.clear()
            self._agent_configs[key] = (override, config)
        return self._agent_configs[key][1]

    def config_types(self) -> dict[str, Any]:
        """Return each loaded plugin's `Config` by name, None for one without (for `json_schema`)."""
        return {name: getattr(each.target, "Config", None) for name, each in self._loaded.items()}

    def may_override(self, name: str) -> bool:
        """Whether the config lets this name be taken over (H4)."""
        return name in self.config.override

    def _get(self, name: str) -> Candidate:
        try:
            return self._loaded[name]
        except KeyError:
            known = ", ".join(self._loaded) or "(none)"
            raise PluginError(
                f"is not loaded; loaded are {known}{did_you_mean(name, self._loaded)}", plugin=name
            ) from None
