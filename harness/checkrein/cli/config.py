"""`checkrein config`: is the configuration right, what is in force and from where, its JSON Schema, and trust."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import click

from . import printable
from .options import aside, config_options, load, loaded_harness

__all__ = ["config"]

_SECRET = re.compile(r"(^|_)(key|token|secret|password|passwd|credentials?|authorization)s?$", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{\w+\}")
HIDDEN = "(hidden)"


@click.group()
def config() -> None:
    """Check, show and describe the configuration."""


@config.command()
@click.argument("path", required=False, type=click.Path())
@click.option("--no-plugin", multiple=True, metavar="NAME", help="Do not load this plugin.")
def check(path: str | None, no_plugin: tuple[str, ...]) -> None:
    """Check PATH, or what would be in force here, the plugins' tables too."""
    from checkrein.discovery import load_loop

    harness = loaded_harness(path, no_plugin)
    load_loop(harness.config.loop)
    harness.check_models(keys=False)  # a key is no part of the configuration
    reports = harness.plugins.reports
    for report in reports:
        if report.state == "skipped":
            _warn(f"plugin {report.name!r} is skipped: {report.problem}")
    for index, spec in enumerate(harness.specs):
        for complaint in harness.tools.unmatched(spec.tools or ()):
            _warn(f"agents[{index}].tools: {complaint}")
    read = ", ".join(str(file) for file in harness.config_files) or "no config file, the defaults"
    agents = ", ".join(spec.id for spec in harness.specs)
    click.echo(f"ok: {read}; agents {agents}; {sum(each.state == 'loaded' for each in reports)} plugins")


def _warn(text: str) -> None:
    click.echo(f"warning: {printable(text)}", err=True)


@config.command()
@click.argument("path", required=False, type=click.Path())
@click.option("--forget", is_flag=True, help="Trust it no longer.")
def trust(path: str | None, forget: bool) -> None:
    """Trust PATH, or the file found here, with what it says of plugins now. Read it first.

    Who trusts a file lets it set rules for tools and hosts that get keys. It is asked for again when that changes.
    """
    from checkrein.config import trust as trusting
    from checkrein.errors import ConfigError

    loaded = load(path)
    if loaded.project_file is None:
        raise ConfigError("expected a checkrein.toml in this folder, got none; go to its folder, or name it")
    store = (trusting.forget if forget else trusting.trust)(loaded)
    for key, value, _ in _rows(loaded.project, (), {}):
        if not forget and ".plugins." in f".{key}":
            click.echo(printable(f"{key} = {json.dumps(value, ensure_ascii=False)}"))
    click.echo(printable(f"{'no longer trusted' if forget else 'trusted'}: {loaded.project_file} (kept in {store})"))


@config.command()
@click.option("--no-plugin", multiple=True, metavar="NAME", help="Leave out this plugin's table.")
def schema(no_plugin: tuple[str, ...]) -> None:
    """Print the JSON Schema of checkrein.toml, with the tables of the installed plugins."""
    from checkrein.config.schema import json_schema
    from checkrein.config.types import PluginsConfig
    from checkrein.plugins import PluginManager

    manager = PluginManager(PluginsConfig(block=no_plugin))
    with aside():
        manager.load()
    click.echo(json.dumps(json_schema(manager.config_types()), indent=2))


@config.command()
@config_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(config_path: str | None, no_plugin: tuple[str, ...], as_json: bool) -> None:
    """Print what is in force, and who set it. Secrets are not shown."""
    loaded = load(config_path, no_plugin)
    rows = list(_rows(loaded.document, (), loaded.origins))
    if as_json:
        files = [str(file) for file in loaded.files]
        values = [{"key": key, "value": value, "origin": origin} for key, value, origin in rows]
        click.echo(json.dumps({"files": files, "hash": loaded.hash, "values": values}, indent=2))
        return
    for key, value, origin in rows:
        click.echo(f"{key} = {json.dumps(value, ensure_ascii=False)}{f'  # {origin}' if origin else ''}")


def _rows(value: Any, steps: tuple[Any, ...], origins: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    from checkrein.config.convert import join

    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from _rows(member, (*steps, key), origins)
    elif isinstance(value, (list, tuple)) and any(isinstance(member, dict) for member in value):
        for index, member in enumerate(value):
            yield from _rows(member, (*steps, index), origins)
    else:
        path = join("", steps)
        yield path, _hidden(value, steps), origins.get(path, "")


def _hidden(value: Any, steps: tuple[Any, ...]) -> Any:
    """A secret is named, not shown; a reference to the environment is no secret."""
    if not any(isinstance(step, str) and _SECRET.search(step) for step in steps):
        return value
    if isinstance(value, (list, tuple)):
        return [_hidden(member, steps) for member in value]
    return HIDDEN if isinstance(value, str) and value and not _REFERENCE.fullmatch(value) else value
