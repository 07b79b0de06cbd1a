"""`checkrein`: commands from metadata, one exit code per kind of failure, and `checkrein plugins`."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from checkrein import errors
from checkrein.cli import SUMMARIES, exit_code, main, printable
from checkrein.cli.accounts import Account
from checkrein.cli.plugins import hook_rows
from checkrein.config import PluginsConfig
from checkrein.discovery import COMMANDS, PLUGINS, discover
from checkrein.hookspecs import SPECS, hookimpl
from checkrein.plugins import PluginManager

COMMAND = """
import click
@click.command()
def Plugin():
    {body}
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No config file of this machine, and a folder without one."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setenv("CHECKREIN_CONFIG_HOME", str(tmp_path / "empty"))
    monkeypatch.delenv("CHECKREIN_DEBUG", raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def command(install: Any, body: str, name: str = "acme-do", distribution: str = "acme") -> str:
    install(distribution, {name: COMMAND.format(body=body)}, group=COMMANDS)
    return name


# --- commands ----------------------------------------------------------------------------------------


def test_case_H01_help_survives_a_command_that_fails_to_import(install: Any) -> None:
    install("bad", {"acme-bad": "raise OSError('no such device')"}, group=COMMANDS, version="0.3")
    done = run("--help")
    assert done.exit_code == 0
    assert "acme-bad" in done.output
    assert "(from bad 0.3)" in done.output
    assert "Run one turn" in done.output or "run" not in [one.name for one in discover(COMMANDS)]
    done = run("acme-bad")
    assert done.exit_code == 3
    assert "'acme-bad' of bad 0.3" in done.stderr
    assert "OSError: no such device" in done.stderr


def test_what_is_no_command_is_told(install: Any) -> None:
    install("bad", {"acme-bad": "Plugin = 5"}, group=COMMANDS)
    done = run("acme-bad")
    assert done.exit_code == 3
    assert "expected a click command" in done.stderr


def test_each_command_of_ours_says_what_it_does() -> None:
    """In the list of commands, which imports none of them."""
    ours = {entry.name for entry in metadata.distribution("checkrein").entry_points if entry.group == COMMANDS}
    assert set(SUMMARIES) == ours
    lines = CliRunner().invoke(main, ["--help"]).output.splitlines()
    assert all(any(line.split() == [name, *words.split()] for line in lines) for name, words in SUMMARIES.items())


def test_a_command_runs_with_its_own_help(install: Any) -> None:
    name = command(install, "click.echo('done')")
    assert run(name).output == "done\n"
    assert "Usage:" in run(name, "--help").output


def test_a_misspelt_command_names_the_nearest(install: Any) -> None:
    command(install, "pass")
    done = run("acme-doo")
    assert done.exit_code == 2
    assert "did you mean 'acme-do'?" in done.stderr


def test_H4_two_commands_of_a_name_are_refused_naming_both(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = command(install, "click.echo('ours')", distribution="checkrein")
    command(install, "click.echo('theirs')", distribution="zeta")
    assert "(refused: checkrein 1.2 and zeta 1.2 both bring it)" in " ".join(run("--help").output.split())
    done = run(name)
    assert done.exit_code == 3
    assert "got it from checkrein 1.2 and zeta 1.2" in done.stderr
    monkeypatch.setenv("CHECKREIN__PLUGINS__OVERRIDE", f'["{name}"]')
    assert run(name).output == "theirs\n"


# --- failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (
            "from checkrein.errors import ConfigError; raise ConfigError('bad', path='a.b')",
            3,
            "checkrein: bad (at a.b)",
        ),
        ("from checkrein.errors import PluginError; raise PluginError('bad', plugin='x')", 3, "plugin 'x': bad"),
        ("from checkrein.errors import CredentialsError; raise CredentialsError('no key')", 4, "checkrein: no key"),
        ("from checkrein.errors import ProviderError; raise ProviderError('down')", 5, "checkrein: down"),
        ("from checkrein.errors import StoreError; raise StoreError('torn')", 9, "checkrein: torn"),
        ("from checkrein.errors import SessionNotFound; raise SessionNotFound('none')", 2, "checkrein: none"),
        ("raise KeyboardInterrupt", 130, "checkrein: interrupted"),
        ("raise click.UsageError('which?')", 2, "Error: which?"),
        ("click.get_current_context().exit(7)", 7, ""),
        ("raise ValueError('odd \\x1b[31mred')", 1, "checkrein: internal error: ValueError: odd \\x1b[31mred"),
        ("raise ExceptionGroup('g', [ExceptionGroup('h', [KeyError('k')])])", 1, "internal error: KeyError: 'k'"),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(install: Any, body: str, code: int, words: str) -> None:
    done = run(command(install, body))
    assert done.exit_code == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


def test_debugging_shows_the_traceback(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKREIN_DEBUG", "1")
    assert isinstance(run(command(install, "raise ValueError('odd')")).exception, ValueError)


def test_every_error_of_ours_has_an_exit_code() -> None:
    codes = {
        name: exit_code(getattr(errors, name)("x", *_more(name))) for name in errors.__all__ if _more(name) is not None
    }
    assert codes["ConfigError"] == exit_code(errors.PluginError("x", plugin="p")) == 3
    assert codes["InvariantViolation"] == 8
    assert set(codes.values()) == {1, 2, 3, 4, 5, 8, 9}


def _more(name: str) -> tuple[str, ...] | None:
    more: dict[str, tuple[str, ...] | None] = {
        "PluginError": None,
        "TurnFailed": None,
        "InvariantViolation": ("m",),
        "NotPlainJSON": ("m",),
        "PluginFault": ("m", "n"),
        "GateClosed": ("m",),
    }
    return more.get(name, ())


def test_texts_of_others_do_not_drive_the_terminal() -> None:
    assert printable("a\x1b]0;x\x07b\nc\u202e") == "a\\x1b]0;x\\x07b\nc\\x202e"


# --- checkrein plugins -------------------------------------------------------------------------------


class Guarding:
    @hookimpl
    def tools_guard(self, call: Any) -> None: ...

    @hookimpl(wrapper=True)
    def step_result(self, message: Any) -> Any:
        return (yield)


COUNTED = Account("Guarding", "tools_guard", function="tools_guard", calls=3, time_s=0.25, changes=0, faults=2)


def test_H1_each_hooks_contract_is_printed_with_its_order() -> None:
    manager = PluginManager(PluginsConfig(), found=[])
    manager.add(Guarding)
    manager.add(Guarding)
    manager.load()
    rows = {row["hook"]: row for row in hook_rows(manager, accounts=[COUNTED], deadlines={"tools_guard": 9.0})}
    assert list(rows) == list(SPECS)
    guard = rows["tools_guard"]
    assert (guard["kind"], guard["colour"], guard["deadline_s"]) == ("vote", "any", 9.0)
    assert guard["on_fault"] == SPECS["tools_guard"].on_fault
    assert guard["implementations"] == [
        {"plugin": "Guarding", "calls": 3, "time_s": 0.25, "changes": 0, "faults": 2},
        {"plugin": "Guarding-2"},
    ]
    assert [each["plugin"] for each in rows["step_result"]["wrappers"]] == ["Guarding", "Guarding-2"]


def test_the_list_says_what_loads_and_what_not(install: Any) -> None:
    install("acme", {"acme-bad": "1 / 0", "acme-off": "1 / 0"}, version="7")
    done = run("plugins", "--no-plugin", "acme-off")
    assert done.exit_code == 0, done.output
    assert "acme-bad" in done.output
    assert "acme 7" in done.output
    listed = {
        one["name"]: one for one in json.loads(run("plugins", "--no-plugin", "acme-off", "--json").output)["plugins"]
    }
    assert listed["acme-bad"]["state"] == "found"
    assert (listed["acme-off"]["state"], listed["acme-off"]["problem"]) == ("blocked", "plugins.block")


def test_the_loaded_list_says_what_went_wrong(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install("acme", {"acme-bad": "1 / 0"}, version="7")
    ours = ",".join(one.name for one in discover(PLUGINS) if one.builtin)
    monkeypatch.setenv("CHECKREIN_PLUGINS_BLOCK", ours)
    done = run("plugins", "--load")
    assert "ZeroDivisionError" in done.output
    shown = json.loads(run("plugins", "--hooks", "--json").output)
    assert [row["hook"] for row in shown["hooks"]] == list(SPECS)
    assert "tools_guard" in run("plugins", "--hooks").output
    monkeypatch.setenv("CHECKREIN__PLUGINS__ACME-BAD__X", "1")
    done = run("plugins", "--load")
    assert done.exit_code == 3
    assert "plugin 'acme-bad'" in done.stderr


def test_load_says_what_became_of_each_as_a_run_would(install: Any) -> None:
    source = """
        from checkrein import hookimpl
        class Plugin:
            @hookimpl
            def register_tools(self):
                raise OSError("no such device")
    """
    install("bad", {"acme-bad": source})
    for arguments in (("--load",), ("--hooks",)):
        done = run("plugins", *arguments, "--json")
        report = next(each for each in json.loads(done.output)["plugins"] if each["name"] == "acme-bad")
        assert report["state"] == "skipped" and "OSError: no such device" in report["problem"]
