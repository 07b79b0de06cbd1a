"""What the plugin manager works with: candidates, the load report, and the choice and order of plugins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from .agents import AgentSpec
from .config.convert import Problem, as_error, convert, problems_of
from .config.types import PluginsConfig
from .discovery import Found
from .errors import PluginError
from .nearest import did_you_mean

__all__ = ["Candidate", "PluginReport", "choose", "name_of", "in_order", "instantiate", "origin_of"]

GUARDS = ("permissions", "budget")
"""Built-in guards: required unless blocked by name (H5), also when they fail before they could say so."""


class PluginReport(Struct, frozen=True):
    """A line of the load report.

    Attributes:
        name: the plugin's name.
        distribution: where it comes from; empty when given by hand or not installed.
        version: the distribution's version.
        state: `loaded`, `skipped` or `blocked`; `found` before loading (`PluginManager.survey`).
        required: whether its failing stops the start (H5).
        problem: why it is skipped or blocked.
        hooks: the hooks it implements.
        import_s: seconds its import took.
    """

    name: str
    distribution: str = ""
    version: str = ""
    state: str = "loaded"
    required: bool = False
    problem: str | None = None
    hooks: tuple[str, ...] = ()
    import_s: float = 0.0


class Candidate(Struct, eq=False):
    """A plugin on its way from a name to a registered instance."""

    name: str
    found: Found | None = None
    given: object = None
    required: bool = False
    target: Any = None
    config: Any = None
    instance: Any = None
    import_s: float = 0.0
    serial: int = 0

    @property
    def origin(self) -> str:
        """Where it comes from, for a person."""
        return self.found.origin if self.found is not None else "the program"

    @property
    def made_by_hand(self) -> bool:
        """Whether it was given as an instance, configured by its maker."""
        return self.found is None and not inspect.isclass(self.target) and not inspect.ismodule(self.target)

    @property
    def requires(self) -> tuple[str, ...]:
        """The plugins that come before it."""
        names = getattr(self.target, "requires", ())
        if not isinstance(names, (tuple, list, set, frozenset)) or not all(isinstance(name, str) for name in names):
            raise PluginError(f"expected `requires` to be a tuple of plugin names, got {names!r}", plugin=self.name)
        return tuple(names)

    def plain_config(self) -> dict[str, Any]:
        """The config of an instance made by hand, as a table."""
        plain = msgspec.to_builtins(self.config, enc_hook=str) if self.config is not None else {}
        return plain if isinstance(plain, dict) else {}

    def report(self, state: str, *, problem: str | None = None, hooks: tuple[str, ...] = ()) -> PluginReport:
        """Make its line of the load report."""
        return PluginReport(
            self.name,
            self.found.distribution if self.found is not None else "",
            self.found.version if self.found is not None else "",
            state,
            self.required or getattr(self.target, "required", False) is True,
            problem,
            hooks,
            self.import_s,
        )


def name_of(plugin: object) -> str:
    """Return the name a plugin given by hand gets: its `name`, its class's name, or its package's.

    A class called just `Plugin` is named after its package without `checkrein_`, so that a built-in
    plugin has one name whether it was found or given.
    """
    if isinstance(own := getattr(plugin, "name", None), str) and own:
        return own
    if inspect.ismodule(plugin):
        return _short(plugin.__name__)
    class_ = plugin if inspect.isclass(plugin) else type(plugin)
    return _short(class_.__module__) if class_.__name__ == "Plugin" else class_.__name__


def _short(module: str) -> str:
    package = module.partition(".")[0]
    return package.removeprefix("checkrein_") if package.startswith("checkrein_") else module.rpartition(".")[2]


def configure(candidate: Candidate, table: dict[str, Any], where: Callable[[str], str | None]) -> None:
    """Give a candidate its config: its table's, or that of the instance made by hand.

    Args:
        candidate: with its target.
        table: `[plugins.NAME]`.
        where: says who set a key of the config.

    Raises:
        PluginError: the table does not fit, or an instance made by hand has one.
    """
    at = f"plugins.{candidate.name}"
    if not candidate.made_by_hand:
        candidate.config = typed(candidate, table, at, where)
    elif not table:
        candidate.config = getattr(candidate.target, "config", None)
    else:
        raise PluginError(
            "expected no table for an instance given by hand, got one: it is configured already; give the class",
            plugin=candidate.name,
            path=at,
            file=where(at),
        )


def typed(candidate: Candidate, table: dict[str, Any], at: str, where: Callable[[str], str | None]) -> Any:
    """Return a plugin's config from a table.

    Args:
        candidate: with its target.
        table: plain values.
        at: the table's place in the config.
        where: says who set a key of the config.

    Raises:
        PluginError: it does not fit; all problems are told.
    """
    type_ = getattr(candidate.target, "Config", None)
    if type_ is None:
        problems = [Problem(f"{at}.{key}", "expected no config, this plugin has none") for key in table]
    else:
        problems = problems_of(table, type_, at=at)
    if problems:
        raise as_error(problems, where(problems[0].path), plugin=candidate.name)
    return None if type_ is None else convert(table, type_)


def instantiate(candidate: Candidate) -> Any:
    """Make the plugin: `cls(config)` if it takes a parameter, `cls()` if not; modules and instances are ready.

    Raises:
        PluginError: it is no class, module or instance, or takes something else.
    """
    target = candidate.target
    if target is None or inspect.isroutine(target) or isinstance(target, (str, bytes, int, float, dict, list, tuple)):
        raise PluginError(f"expected a class, module or instance, got {target!r:.80}", plugin=candidate.name)
    if not inspect.isclass(target):
        return target
    make = cast(Callable[..., Any], target)
    parameters = inspect.signature(make).parameters.values()
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if positional and candidate.config is not None:
        return make(candidate.config)
    if any(each.default is each.empty for each in positional):
        raise PluginError(
            f"{target.__qualname__} takes {positional[0].name!r} and has no Config: "
            "give it a frozen dataclass or Struct named Config, or no parameter",
            plugin=candidate.name,
        )
    return make()


def origin_of(path: str, origins: Mapping[str, str], otherwise: str | None) -> str | None:
    """Return who set a key of the config, or the first key below it.

    Args:
        path: the key, as `plugins.limit.max_calls`.
        origins: who set which key.
        otherwise: what to say when nobody is known.
    """
    if path in origins:
        return origins[path]
    below = (label for key, label in origins.items() if key.startswith((f"{path}.", f"{path}[")))
    return next(below, otherwise)


# --- the choice --------------------------------------------------------------------------------------


def choose(
    config: PluginsConfig,
    found: Sequence[Found],
    given: Sequence[Candidate],
    agents: Sequence[AgentSpec],
    where: Callable[[str], str | None],
) -> tuple[list[Candidate], list[PluginReport]]:
    """Choose by name alone what is to be imported.

    Args:
        config: the `[plugins]` section.
        found: the installed plugins, in plugin order.
        given: the plugins given by hand.
        agents: the agents, whose overrides name plugins too.
        where: says who set a key of the config.

    Returns:
        The candidates in plugin order, and the report lines of the others.

    Raises:
        PluginError: the config names what is not there or not allowed, or a name has two owners.
    """
    named = {name: f"plugins.{name}" for name in config.tables}
    for index, spec in enumerate(agents):
        named |= {name: f"agents[{index}].plugins.{name}" for name in spec.plugins if name not in named}
    by_name = _one_owner_each(config, found, given)
    _refuse_missing(config, named, [*by_name, *(each.name for each in given)], where)
    chosen: list[Candidate] = []
    reports: list[PluginReport] = []
    for name, one in by_name.items():
        candidate = Candidate(name, found=one, required=name in named or (one.builtin and name in GUARDS))
        why = None if one.builtin and name not in config.block else _why_not(name, config, name in named)
        if why is not None and name in named and name not in config.block:
            raise PluginError(
                "has a table and is not in plugins.allow; add it there, or remove its table",
                plugin=name,
                path=named[name],
                file=where(named[name]),
            )
        if why is None:
            chosen.append(candidate)
        else:
            reports.append(candidate.report("blocked", problem=why))
    for each in given:
        if each.name in config.block:
            reports.append(each.report("blocked", problem="plugins.block"))
        else:
            chosen.append(each)
    known = {each.name for each in chosen} | {report.name for report in reports}
    for name in dict.fromkeys((*config.block, *config.allow)):
        if name not in known:
            state = "blocked" if name in config.block else "skipped"
            reports.append(PluginReport(name, state=state, problem=f"is not installed{did_you_mean(name, known)}"))
    return chosen, reports


def _why_not(name: str, config: PluginsConfig, named: bool) -> str | None:
    if name in config.block:
        return "plugins.block"
    if config.allow and name not in config.allow:
        return "not in plugins.allow"
    if not config.autoload and not named and name not in config.allow:
        return "plugins.autoload is off, and the config does not name it"
    return None


def _refuse_missing(
    config: PluginsConfig, named: dict[str, str], known: Sequence[str], where: Callable[[str], str | None]
) -> None:
    for name, path in named.items():
        if name in config.block:
            continue
        if name not in known:
            installed = ", ".join(known) or "(none)"
            raise PluginError(
                f"expected an installed plugin, got {name!r}{did_you_mean(name, known)}; installed are {installed}; "
                "install the distribution that brings it, or remove its table",
                plugin=name,
                path=path,
                file=where(path),
            )


def _one_owner_each(config: PluginsConfig, found: Sequence[Found], given: Sequence[Candidate]) -> dict[str, Found]:
    """The found plugins by name; two owners of a name are refused unless the config says `override` (H4)."""
    by_name: dict[str, Found] = {}
    for one in found:
        first = by_name.get(one.name)
        if first is None or one.name in config.block:
            by_name.setdefault(one.name, one)
        elif first.builtin and one.name in config.override:
            by_name[one.name] = one  # ours comes first, and gives way
        else:
            _refuse_two(one.name, first.origin, one.origin)
    for each in given:
        twin = by_name.get(each.name)
        if twin is not None and each.name not in config.block:
            if not _same(twin, each.given) and each.name not in config.override:
                _refuse_two(each.name, twin.origin, "the program")
            del by_name[each.name]  # the one given by hand stands for it
    return by_name


def _refuse_two(name: str, first: str, second: str) -> None:
    raise PluginError(
        f"expected one plugin of this name, got two, of {first} and of {second}; "
        "block or rename one, or let the later one win with plugins.override",
        plugin=name,
    )


def _same(found: Found, given: object) -> bool:
    """Whether what was given is what the entry point names, told without an import."""
    module, _, attribute = found.value.partition(":")
    if inspect.ismodule(given):
        return given.__name__ == module and not attribute
    class_ = given if inspect.isclass(given) else type(given)
    return class_.__qualname__ == attribute and class_.__module__.partition(".")[0] == module.partition(".")[0]


# --- the order ---------------------------------------------------------------------------------------


def in_order(candidates: Iterable[Candidate], fail: Callable[[Candidate, str], None]) -> list[Candidate]:
    """Return the candidates, each behind what it `requires`, else in the order they came.

    Args:
        candidates: what was imported.
        fail: told of each candidate that cannot be placed; raises for a required one.
    """
    waiting = {each.name: each for each in candidates}
    requires: dict[str, tuple[str, ...]] = {}
    for each in list(waiting.values()):
        try:
            requires[each.name] = each.requires
        except Exception as error:
            fail(each, str(error))
            del waiting[each.name]
    placed: list[Candidate] = []
    while waiting:
        ready = next(
            (one for one in waiting.values() if not any(other in waiting for other in requires[one.name])), None
        )
        if ready is None:
            circle = _circle(waiting, requires)
            for name in circle:
                fail(waiting.pop(name), f"its `requires` go round in a circle: {' -> '.join((*circle, circle[0]))}")
        else:
            placed.append(waiting.pop(ready.name))
    return placed


def _circle(waiting: dict[str, Candidate], requires: dict[str, tuple[str, ...]]) -> list[str]:
    seen: list[str] = []
    name = next(iter(waiting))
    while name not in seen:
        seen.append(name)
        name = next(other for other in requires[name] if other in waiting)
    return seen[seen.index(name) :]
