"""Recovery: from whatever bytes a store found to the events that can be trusted (R1, L5).

Pure: the same bytes give the same answer, and no bytes give an exception. Closing what was open
(R2) is not here: it is the fold's work, from these events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct, field

from .errors import StoreError
from .events import FORMAT, AnyEvent, FreeEvent, InboxAccepted, LogGap, SessionCreated
from .log import Page, Pages, decoded, without_gc
from .messages import content_text
from .rules import fold_all
from .salvage import Damage, judged, parse_log, salvage, split_tail
from .session import projections
from .snapshot import keep, restored
from .store import SessionInfo, Snapshot, Snapshotting, Store, StoredLog, Writer
from .text import preview

if TYPE_CHECKING:
    from .eventtypes import EventType
    from .state import State

__all__ = ["Gap", "Recovered", "recover", "reopen", "parse_log", "salvage", "split_tail", "summary", "MAX_SEQ"]

MAX_SEQ = 2**53
"""No event we number comes near; a line beyond it is nobody's, and would leave no room to number on."""

TITLE_CHARS = 80

_CHUNK = 1_024
_seq = attrgetter("seq")


class Gap(Struct, frozen=True):
    """A stretch of events that is lost.

    Attributes:
        after: the last good seq before it; -1 if the log's beginning is lost.
        before: the first good seq behind it.
        skipped_bytes: bytes found in between that are no event.
    """

    after: int
    before: int
    skipped_bytes: int


class Recovered(Struct, frozen=True):
    """What a log holds.

    Attributes:
        events: every event that can be trusted, seq ascending, each seq once; read when asked for if the log is long.
        lines: their sealed lines, as stored; as long as the events.
        gaps: the losses that no `log/gap` event in the log names yet.
        set_aside: the torn tail (R1).
        skipped_bytes: all bytes that are no event, or one whose seq came before; the torn tail not included.
        read_only: a newer version began this log; it may be read, not continued.
        state: the projections of the events, if they were made on the way; Session.load makes them otherwise.
        plain: the log holds these lines, seq 0, 1, 2 and so on, and nothing else before its torn tail.
        known: how many of the events a snapshot stood for, so that nobody folded them again.
    """

    events: Sequence[AnyEvent]
    lines: Sequence[bytes]
    gaps: list[Gap] = field(default_factory=list)
    set_aside: bytes = b""
    skipped_bytes: int = 0
    read_only: bool = False
    state: State | None = None
    plain: bool = False
    known: int = 0


def recover(stored: StoredLog, types: dict[str, EventType] | None = None) -> Recovered:
    """Return the events of a stored log, whatever its bytes are.

    Lines that are damaged, foreign or repeated are left out and counted; two events glued to one line,
    or other bytes stuck to one, are told apart by their seals; an event out of order is put in its
    place, and of two with the same seq the first one written stays.

    Args:
        stored: what the store found.
        types: event types that plugins registered, by name. With them the projections are made on the way, from
            the log's snapshot if it has one for them.

    Returns:
        The events with their lines, and what is missing between them.
    """
    with without_gc(len(stored.lines)):
        if isinstance(stored.lines, Pages) and (found := _recover_pages(stored, stored.lines, types)) is not None:
            return found
        events, lines, damage, plain = _read(stored.lines)
        gaps: list[Gap] = []
        named = _named(events)
        if not plain:
            events, lines = _in_order(events, lines, damage)
            gaps = _gaps(_jumps(events, -1), named, damage)
        state = None
        if types is not None:
            state = projections(types)
            fold_all(state, events)
    read_only = bool(events) and _is_newer(events[0])
    skipped = sum(size for _, size in damage)
    return Recovered(events, lines, gaps, stored.torn, skipped, read_only, state, plain and not named)


