"""More of `checkrein sessions`: go on with a session, copy it, go back, repair, replay and search.

Only `resume` needs a model. Nothing here changes the session it copies, replays or searches.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from .options import config_options, loaded_harness
from .sessions import sessions

if TYPE_CHECKING:
    from checkrein.harness import Harness

__all__ = ["fork", "repair", "replay", "resume", "rewind", "search"]


@sessions.command()
@click.argument("session_id", metavar="ID")
@config_options
def resume(session_id: str, config_path: str | None, no_plugin: tuple[str, ...]) -> None:
    """Go on with a session in the terminal: as `chat --resume ID`."""
    from .chat import chat

    arguments = ["--resume", session_id]
    if config_path is not None:
        arguments += ["--config", config_path]
    for name in no_plugin:
        arguments += ["--no-plugin", name]
    chat.main(arguments, prog_name="checkrein chat", standalone_mode=False)


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.option("--turn", type=click.IntRange(min=0), help="The last turn of the copy; the last one if not given.")
@config_options
def fork(session_id: str, turn: int | None, config_path: str | None, no_plugin: tuple[str, ...]) -> None:
    """Copy a session up to the end of a turn, and print the copy's id."""
    from checkrein.sessions import fork as copy

    store, found = _stored(config_path, no_plugin, session_id)
    click.echo(copy(store, found, turn))


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.option("--turns", type=click.IntRange(min=1), default=1, show_default=True, help="How many turns to leave out.")
@config_options
def rewind(session_id: str, turns: int, config_path: str | None, no_plugin: tuple[str, ...]) -> None:
    """Copy a session without its last turns, and print the copy's id; the session itself stays."""
    from checkrein.sessions import rewind as back

    store, found = _stored(config_path, no_plugin, session_id)
    click.echo(back(store, found, turns))


@sessions.command()
@click.argument("session_id", metavar="ID")
@config_options
def repair(session_id: str, config_path: str | None, no_plugin: tuple[str, ...]) -> None:
    """Close what a killed process left open in a session. Resuming it does the same."""
    from checkrein.errors import StoreError
    from checkrein.sessions import repair_stored
    from checkrein.visible import visible

    harness = loaded_harness(config_path, no_plugin)
    found = _find(harness, session_id)
    try:
        appended = repair_stored(harness.store, found, harness.event_types)
    except OSError as exc:
        raise StoreError(f"session {found} is not repaired: {exc}; mend that, and repair it again") from exc
    if not appended:
        click.echo(f"session {found}: nothing to repair")
    for event in appended:
        reason = getattr(event, "reason", None)
        click.echo(visible(f"session {found}: {event.seq} {event.type}{f' {reason.kind}' if reason else ''}"))


@sessions.command()
@click.argument("session_id", metavar="ID")
@config_options
def replay(session_id: str, config_path: str | None, no_plugin: tuple[str, ...]) -> None:
    """Run a session again from its log, without its model and tools, and compare event by event.

    Exit code 8 if an event comes out differently: it is shown beside the recorded one.
    """
    import anyio

    from checkrein.recovery import recover
    from checkrein.replay import replay as run_again
    from checkrein.visible import visible

    store, found = _stored(config_path, no_plugin, session_id)
    report = anyio.run(run_again, recover(store.read(found)).events)
    for difference in report.differences:
        click.echo(f"recorded  {visible(difference.recorded)}\nreplayed  {visible(difference.replayed)}\n")
    if report.stopped is not None:
        click.echo(visible(report.stopped))
    word = "equal" if report.equal else "NOT equal"
    click.echo(f"session {found}: {report.events} of {report.total} events replayed, {report.made} made anew: {word}")
    if not report.equal:
        click.get_current_context().exit(8)


@sessions.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Hits at most.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a hit.")
@config_options
def search(
    words: tuple[str, ...], limit: int, as_json: bool, config_path: str | None, no_plugin: tuple[str, ...]
) -> None:
    """Find a text in all sessions, the newest first. Exit code 1 if there is none."""
    from checkrein.sessions import search as find
    from checkrein.visible import visible

    from .show import clock
    from .streams import Streams

    streams = Streams()
    hits = 0
    for hit in find(loaded_harness(config_path, no_plugin).store, " ".join(words), limit=limit):
        hits += 1
        row = visible(f"{hit.session}  {clock(hit.time)}  turn {hit.turn}  {hit.type}  {hit.excerpt}")
        streams.out((json.dumps(asdict(hit)) if as_json else row) + "\n")
        if streams.gone:
            break
    streams.finish()
    if not hits:
        click.get_current_context().exit(1)


def _find(harness: Harness, session_id: str) -> str:
    from .opening import find_session

    return find_session(harness.store, session_id)


def _stored(config_path: str | None, no_plugin: tuple[str, ...], session_id: str) -> tuple[Any, str]:
    harness = loaded_harness(config_path, no_plugin)
    return harness.store, _find(harness, session_id)
