"""Sessions as things to keep: forking at a turn, going back, searching (R5). Replaying one is replay.py.

    new_id = fork(store, session_id, turn=3)      # the first three turns, and on from there
    new_id = rewind(store, session_id)            # without the last turn
    for hit in search(store, "invoice"): ...

A fork is a session of its own: the parent's lines byte for byte, up to the end of a turn, then its own facts.
Nothing here writes to the parent, and its lock is not needed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from . import events as ev
from .closing import repair
from .errors import StoreError
from .lenient import structural
from .log import Pages
from .messages import CallBlock, content_text
from .recovery import Recovered, recover, reopen
from .session import Session
from .store import flush

if TYPE_CHECKING:
    from .events import AnyEvent
    from .eventtypes import EventType
    from .store import Store

__all__ = ["Hit", "fork", "repair_stored", "rewind", "search", "text_of"]

T = TypeVar("T")

_BLOB = re.compile(rb"[0-9a-f]{64}")
_NO_BLOBS = (b'{"type":"request/start"', b'{"type":"approval/asked"')  # their hashes are no blobs'
EXCERPT_CHARS = 120


def fork(store: Store, session_id: str, turn: int | None = None, *, new_id: str | None = None) -> str:
    """Copy a session up to the end of a turn into a new one, which can be resumed (R5).

    Input that was pending there stays the parent's: the copy discards it, so that nothing is done twice.
    Turns, steps and inputs are numbered on.

    Args:
        store: where both sessions are.
        session_id: the parent's.
        turn: the last turn of the copy, from 0 (nothing but the beginning); the last one that ended if not given.
        new_id: the copy's id; made of the time if not given.

    Returns:
        The copy's id.

    Raises:
        SessionNotFound: there is no such parent.
        StoreError: it has no such turn, a newer version began it, or the store cannot keep the copy.
    """
    from .harness import new_session_id

    found = _readable(store, session_id)
    cut = _cut(found, session_id, turn)
    new_id = new_id or new_session_id()
    copy = Session.load(new_id, _first(found.events, cut), _first(found.lines, cut))
    last = copy.events[-1].seq if copy.events else -1
    for gap in found.gaps:
        if gap.before <= last:
            copy.append(ev.LogGap(after=gap.after, before=gap.before, skipped_bytes=gap.skipped_bytes))
    _create(copy, session_id, last)
    for entry in list(copy.state.pending.values()):
        copy.append(ev.InboxDiscarded(id=entry.id, reason=f"it is still {session_id}'s: this is a fork of it"))
    store.create(new_id, copy.lines).close()
    _copy_blobs(store, session_id, new_id, _first(found.lines, cut))
    return new_id


def rewind(store: Store, session_id: str, turns: int = 1, *, new_id: str | None = None) -> str:
    """Fork a session some turns before its last one that ended; the session itself stays as it is.

    Args:
        store: where it is.
        session_id: which.
        turns: how many turns to leave out, at least 1.
        new_id: as for fork.

    Returns:
        The new session's id.

    Raises:
        As fork; StoreError if there are not that many turns.
    """
    last = max(_turn_ends(_readable(store, session_id).events), default=0)
    if not 1 <= turns <= last:
        raise StoreError(f"expected to go back 1 to {last} turns in session {session_id!r}, got {turns}")
    return fork(store, session_id, last - turns, new_id=new_id)


def repair_stored(store: Store, session_id: str, types: dict[str, EventType] | None = None) -> list[AnyEvent]:
    """Close what a stored session left open and name its gaps, as resuming it would, without an agent (R1, R2).

    Args:
        store: where it is.
        session_id: which.
        types: event types that plugins registered, by name: their open pairs are closed too.

    Returns:
        The events that were appended; none if there was nothing to repair.

    Raises:
        SessionNotFound, SessionLocked, StoreError: it cannot be opened for writing.
        OSError: the store did not take the events.
    """
    found, writer = reopen(store, session_id, types or {})
    try:
        session = Session.load(session_id, found.events, found.lines, types, found.state)
        for gap in found.gaps:
            session.append(ev.LogGap(after=gap.after, before=gap.before, skipped_bytes=gap.skipped_bytes))
        repair(session, set_aside_bytes=len(found.set_aside))
        flush(writer, session.lines)
        writer.sync()
        return list(session.events[len(found.events) :])
    finally:
        writer.close()


def _readable(store: Store, session_id: str) -> Recovered:
    found = recover(store.read(session_id))
    if found.read_only:
        raise StoreError(f"session {session_id!r} was begun by a newer checkrein; it can be read, not copied")
    return found


def _first(items: Sequence[T], count: int) -> Sequence[T]:
    return items.upto(count) if isinstance(items, Pages) else items[:count]


def _turn_ends(events: Sequence[AnyEvent]) -> dict[int, int]:
    """The list position behind each turn's end, by turn; ends of other versions count too."""
    ends: dict[int, int] = {}
    for index, event in enumerate(events):
        known = structural(event) if isinstance(event, ev.FreeEvent) else event
        if type(known) is ev.TurnEnd:
            ends[known.turn] = index + 1
    return ends