def reopen(store: Store, session_id: str, types: dict[str, EventType] | None = None) -> tuple[Recovered, Writer]:
    """Open a stored session to continue it: its events, and the writer that is owed everything behind them.

    Args:
        store: where it is.
        session_id: which.
        types: as for recover.

    Raises:
        SessionNotFound: there is none.
        SessionLocked: somebody else writes it.
        StoreError: a newer version began it, so it may be read only; or it cannot be read to its end.
    """
    stored, writer = store.open(session_id)
    try:
        found = recover(stored, types)
        if found.read_only:
            raise StoreError(
                f"session {session_id!r} was begun by a newer checkrein (this one writes format {FORMAT}); "
                "read it, or continue it with a newer version"
            )
        writer.taken = len(found.lines)
        if isinstance(writer, Snapshotting):
            writer.covered = found.known if found.plain else None
        if found.state is not None:
            keep(found.state, writer, len(found.lines))
    except BaseException:  # a long log is still being read here
        writer.close()
        raise
    return found, writer


def summary(
    session_id: str, head: Sequence[bytes], tail: Sequence[bytes] | None = None, *, size_bytes: int = 0
) -> SessionInfo:
    """Describe a session for a listing, from its first and last lines.

    Args:
        session_id: its id.
        head: lines of its beginning; the first input found there gives the title.
        tail: lines of its end; None if head is the whole log.
        size_bytes: the log's size.

    Returns:
        A line of the listing; `problem` says what is wrong with the lines seen.
    """
    first = recover(StoredLog(head))
    last = first if tail is None else recover(StoredLog(tail))
    created = first.events[0] if first.events else None
    newest = last.events[-1] if last.events else created
    title = next((content_text(event.content) for event in first.events if type(event) is InboxAccepted), "")
    problem = None
    if type(created) is not SessionCreated:
        problem = "its first event is lost or unknown" if first.lines else "it holds no readable event"
    elif first.skipped_bytes or last.skipped_bytes or (tail is None and first.gaps):
        problem = f"damaged: {max(first.skipped_bytes, last.skipped_bytes)} bytes cannot be read"
    return SessionInfo(
        id=session_id,
        agent=created.agent if type(created) is SessionCreated else "",
        created_ms=created.time if created else 0,
        updated_ms=newest.time if newest else 0,
        events=newest.seq + 1 if newest else 0,
        size_bytes=size_bytes,
        title=preview(" ".join(title.split()), TITLE_CHARS),
        problem=problem,
    )


def _read(stored: Sequence[bytes]) -> tuple[list[AnyEvent], list[bytes], Damage, bool]:
    """Decode all good lines in file order, and say whether they are all there are and their seqs simply 0, 1, 2, ..."""
    events: list[AnyEvent] = []
    lines: list[bytes] = []
    damage: Damage = []
    plain = True
    for first in range(0, len(stored), _CHUNK):
        chunk = stored[first : first + _CHUNK]
        found, kept = judged(chunk, events[-1].seq if events else -1, damage)
        plain = plain and kept is chunk and list(map(_seq, found)) == list(range(len(events), len(events) + len(found)))
        events += found
        lines += kept
    return events, lines, damage, plain


def _recover_pages(stored: StoredLog, all_lines: Pages[bytes], types: dict[str, EventType] | None) -> Recovered | None:
    """As recover, of a log too long to be kept: None if events are late, so that all of them have to be sorted."""
    lines, state = _beginning(all_lines, stored.snapshot, types)
    known = len(lines)
    events = Pages([decoded(page) for page in lines.pages])
    damage: Damage = []
    jumps: list[tuple[int, int]] = []
    named: set[tuple[int, int]] = set()
    plain, read_only = True, False
    last = before = known - 1  # the last seq that counts, and the last one in the file
    for page in (*all_lines.pages[len(lines.pages) :], Page(len(all_lines.recent), all_lines.recent.copy)):
        raw = page.read()
        found, kept = judged(raw, before, damage)
        plain = plain and kept is raw
        if list(map(_seq, found)) != list(range(last + 1, last + 1 + len(found))):
            plain = False
            rising = _rising(found, last)
            jumps += _jumps([found[index] for index in rising], last)
            if not _repeats(found, kept, rising, before, jumps, damage):
                return None
            before = found[-1].seq
            found, kept = [found[index] for index in rising], [kept[index] for index in rising]
        elif found:
            before = found[-1].seq
        if not found:
            continue
        if not events:
            read_only = _is_newer(found[0])
        named |= _named(found)
        if state is not None:
            fold_all(state, found)
        good = page if kept is raw else _good_page(page, last, len(found))
        lines.add(good)
        events.add(decoded(good))
        last = found[-1].seq
    skipped = sum(size for _, size in damage)
    gaps = _gaps(jumps, named, damage)
    return Recovered(events, lines, gaps, stored.torn, skipped, read_only, state, plain and not named, known)


