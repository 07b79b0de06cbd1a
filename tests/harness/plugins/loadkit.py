"""What the tests of loading share: sources and classes of small plugins, a manager of them, and where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkrein.config import PluginsConfig
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


class Bare:
    pass


def manager(tables: dict[str, Any] | None = None, **options: Any) -> PluginManager:
    found = options.pop("found", [])
    return PluginManager(PluginsConfig(tables=tables or {}, **options), found=found)


def state(of: PluginManager) -> dict[str, str]:
    return {report.name: report.state for report in of.reports}