def _cut(found: Recovered, session_id: str, turn: int | None) -> int:
    ends = _turn_ends(found.events)
    if turn is None:
        turn = max(ends, default=0)
    if turn in ends:
        return ends[turn]
    if turn == 0:
        starts = [index for index, event in enumerate(found.events) if event.type in ("turn/start", "inbox/accepted")]
        return starts[0] if starts else len(found.events)
    known = f"one of its turns that ended, 1 to {max(ends)}" if ends else "0: no turn of it has ended"
    raise StoreError(f"expected {known}, got turn {turn} of session {session_id!r}")


def _create(copy: Session, parent: str, seq: int) -> None:
    from . import __version__

    created = copy.state.created
    members: dict[str, Any] = {"agent": copy.state.agent}
    if created is not None:
        members.update(cwd=created.cwd, plugins=created.plugins, config=created.config)
    copy.append(
        ev.SessionCreated(
            format=ev.FORMAT,
            session=copy.id,
            version=__version__,
            derivation=ev.DERIVATION,
            origin={"kind": "fork", "session": parent, "seq": seq},
            **members,
        )
    )


def _copy_blobs(store: Store, parent: str, copy: str, lines: Iterable[bytes]) -> None:
    """Copy the blobs the lines name; a hash that names none is something else's."""
    names = {name for line in lines if not line.startswith(_NO_BLOBS) for name in _BLOB.findall(line)}
    for name in sorted(names):
        try:
            data = store.get_blob(parent, name.decode())
        except StoreError:
            continue
        store.put_blob(copy, data)


# --- searching --------------------------------------------------------------------------------------------


class Hit(Struct, frozen=True):
    """A place where a text was found.

    Attributes:
        session: the session's id.
        seq: the event's.
        time: the event's, in Unix ms.
        type: the event's type word.
        turn: the turn it belongs to, 0 if none.
        excerpt: the text around what was found, on one line.
    """

    session: str
    seq: int
    time: int
    type: str
    turn: int
    excerpt: str


def search(store: Store, words: str, *, limit: int = 100) -> Iterator[Hit]:
    """Find a text in what was said, asked and returned, in all sessions, the newest first.

    Args:
        store: where to look; its listing says what there is, no session is locked or changed.
        words: what to look for, upper and lower case alike; not empty.
        limit: hits at most, at least 1.

    Returns:
        The hits, session by session, in the order of their events. A session that cannot be read is passed over.
    """
    wanted = " ".join(words.split()).casefold()
    if not wanted:
        raise ValueError("expected some text to look for, got none")
    left = limit
    for info in store.list():
        try:
            for event in recover(store.read(info.id)).events:
                excerpt = _excerpt(text_of(event), wanted)
                if excerpt is not None:
                    yield Hit(info.id, event.seq, event.time, event.type, getattr(event, "turn", 0) or 0, excerpt)
                    left -= 1
                    if left <= 0:
                        return
        except StoreError:  # also in its middle: a long one is read while it is searched
            continue


def text_of(event: AnyEvent) -> str:
    """What an event says to a person: what was said, asked for and returned; empty for all others."""
    if isinstance(event, (ev.UserInput, ev.SteeringInput, ev.ContextInput)):
        return content_text(event.content)
    if isinstance(event, (ev.AssistantPartial, ev.AssistantThinking)):
        return event.text
    if isinstance(event, ev.AssistantAnswer):
        calls = [f"{block.name} {block.arguments}" for block in event.content if isinstance(block, CallBlock)]
        return "\n".join([content_text(event.content), *calls])
    if isinstance(event, (ev.ToolEnded, ev.ToolResulted)) and event.content:
        return content_text(event.content)
    return ""


def _excerpt(text: str, wanted: str) -> str | None:
    if not text:
        return None
    line = " ".join(text.split())
    found = line.casefold().find(wanted)
    if found < 0:
        return None
    # Folding makes some letters longer ("ß" is "ss"): where it was found, and where that is in the line, differ.
    place = bisect_right(range(found + 1), found, key=lambda n: len(line[:n].casefold())) - 1
    begin = max(0, place - EXCERPT_CHARS // 3)
    end = begin + EXCERPT_CHARS
    return f"{'…' if begin else ''}{line[begin:end]}{'…' if end < len(line) else ''}"
