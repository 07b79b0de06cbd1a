"""Is a document a configuration? All of it, the plugins' tables too where their types are known.

The JSON Schema of schema.py accepts and refuses the same documents, but for what no schema can say: that ids are
unique.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkrein.nearest import did_you_mean

from .convert import Problem, join, problems_of
from .types import SWITCHES, HarnessConfig, shaped

__all__ = ["problems_in"]


def problems_in(document: Any, plugin_configs: Mapping[str, Any] | None = None) -> list[Problem]:
    """Return everything that is wrong with a document; empty when it is a configuration.

    Args:
        document: what a TOML or JSON file holds.
        plugin_configs: the `Config` of each installed plugin, None for one without; None leaves the tables
            to the plugin manager, which knows the plugins.
    """
    if not isinstance(document, dict):
        return problems_of(document, HarnessConfig)
    problems = _misplaced(document)
    for problem in problems_of(shaped(document), HarnessConfig):
        path = problem.path.replace("plugins.tables.", "plugins.", 1)
        problems.append(Problem(path, problem.message))
    problems += _twice(document)
    if plugin_configs is not None and not problems:
        problems += _in_tables(document, plugin_configs)
    return problems


def _misplaced(document: Mapping[str, Any]) -> list[Problem]:
    """Keys of `[plugins]` that are neither a switch nor a plugin's table."""
    section = document.get("plugins")
    if not isinstance(section, dict):
        return []
    return [
        Problem(
            join("plugins", (key,)),
            f"expected {', '.join(SWITCHES)} or a plugin's table [plugins.{key}], got a value"
            + did_you_mean(str(key), SWITCHES),
        )
        for key, value in section.items()
        if key not in SWITCHES and not isinstance(value, dict)
    ]


def _twice(document: Mapping[str, Any]) -> list[Problem]:
    agents = document.get("agents")
    seen: dict[str, int] = {}
    problems: list[Problem] = []
    for index, agent in enumerate(agents if isinstance(agents, list) else ()):
        name = agent.get("id") if isinstance(agent, dict) else None
        if not isinstance(name, str):
            continue
        if name in seen:
            message = f"expected an id of its own, got {name!r} as agents[{seen[name]}] has; give one another id"
            problems.append(Problem(f"agents[{index}].id", message))
        seen.setdefault(name, index)
    return problems


def _in_tables(document: Mapping[str, Any], plugin_configs: Mapping[str, Any]) -> list[Problem]:
    problems: list[Problem] = []
    tables = {name: table for name, table in document.get("plugins", {}).items() if name not in SWITCHES}
    for name, table in tables.items():
        problems += _in_table(name, table, f"plugins.{name}", plugin_configs)
    for index, agent in enumerate(document.get("agents", ())):
        for name, table in agent.get("plugins", {}).items():
            merged = {**tables.get(name, {}), **table}
            problems += _in_table(name, merged, f"agents[{index}].plugins.{name}", plugin_configs)
    return problems


def _in_table(name: str, table: dict[str, Any], at: str, plugin_configs: Mapping[str, Any]) -> list[Problem]:
    if name not in plugin_configs:
        known = ", ".join(plugin_configs) or "(none)"
        return [
            Problem(at, f"expected an installed plugin ({known}), got {name!r}{did_you_mean(name, plugin_configs)}")
        ]
    type_ = plugin_configs[name]
    if type_ is None:
        return [Problem(join(at, (key,)), "expected no config, this plugin has none") for key in table]
    return problems_of(table, type_, at=at)
