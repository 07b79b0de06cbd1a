"""`checkrein plugins`: what is installed, what loads and why not, and each hook's contract and implementations."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import click
import msgspec

from .options import config_options, load, manager_of

if TYPE_CHECKING:
    from checkrein.plugins import PluginManager, PluginReport

__all__ = ["Account", "hook_rows", "plugins"]

MISSING_ON_WINDOWS = (
    "folder and file modes (0700, 0600)",
    "uvloop",
    "child processes that die with a killed harness",
)


class Account(Protocol):
    """What the dispatcher counts per implementation (H7).

    Attributes:
        plugin: the plugin's name.
        hook: the hook's name.
        calls: how often it was called.
        time_s: seconds spent in it.
        faults: how often it failed.
        changes: how often it changed something.
    """

    plugin: str
    hook: str
    calls: int
    time_s: float
    faults: int
    changes: int


@click.command()
@config_options
@click.option("--load", "loading", is_flag=True, help="Load them, and say what goes wrong.")
@click.option("--hooks", "hooks", is_flag=True, help="Load them, and list each hook with its implementations.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plugins(config_path: str | None, no_plugin: tuple[str, ...], loading: bool, hooks: bool, as_json: bool) -> None:
    """List plugins and hooks. Without --load and --hooks no plugin is imported."""
    loaded = load(config_path, no_plugin)
    manager = manager_of(loaded)
    agents = loaded.config.agent_specs()
    reports = manager.load(agents) if loading or hooks else manager.survey(agents)
    rows = hook_rows(manager, deadlines=loaded.config.limits.deadlines()) if hooks else None
    if as_json:
        document: dict[str, Any] = {
            "plugins": [msgspec.structs.asdict(each) for each in reports],
            "missing": _missing(),
        }
        click.echo(json.dumps(document if rows is None else {**document, "hooks": rows}, indent=2))
        return
    click.echo(_table([_report_row(each) for each in reports], ("plugin", "from", "state", "hooks, or why not")))
    if rows is not None:
        click.echo()
        click.echo(_table([_hook_row(each) for each in rows], ("hook", "kind", "colour", "deadline", "order", "fault")))
    for each in _missing():
        click.echo(f"missing on this platform: {each}")


def hook_rows(
    manager: PluginManager, *, accounts: Iterable[Account] = (), deadlines: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Return each hook's contract and implementations, in the order they run.

    Args:
        manager: the loaded plugins.
        accounts: what the dispatcher of a live harness counted; adds time, calls, changes and faults.
        deadlines: seconds by hook name, instead of the specifications'.
    """
    counted = {(each.hook, each.plugin): each for each in accounts}
    rows: list[dict[str, Any]] = []
    for hook, info in manager.specs.items():
        lists = {"wrappers": manager.wrappers(hook), "implementations": manager.impls(hook)}
        named = {kind: [_implementation(each.plugin_name, hook, counted) for each in lists[kind]] for kind in lists}
        deadline_s = (deadlines or {}).get(hook, info.deadline_s)
        contract = {"kind": info.kind, "colour": info.colour, "on_fault": info.on_fault, "deadline_s": deadline_s}
        rows.append({"hook": hook, "signature": manager.signature(hook), **contract, **named})
    return rows


def _implementation(plugin: str, hook: str, counted: Mapping[tuple[str, str], Account]) -> dict[str, Any]:
    account = counted.get((hook, plugin))
    if account is None:
        return {"plugin": plugin}
    counts = {"calls": account.calls, "time_s": account.time_s, "changes": account.changes, "faults": account.faults}
    return {"plugin": plugin, **counts}


def _report_row(report: PluginReport) -> tuple[str, ...]:
    origin = " ".join(part for part in (report.distribution, report.version) if part) or "-"
    state = f"{report.state}, required" if report.required else report.state
    return report.name, origin, state, report.problem or ", ".join(report.hooks)


def _hook_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    wrappers = [f"[{_counts(each)}]" for each in row["wrappers"]]
    order = " > ".join((*wrappers, *(_counts(each) for each in row["implementations"])))
    deadline = "-" if row["deadline_s"] is None else f"{row['deadline_s']:g} s"
    return row["hook"], row["kind"], row["colour"], deadline, order or "-", row["on_fault"]


def _counts(implementation: Mapping[str, Any]) -> str:
    if "calls" not in implementation:
        return str(implementation["plugin"])
    faults = f", {implementation['faults']} faults" if implementation["faults"] else ""
    return f"{implementation['plugin']} ({implementation['time_s'] * 1_000:.1f} ms{faults})"


def _table(rows: Sequence[tuple[str, ...]], head: tuple[str, ...]) -> str:
    from checkrein.cli import printable

    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join(printable(line) for line in padded)


def _missing() -> list[str]:
    return list(MISSING_ON_WINDOWS) if sys.platform == "win32" else []
