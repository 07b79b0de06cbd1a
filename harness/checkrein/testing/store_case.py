"""What the checks of stores need: how to get at a store, and the lines of a session (see store_kit.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from checkrein.codec import encode, seal
from checkrein.events import FORMAT, AnyEvent, FreeEvent, InboxAccepted, SessionCreated
from checkrein.messages import USER, TextBlock
from checkrein.store import Store

__all__ = ["StoreCase", "sample_lines"]

START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class StoreCase:
    """How the kit gets at a store.

    Attributes:
        make: returns a store over a folder; called again with the same folder it is another process's
            view of the same sessions (a store in memory returns the same object).
        raw: returns a log's bytes, where the store keeps JSON Lines; None skips the checks of damage.
        set_raw: replaces a log's bytes behind the store's back.
    """

    make: Callable[[Path], Store]
    raw: Callable[[Store, str], bytes] | None = None
    set_raw: Callable[[Store, str, bytes], None] | None = None


def sample_lines(count: int, *, agent: str = "main", begin_ms: int = START_MS) -> tuple[bytes, ...]:
    """Return the first `count` lines of a sample session; a longer sample begins with the shorter one."""
    events: list[AnyEvent] = []
    for seq in range(count):
        time = begin_ms + seq
        if seq == 0:
            events.append(SessionCreated(seq, time, format=FORMAT, session="sample", agent=agent))
        elif seq == 1:
            events.append(
                InboxAccepted(seq, time, id="i1", kind="queued", content=[TextBlock("grüße\n ☃")], source=USER)
            )
        else:
            events.append(FreeEvent("sample/row", seq, time, {"text": f'row {seq} \u2028 \\ " 日本', "n": [seq, None]}))
    return tuple([seal(encode(event)) for event in events])
