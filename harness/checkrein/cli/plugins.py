"""`checkrein plugins`: what is installed, what loads and why not, and each hook's contract and implementations."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from .options import config_options, load, loaded_harness, manager_of

if TYPE_CHECKING:
    from pluggy import HookImpl

    from checkrein.hooks import Impl
    from checkrein.plugins import PluginManager, PluginReport

    from .accounts import Account

__all__ = ["hook_rows", "hook_table", "plugins"]

MISSING_ON_WINDOWS = (
    "folder and file modes (0700, 0600)",
    "uvloop",
    "child processes that die with a killed harness",
)


@click.command()
@config_options
@click.option("--load", "loading", is_flag=True, help="Load them, and say what goes wrong.")
@click.option("--hooks", "hooks", is_flag=True, help="Load them, and list each hook, and what the last run counted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plugins(config_path: str | None, no_plugin: tuple[str, ...], loading: bool, hooks: bool, as_json: bool) -> None:
    """List plugins and hooks. Without --load and --hooks no plugin is imported."""
    found: dict[str, Any] = {}
    if hooks:
        reports, found = _with_hooks(config_path, no_plugin)
    elif loading:
        reports = loaded_harness(config_path, no_plugin).plugins.reports
    else:
        loaded = load(config_path, no_plugin)
        reports = manager_of(loaded).survey(loaded.config.agent_specs())
    if as_json:
        listed = [msgspec.structs.asdict(each) for each in reports]
        click.echo(json.dumps({"plugins": listed, "missing": _missing(), **found}, indent=2))
        return
    click.echo(_table([_report_row(each) for each in reports], ("plugin", "from", "state", "hooks, or why not")))
    if found:
        click.echo(f"\n{hook_table(found['hooks'])}\n\n{found['counted']}")
    for each in _missing():
        click.echo(f"missing on this platform: {each}")


def _with_hooks(config_path: str | None, no_plugin: Sequence[str]) -> tuple[list[PluginReport], dict[str, Any]]:
    """Load as a run does, for the store that keeps what the last one counted."""
    from .accounts import last_run

    harness = loaded_harness(config_path, no_plugin)
    run, line = last_run(harness.store)
    accounts = run.accounts if run is not None else ()
    rows = hook_rows(harness.plugins, accounts=accounts, deadlines=harness.config.limits.deadlines())
    of = None if run is None else {"session": run.session, "time": run.time, "version": run.version}
    return harness.plugins.reports, {"hooks": rows, "counted": line, "run": of}


def hook_rows(
    manager: PluginManager, *, accounts: Iterable[Account | Impl] = (), deadlines: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Return each hook's contract and implementations, in the order they run.

    Args:
        manager: the loaded plugins.
        accounts: what a dispatcher counted, of a live harness or in an earlier run; adds calls, time, changes, faults.
        deadlines: seconds by hook name, instead of the specifications'.
    """
    counted = {(each.hook, each.plugin, each.function): each for each in accounts}
    rows: list[dict[str, Any]] = []
    for hook, info in manager.specs.items():
        lists = {"wrappers": manager.wrappers(hook), "implementations": manager.impls(hook)}
        named = {kind: [_implementation(each, hook, counted) for each in lists[kind]] for kind in lists}
        deadline_s = (deadlines or {}).get(hook, info.deadline_s)
        contract = {"kind": info.kind, "colour": info.colour, "on_fault": info.on_fault, "deadline_s": deadline_s}
        rows.append({"hook": hook, "signature": manager.signature(hook), **contract, **named})
    return rows


def hook_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows of `hook_rows` as a table for a person.

    Args:
        rows: the rows.
    """
    return _table([_hook_row(each) for each in rows], ("hook", "kind", "colour", "deadline", "order", "fault"))


def _implementation(
    impl: HookImpl, hook: str, counted: Mapping[tuple[str, str, str], Account | Impl]
) -> dict[str, Any]:
    account = counted.get((hook, impl.plugin_name, getattr(impl.function, "__name__", hook)))
    if account is None:
        return {"plugin": impl.plugin_name}
    counts = {"calls": account.calls, "time_s": account.time_s, "changes": account.changes, "faults": account.faults}
    return {"plugin": impl.plugin_name, **counts}


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
    plugin, calls = implementation["plugin"], implementation.get("calls")
    if calls is None:
        return str(plugin)
    if not calls:
        return f"{plugin} (not called)"
    ms, faults = implementation["time_s"] * 1_000, implementation["faults"]
    each = f"{calls} x {_short(ms / calls)} = " if calls > 1 else ""
    failed = f", {faults} fault{'' if faults == 1 else 's'}" if faults else ""
    return f"{plugin} ({each}{_short(ms)} ms{failed})"


def _short(ms: float) -> str:
    return f"{ms:.1f}" if ms >= 1 else f"{ms:.3f}"


def _table(rows: Sequence[tuple[str, ...]], head: tuple[str, ...]) -> str:
    from checkrein.cli import printable

    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join(printable(line) for line in padded)


def _missing() -> list[str]:
    return list(MISSING_ON_WINDOWS) if sys.platform == "win32" else []
