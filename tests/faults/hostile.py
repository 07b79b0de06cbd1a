"""Hostile text and values, and a turn they go through; used by the tests of text.

A case runs a turn of a real agent whose next turn must work; behind it every line of the log is strict UTF-8
JSON that loads as the same event, and what was replaced is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from figures import count

from checkrein import Agent
from checkrein.codec import decode
from checkrein.session import Session
from checkrein.testing import ScriptedModel, forever, run_virtual
from checkrein_invariants import check_events, validate_history

__all__ = [
    "LONE",
    "NUL",
    "BIG",
    "DEEP",
    "STRINGS",
    "BACKENDS",
    "Unspeakable",
    "intact",
    "played",
    "of",
    "clean",
    "replaced",
]

LONE = "a \ud83c b"
NUL = "a \x00 b"
BIG = "x" * 10_000_000
DEEP: Any = "bottom"
for _ in range(5_000):
    DEEP = [DEEP]
STRINGS = {
    "lone high": LONE,
    "lone low": "\udf0d",
    "reversed pair": "\udf0d\ud83c",
    "split pair": "\ud83c\udf0d",
    "nul": NUL,
    "controls": "".join(map(chr, range(32))) + "\x7f\x85\u2028\u2029",
    "noncharacters": "\ufffe\uffff\U0010ffff",
    "replacement": "\ufffd",
    "bidi": "\u202e\u2066",
}
BACKENDS = ("asyncio", "trio")


class Unspeakable(Exception):
    """Its text cannot be had while an agent runs; pytest may read it."""

    mute = False

    def __str__(self) -> str:
        if Unspeakable.mute:
            raise SystemExit("no text")
        return "(no text)"

    __repr__ = __str__


def intact(session: Session) -> None:
    """The log is right, its bytes are strict JSON, and they load as what was written."""
    assert [str(v) for v in check_events(session.events)] == []
    for event, line in zip(session.events, session.lines, strict=True):
        read = json.loads(line.decode("utf-8"), parse_constant=lambda word: pytest.fail(f"{word} in the log"))
        assert read["type"] == event.type
        assert decode(line) == event
    assert validate_history(session.state.history.view()) == []
    loaded = Session.load("again", [decode(line) for line in session.lines], session.lines)
    assert list(loaded.state.history.messages) == list(session.state.history.messages)


def played(
    act: Callable[[Any], Any], *turns: Any, tools: Any = (), plugins: Any = (), backend: str = "asyncio", **spec: Any
) -> tuple[Session, Any]:
    """Play turns of the model against `act(agent)`, then a plain turn."""

    async def main() -> tuple[Session, Any]:
        model = ScriptedModel(*turns, forever("fine"))
        async with Agent(model, tools=tools, plugins=plugins, **spec) as agent:
            result = await act(agent)
            await agent.idle()
            assert (await agent.run("and now?")).ok
            assert model.opened == model.closed
            return agent.session, result

    Unspeakable.mute = True
    try:
        session, result = run_virtual(main, backend=backend)
    finally:
        Unspeakable.mute = False
    intact(session)
    count("text: hostile values through a turn")
    return session, result


def of(session: Session, kind: type) -> list[Any]:
    """The events of a kind."""
    return [event for event in session.events if type(event) is kind]


def clean(value: str) -> str:
    """What a string must become."""
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def replaced(value: str) -> int:
    """How many characters of it cannot be kept."""
    return clean(value).count("\ufffd") - value.count("\ufffd")
