"""The options every command that reads the configuration has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, redirect_stdout
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from checkrein.config import LoadedConfig
    from checkrein.harness import Harness
    from checkrein.plugins import PluginManager

__all__ = ["aside", "config_options", "load", "loaded_harness", "manager_of"]

F = TypeVar("F", bound=Callable[..., Any])


def config_options(command: F) -> F:
    """Add `--config` and `--no-plugin`; the command gets `config_path` and `no_plugin`."""
    for option in (
        click.option("--no-plugin", multiple=True, metavar="NAME", help="Do not load this plugin."),
        click.option("--config", "config_path", type=click.Path(), help="The project's file or folder."),
    ):
        command = option(command)
    return command


def aside() -> AbstractContextManager[object]:
    """Meanwhile what plugins and tools print goes to standard error: a command's output is its own."""
    return redirect_stdout(sys.stderr)


def load(
    config_path: str | None, no_plugin: Sequence[str] = (), overrides: Mapping[str, Any] | None = None
) -> LoadedConfig:
    """Load the configuration as the options say.

    Args:
        config_path: of `--config`.
        no_plugin: of `--no-plugin`.
        overrides: more values of the command line.

    Raises:
        ConfigError: it has problems.
    """
    from checkrein.config import load_config

    values = dict(overrides or {})
    if no_plugin:
        values["plugins"] = {**values.get("plugins", {}), "block": list(no_plugin)}
    return load_config(config_path, overrides=values)


def manager_of(loaded: LoadedConfig) -> PluginManager:
    """Return a plugin manager for a configuration; nothing is imported yet."""
    from checkrein.plugins import PluginManager

    return PluginManager(loaded.config.plugins, origins=loaded.origins)


def loaded_harness(config_path: str | None, no_plugin: Sequence[str]) -> Harness:
    """Return a harness with its plugins and what they bring; nothing is started.

    Args:
        config_path: of `--config`.
        no_plugin: of `--no-plugin`.

    Raises:
        ConfigError, PluginError: it could not be started either.
    """
    from checkrein.harness import Harness

    harness = Harness(config_path, overrides={"plugins": {"block": list(no_plugin)}} if no_plugin else None)
    with aside():
        harness.load()
    return harness
