"""`checkrein check FILE...`: the oracle over stored logs, and the readers of foreign transcripts over theirs.

Exit codes: 0 balanced, 8 a rule is broken, 9 a file cannot be read (the highest of all files counts).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from .checking import Checked

__all__ = ["check", "OK", "VIOLATED", "UNREADABLE"]

OK, VIOLATED, UNREADABLE = 0, 8, 9
_LOG_NAME = "log.jsonl"
_EXCERPT_CHARS = 160


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--deep", is_flag=True, help="Derive and validate the history after every event; rebuild each request.")
@click.option("--strict", is_flag=True, help="An interrupted, torn or skipped part also counts as broken.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a file.")
@click.pass_context
def check(ctx: click.Context, files: tuple[str, ...], deep: bool, strict: bool, as_json: bool) -> None:
    """Check that session logs are balanced.

    FILE is a log, a session's folder, or - for standard input. Transcripts of other
    agents are recognised and checked too.
    """
    from .checking import check_bytes, check_transcript, to_json

    worst = OK
    for name in files:
        try:
            data = _read(name)
        except OSError as exc:
            worst = UNREADABLE
            _say(name, exc.strerror or str(exc), as_json)
            continue
        checked = check_bytes(name, data, deep=deep) or check_transcript(name, data)
        if checked is None:
            worst = UNREADABLE
            _say(name, "expected a session log or a transcript, found no readable event", as_json)
            continue
        if not checked.ok(strict):
            worst = max(worst, VIOLATED)
        if as_json:
            click.echo(to_json(checked, strict))
        else:
            _show(checked, strict)
    ctx.exit(worst)


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    path = Path(name)
    if path.is_dir():
        path /= _LOG_NAME
        if not path.exists():
            raise OSError(f"a folder without a {_LOG_NAME}; name a session's folder, or a file")
    return path.read_bytes()


def _say(name: str, problem: str, as_json: bool) -> None:
    from checkrein.visible import visible

    from .checking import unreadable_json

    if as_json:
        click.echo(unreadable_json(name, problem))
    else:
        click.echo(f"{visible(name)}: unreadable: {visible(problem)}", err=True)


def _show(checked: Checked, strict: bool) -> None:
    from checkrein.visible import visible

    from .rules import RULES

    name = visible(checked.name)
    for note in checked.notes:
        click.echo(f"{name}: {visible(note)}")
    for found in checked.found:
        where = f"seq {found.seq}"
        click.echo(f"{name}:{found.line or ''}: {found.rule} {found.severity}: {visible(found.message)}")
        if (rule := RULES.get(found.rule)) is not None:
            click.echo(f"    rule: {rule.text}")
        for line, text in found.shown:
            click.echo(f"    {f'line {line}' if line else where}: {visible(text[:_EXCERPT_CHARS])}")
    click.echo(f"{name}: {checked.summary} {'balanced' if checked.ok(strict) else 'NOT balanced'}")
