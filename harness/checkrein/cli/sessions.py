"""`checkrein sessions`: what is stored, and a session as a conversation. Reading needs no lock and changes nothing.

A damaged session is listed with its problem and shown as far as it can be read; it never stops a listing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from msgspec.structs import asdict

from .options import config_options, loaded_harness

if TYPE_CHECKING:
    from checkrein.recovery import Recovered
    from checkrein.store import SessionInfo, Store

__all__ = ["sessions"]


@click.group()
def sessions() -> None:
    """List, show, copy, search and replay sessions."""


@sessions.command("list")
@config_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a session.")
def list_(config_path: str | None, no_plugin: tuple[str, ...], as_json: bool) -> None:
    """List the stored sessions, newest first."""
    from .streams import Streams

    streams = Streams()
    infos = list(loaded_harness(config_path, no_plugin).store.list())
    if not infos:
        streams.note("no sessions are stored here")
    for info in infos:
        streams.out((json.dumps(asdict(info)) if as_json else _row(info)) + "\n")
        if streams.gone:
            break
    streams.finish()


@sessions.command()
@click.argument("session_id", metavar="ID")
@config_options
@click.option("--json", "as_json", is_flag=True, help="Print the events, one JSON object a line.")
def show(session_id: str, config_path: str | None, no_plugin: tuple[str, ...], as_json: bool) -> None:
    """Show a session as a conversation. ID may be the beginning of its id.

    Exit code 9 if parts of it cannot be read.
    """
    from checkrein.recovery import recover

    from .opening import find_session
    from .streams import Streams

    store = loaded_harness(config_path, no_plugin).store
    found = find_session(store, session_id)
    recovered = recover(store.read(found))
    streams = Streams()
    for line in recovered.lines if as_json else _conversation(store, found, recovered):
        streams.raw(line) if isinstance(line, bytes) else streams.out(f"{line}\n")
        if streams.gone:
            break
    if recovered.skipped_bytes or recovered.gaps or not recovered.events:
        streams.note(f"session {found} is damaged: {recovered.skipped_bytes} bytes cannot be read")
        click.get_current_context().exit(9)
    streams.finish()


def _row(info: SessionInfo) -> str:
    from checkrein.visible import visible

    from .show import clock

    when = clock(info.updated_ms) if info.updated_ms else "-".ljust(19)
    title = info.title if info.problem is None else f"{info.title} [{info.problem}]".strip()
    return f"{visible(info.id)}  {when}  {visible(info.agent) or '-'}  {info.events} events  {visible(title)}".rstrip()


def _conversation(store: Store, session_id: str, recovered: Recovered) -> Iterator[str]:
    from checkrein.session import Session

    from .show import Narrator, brief, usage_text

    state = Session.load(session_id, recovered.events, recovered.lines).state
    yield f"session {session_id}, agent {brief(state.agent) or '(unknown)'}, {len(recovered.events)} events"
    yield f"log {store.locate(session_id)}"
    if recovered.read_only:
        yield "a newer version of checkrein writes this log: it can be read here, not continued"
    if recovered.set_aside:
        yield f"the last {len(recovered.set_aside)} bytes are torn and will be set aside when it is continued"
    narrate = Narrator(whole=True)
    for event in recovered.events:
        if text := narrate(event):
            yield text
    if state.turn_open:
        yield f"turn {state.turn} is open: it runs now, or was interrupted"
    if usage := usage_text(state.usage):
        yield usage


from . import sessions_more  # noqa: E402, F401 - its commands register themselves