def _beginning(
    lines: Pages[bytes], snapshot: Snapshot | None, types: dict[str, EventType] | None
) -> tuple[Pages[bytes], State | None]:
    """The lines that need not be judged again, with their projections: none, unless the log's snapshot is of use."""
    if types is None:
        return Pages(), None
    if snapshot is not None and not (first := lines.upto(snapshot.count)).recent and len(first) == snapshot.count:
        state = restored(snapshot.data, projections(types))
        if state is not None and state.next_seq == snapshot.count:
            return first, state
    return Pages(), projections(types)


def _rising(events: Sequence[AnyEvent], last: int) -> list[int]:
    """Which of the events go on from `last`, each with a seq above all before it."""
    rising = []
    for index, event in enumerate(events):
        if last < event.seq <= MAX_SEQ:
            rising.append(index)
            last = event.seq
    return rising


def _repeats(
    events: Sequence[AnyEvent],
    lines: Sequence[bytes],
    rising: Sequence[int],
    before: int,
    jumps: Sequence[tuple[int, int]],
    damage: Damage,
) -> bool:
    """Whether all that do not rise were there before: then they are damage. One that fills a gap is not."""
    for index in sorted(set(range(len(events))) - set(rising)):
        seq = events[index].seq
        gap = bisect_left(jumps, (seq, 0)) - 1
        if 0 <= seq <= MAX_SEQ and gap >= 0 and jumps[gap][0] < seq < jumps[gap][1]:
            return False
        damage.append((events[index - 1].seq if index else before, len(lines[index])))
    return True


def _jumps(events: Sequence[AnyEvent], last: int) -> list[tuple[int, int]]:
    """Where ascending seqs leave some out."""
    jumps = []
    for event in events:
        if event.seq != last + 1:
            jumps.append((last, event.seq))
        last = event.seq
    return jumps


def _good_page(page: Page[bytes], last: int, length: int) -> Page[bytes]:
    """The good lines of a damaged page: what they are is found anew whenever they are read."""

    def read() -> list[bytes]:
        found, kept = judged(page.read(), -1, [])
        return [kept[index] for index in _rising(found, last)]

    return Page(length, read)


def _in_order(events: list[AnyEvent], lines: list[bytes], damage: Damage) -> tuple[list[AnyEvent], list[bytes]]:
    """Sort by seq; the first of a seq wins, what loses is counted as damage."""
    place: dict[int, int] = {}
    for index, event in enumerate(events):
        if not 0 <= event.seq <= MAX_SEQ or place.setdefault(event.seq, index) != index:
            damage.append((events[index - 1].seq if index else -1, len(lines[index])))
    order = [place[seq] for seq in sorted(place)]
    return [events[i] for i in order], [lines[i] for i in order]


def _named(events: Sequence[AnyEvent]) -> set[tuple[int, int]]:
    return {(event.after, event.before) for event in events if type(event) is LogGap}


def _gaps(jumps: Sequence[tuple[int, int]], named: set[tuple[int, int]], damage: Damage) -> list[Gap]:
    """The jumps of seq that the log does not name itself, with the bytes lost in each."""
    sizes = sorted(damage)
    gaps = []
    for after, before in jumps:
        if (after, before) not in named:
            inside = sizes[bisect_left(sizes, (after, 0)) : bisect_left(sizes, (before, 0))]
            gaps.append(Gap(after, before, sum(size for _, size in inside)))
    return gaps


def _is_newer(first: AnyEvent) -> bool:
    if type(first) is SessionCreated:
        return first.format > FORMAT
    if type(first) is FreeEvent and first.type == SessionCreated.__struct_config__.tag:
        number = first.fields.get("format")
        return not isinstance(number, int) or number > FORMAT
    return False
