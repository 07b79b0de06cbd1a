"""`checkrein repair FILE OUT`: a balanced copy of another agent's transcript, with every change listed."""

from __future__ import annotations

import json

import click

__all__ = ["repair"]

UNREADABLE = 9


@click.command()
@click.argument("file", type=click.Path())
@click.argument("out", type=click.Path())
@click.option("--format", "format_", metavar="NAME", help="The transcript's format, instead of finding it out.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def repair(ctx: click.Context, file: str, out: str, format_: str | None, as_json: bool) -> None:
    """Write a balanced copy of another agent's transcript.

    FILE stays as it is; OUT must not exist yet. A session of checkrein's own is mended by
    `checkrein sessions repair`. Exit code 9 if FILE is in no format that is known.
    """
    from checkrein.errors import CheckreinError
    from checkrein.transcripts import repair as write_repaired
    from checkrein.visible import visible

    try:
        report = write_repaired(file, out, format=format_)
    except (CheckreinError, OSError) as exc:
        click.echo(visible(f"checkrein repair: {exc}"), err=True)
        ctx.exit(UNREADABLE)
    if as_json:
        changes = [{"line": change.line, "message": change.message} for change in report.changes]
        document = {"file": file, "out": out, "format": report.format, "messages": report.messages, "changes": changes}
        click.echo(json.dumps(document))
        return
    for change in report.changes:
        click.echo(visible(f"line {change.line}: {change.message}" if change.line else change.message))
    count = len(report.changes)
    words = "no change was needed" if not count else f"{count} change{'' if count == 1 else 's'}"
    click.echo(visible(f"{out}: {report.format}, {report.messages} messages, {words}"))
