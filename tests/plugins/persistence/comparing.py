"""Logs on a disk, damaged ones too, and what can be read of two ways to open them that should be the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from checkrein.derive import History
from checkrein.events import FreeEvent
from checkrein.log import Pages, onward
from checkrein.recovery import Recovered
from checkrein.session import Session
from checkrein.state import CallState, Pending, State

__all__ = ["damaged", "differences", "differing", "facts", "put"]


def put(folder: Path, data: bytes) -> None:
    (folder / "sessions/s").mkdir(parents=True, exist_ok=True)
    (folder / "sessions/s/log.jsonl").write_bytes(data)


def differences(plain: Recovered, cold: Recovered) -> list[str]:
    names = ("events", "lines", "gaps", "set_aside", "skipped_bytes", "read_only")
    found = [name for name in names if getattr(cold, name) != getattr(plain, name)]
    a = Session.load("s", plain.events, plain.lines, {}, plain.state)
    b = Session.load("s", cold.events, cold.lines, {}, cold.state)
    if cold.state is not None and facts(Session.load("s", cold.events, cold.lines, {}).state) != facts(b.state):
        found.append("the state made on the way is another one")
    return found + differing(a, b)


def facts(value: Any) -> Any:
    """A value and all it is made of, private members too, as plain data."""
    if isinstance(value, (list, tuple)):
        return [facts(item) for item in value]
    if isinstance(value, dict):
        return [[facts(key), facts(item)] for key, item in value.items()]
    if isinstance(value, (State, History, CallState, Pending, FreeEvent)):
        return [facts(getattr(value, name)) for name in value.__slots__ if name not in ("types", "closes")]
    return value


def differing(plain: Session, cold: Session) -> list[str]:
    """What can be read of two sessions that should be the same."""
    n = len(plain)
    found = [] if len(cold) == n else ["length"]
    found += [] if facts(plain.state) == facts(cold.state) else ["state"]
    found += [] if list(cold.lines) == list(plain.lines) and cold.events == plain.events else ["events"]
    cuts = (0, 1, 2, n // 3, n - 2, n - 1, n, n + 3, -1, -2, -n, -n - 1)
    for i in cuts:
        for j in cuts:
            for step in (None, 2, -1):
                part = slice(i, j, step)
                if cold.events[part] != plain.events[part] or cold.lines[part] != plain.lines[part]:
                    found.append(f"[{i}:{j}:{step}]")
        if -n <= i < n and (cold.events[i] != plain.events[i] or cold.line(i) != plain.line(i)):
            found.append(f"[{i}]")
    for seq in range(-1, plain.state.next_seq + 2):
        found += [] if cold.since(seq) == plain.since(seq) else [f"since({seq})"]
    for turn in range(plain.state.turn + 2):
        found += [] if cold.turn_events(turn) == plain.turn_events(turn) else [f"turn_events({turn})"]
    found += [f"onward({i})" for i in range(n + 2) if list(onward(cold.events, i)) != plain.events[i:]]
    if isinstance(cold.events, Pages):
        heads = [place for place in range(n + 2) if cold.events.upto(place) != plain.events[:place]]
        found += [f"upto({place})" for place in heads]
    found += [] if list(reversed(cold.events)) == list(reversed(plain.events)) else ["reversed"]
    for wrong in (n, -n - 1):
        with pytest.raises(IndexError):
            cold.events[wrong]
    return found


def damaged(lines: Sequence[bytes], data: st.DataObject) -> bytes:
    """Lines lost, doubled and swapped, a bit flipped, the end torn: each or none of it."""
    kept = list(lines)
    for _ in range(data.draw(st.integers(0, 3))):
        if not kept:
            break
        at = data.draw(st.integers(0, len(kept) - 1))
        way = data.draw(st.sampled_from(("lose", "double", "swap", "flip")))
        if way == "lose":
            del kept[at]
        elif way == "double":
            kept.insert(data.draw(st.integers(0, len(kept))), kept[at])
        elif way == "swap":
            kept[at], kept[-1] = kept[-1], kept[at]
        else:
            place = data.draw(st.integers(0, len(kept[at]) - 1))
            kept[at] = kept[at][:place] + bytes([kept[at][place] ^ 1]) + kept[at][place + 1 :]
    whole = b"".join(line + b"\n" for line in kept)
    return whole[: len(whole) - data.draw(st.sampled_from((0, 0, 1, 5, 30)))]
