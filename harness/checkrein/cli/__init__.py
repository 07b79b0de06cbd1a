"""The command line: `checkrein`, its commands from entry points, and one exit code per kind of failure.

Commands are entry points of group `checkrein.commands`. Listing them imports none of them, and calling one
imports that one: this module needs only the standard library and click, so that `--help` is fast and a broken
plugin cannot take it away.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from checkrein.errors import (
    CheckreinError,
    ConfigError,
    CredentialsError,
    InvariantViolation,
    ProviderError,
    SessionLocked,
    SessionNotFound,
    StoreError,
)

if TYPE_CHECKING:
    from checkrein.discovery import Found

__all__ = ["EXIT_CODES", "exit_code", "main"]

EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (ConfigError, 3),
    (CredentialsError, 4),
    (ProviderError, 5),
    (InvariantViolation, 8),
    (SessionNotFound, 2),
    (SessionLocked, 1),
    (StoreError, 9),
    (KeyboardInterrupt, 130),
)
"""Exit codes of failures; the first class that fits counts, everything else is 1. Usage errors are click's 2."""

SUMMARIES = {
    "run": "Run one turn and print the answer.",
    "chat": "Talk to an agent in the terminal.",
    "check": "Check logs against the rules of the oracle.",
    "repair": "Write a balanced copy of another agent's transcript.",
    "sessions": "List, show, copy, search and replay sessions.",
    "crashtest": "Kill an agent at many points, and resume it.",
    "plugins": "List plugins and hooks.",
    "config": "Check, show and describe the configuration.",
}
"""What our own commands do: their help without their import."""


def exit_code(error: BaseException) -> int:
    """Return the exit code of a failure.

    Args:
        error: what was raised.
    """
    return next((code for class_, code in EXIT_CODES if isinstance(error, class_)), 1)


class BrokenCommand(click.ClickException):
    """A command that is installed and cannot be used."""

    exit_code = 3


class CommandLine(click.Group):
    """A group whose commands are found by metadata and imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names: ours, then the others."""
        return list(_commands(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command.

        Raises:
            BrokenCommand: it cannot be imported, is no command, or two distributions bring it.
        """
        offered = _commands(ctx).get(cmd_name)
        if offered is None:
            return None
        one = _the_one(cmd_name, offered)
        try:
            command = one.load()
        except Exception as error:
            if _debugging():
                raise
            raise BrokenCommand(
                f"the command {cmd_name!r} of {one.origin} ({one.value}) cannot be imported: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(command, click.Command):
            raise BrokenCommand(
                f"expected a click command at {one.value} of {one.origin}, got {type(command).__name__}"
            )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the nearest name for a misspelt command."""
        from checkrein.nearest import did_you_mean

        if args and not args[0].startswith("-") and args[0] not in (known := _commands(ctx)):
            ctx.fail(f"expected one of the commands {', '.join(known)}; got {args[0]!r}{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        rows = [(name, _summary(name, offered)) for name, offered in _commands(ctx).items()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def main(self, *args: Any, **extra: Any) -> Any:
        """As click's; standard output that takes nothing is a failure, also of `--help`."""
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if not _is_of_output(error) or _debugging():
                raise
            from .streams import silence

            silence(sys.stdout)
            click.echo(f"checkrein: standard output cannot be written: {error.strerror or error}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a failure is one line on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise  # click's own ways out
        except (Exception, KeyboardInterrupt) as error:
            if _debugging() or _is_of_output(error):
                raise
            cause = _single(error)
            click.echo(_line(cause), err=True)
            ctx.exit(exit_code(cause))


def _commands(ctx: click.Context) -> dict[str, list[Found]]:
    from checkrein.discovery import COMMANDS, discover

    # Kept with the invocation: click asks up to three times, and each look reads what every distribution says.
    commands: dict[str, list[Found]] | None = ctx.meta.get(COMMANDS)
    if commands is None:
        commands = ctx.meta[COMMANDS] = {}
        for one in discover(COMMANDS):
            commands.setdefault(one.name, []).append(one)
    return commands


def _the_one(name: str, offered: list[Found]) -> Found:
    if len(offered) == 1:
        return offered[0]
    if len(offered) == 2 and offered[0].builtin and _may_override(name):
        return offered[1]
    both = " and ".join(one.origin for one in offered)
    raise BrokenCommand(
        f"expected one command {name!r}, got it from {both}; uninstall one, or name it in plugins.override"
    )


def _may_override(name: str) -> bool:
    from checkrein.config import load_config

    return name in load_config().config.plugins.override


def _summary(name: str, offered: list[Found]) -> str:
    if len(offered) > 1:
        return f"(refused: {' and '.join(one.origin for one in offered)} both bring it)"
    return SUMMARIES.get(name, "") if offered[0].builtin else f"(from {offered[0].origin})"


def _is_of_output(error: BaseException) -> bool:
    """Whether it is what standard output answered to click's echo: a full disk, not some file of a command's."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    echo = place is not None and place.tb_frame.f_code is click.echo.__code__
    return echo and isinstance(error, OSError) and not place.tb_frame.f_locals.get("err")  # type: ignore[union-attr]


def _debugging() -> bool:
    return os.environ.get("CHECKREIN_DEBUG", "0") not in ("", "0")


def _single(error: BaseException) -> BaseException:
    """The only exception of nested groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _line(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "checkrein: interrupted"
    if isinstance(error, CheckreinError):
        return f"checkrein: {printable(str(error))}"
    text = printable(f"{type(error).__name__}: {error}")
    return f"checkrein: internal error: {text}; CHECKREIN_DEBUG=1 shows the traceback"


def printable(text: str) -> str:
    """Return a text without control characters, which a terminal would obey.

    Args:
        text: anything, also a stranger's words.
    """
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)


@click.group(
    cls=CommandLine,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 completed, 1 error, 2 usage, 3 config or plugin, 4 credentials, 5 provider, "
    "6 approval missing, 7 limit, 8 invariant violated, 9 log damaged, 130 interrupted.",
)
@click.version_option(package_name="checkrein", message="checkrein %(version)s")
def main() -> None:
    """An event-sourced agent harness: every turn is balanced, and an oracle proves it."""
    try:
        os.getcwd()  # noqa: PTH109  # pathlib is start-up time
    except OSError as error:
        raise ConfigError(f"expected a current folder, got none ({error.strerror}); go to one that is there") from None
