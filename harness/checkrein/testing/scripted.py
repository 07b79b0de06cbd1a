"""A model that plays a script: a Provider for tests, demonstrations and benchmarks.

    model = ScriptedModel([call("weather", {"city": "Paris"})], "It is sunny.")

Each model request plays the next turn of the script. Nothing here suspends unless the script says
`wait`; nothing is random. The vocabulary of a turn is script.py (everything is exported here too).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from typing import Any

from checkrein.chunks import Chunk
from checkrein.errors import ProviderError
from checkrein.messages import Request

from .script import (
    CHUNK_TYPES,
    Check,
    Compiled,
    Forever,
    Item,
    Raise,
    Step,
    Turn,
    Wait,
    call,
    check,
    compile_turn,
    error,
    finish,
    forever,
    hang,
    metadata,
    opaque,
    text,
    thinking,
    torn,
    usage,
    wait,
)

__all__ = [
    "ScriptedModel",
    "Item",
    "Turn",
    "text",
    "thinking",
    "call",
    "usage",
    "finish",
    "torn",
    "error",
    "wait",
    "hang",
    "check",
    "metadata",
    "opaque",
    "forever",
]


class ScriptedModel:
    """A Provider whose answers are a script.

    Args:
        turns: what it answers, one turn a request: a str, an item, a list of items, or a function of
            the request (async allowed) that returns one of these.
        name: the provider's name, before the colon of a model id.
        repeat: whether the script starts again at its end.
        record: whether `requests` hold a copy of their messages, for logs that are changed afterwards.
        window_tokens: the context window it says it has, in tokens.

    Attributes:
        requests: the requests it was sent, in order.
        failures: the failed checks, as AssertionErrors.
        opened: how many streams were begun.
        closed: how many of them were closed; equal to `opened` after every turn (C6).
    """

    def __init__(
        self,
        *turns: Turn,
        name: str = "scripted",
        repeat: bool = False,
        record: bool = False,
        window_tokens: int | None = None,
    ) -> None:
        self.name = name
        self.requests: list[Request] = []
        self.failures: list[AssertionError] = []
        self.opened = 0
        self.closed = 0
        self._turns: list[Turn] = []
        self._written: list[Compiled | None] = []  # by place; None where the turn is a function
        self._next = 0
        self._repeat = repeat
        self._record = record
        self._window_tokens = window_tokens
        self.add(*turns)

    # --- the Provider protocol --------------------------------------------------------------------

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Stream the next turn of the script.

        Raises:
            ProviderError: from the first item, when the script is exhausted (code SCRIPT_EXHAUSTED) or
                a check fails (code SCRIPT_CHECK).
        """
        self.requests.append(request.replace(messages=tuple(request.messages)) if self._record else request)
        number = len(self.requests)
        place = self._take()
        written = self._written[place] if place < len(self._written) else None
        if written is None or not written.plain:
            return self._play(place, number, request)
        return self._plain(written.numbered(number))  # type: ignore[arg-type]

    def missing(self) -> str | None:
        """A script needs no credentials."""
        return None

    def default_model(self) -> str | None:
        """Return `script`: `model = "auto"` may take it."""
        return "script"

    def window_tokens(self, model: str) -> int | None:
        """Return the context window that was given."""
        return self._window_tokens

    # --- the script ---------------------------------------------------------------------------------

    @property
    def remaining(self) -> int | None:
        """How many turns are left; None without end."""
        if self._turns and (self._repeat or isinstance(self._turns[-1], Forever)):
            return None
        return max(0, len(self._turns) - self._next)

    def add(self, *turns: Turn) -> None:
        """Append turns to the script.

        Raises:
            TypeError: something in a turn is no item.
            ValueError: metadata stands before every block.
        """
        for turn in turns:
            items = _turn(turn)  # a function's turn is judged when it is made
            self._written.append(None if callable(items) else compile_turn(items))
            self._turns.append(turn)

    def verify(self) -> None:
        """Assert that every check held, every turn was played and every stream was closed.

        Raises:
            AssertionError: one of these does not hold; the first failed check comes as it was.
        """
        if self.failures:
            raise self.failures[0]
        if self.remaining:
            raise AssertionError(f"expected the whole script to be played, got {self.remaining} turns left")
        if self.opened != self.closed:
            raise AssertionError(f"expected every stream to be closed, got {self.opened - self.closed} open")

    def _take(self) -> int:
        """The place of the next turn; len(turns) when there is none."""
        place, end = self._next, len(self._turns)
        if place >= end and self._repeat and end:
            place = 0
        if place < end and isinstance(self._turns[place], Forever):
            self._next = place
        else:
            self._next = min(place + 1, end)
        return place

    async def _plain(self, chunks: tuple[Chunk, ...]) -> AsyncGenerator[Chunk, None]:
        # the path of benchmarks: a turn compiled before, chunks only
        self.opened += 1
        try:
            for chunk in chunks:
                yield chunk
        finally:
            self.closed += 1

    async def _play(self, place: int, number: int, request: Request) -> AsyncGenerator[Chunk, None]:
        self.opened += 1
        begun = False
        try:
            for step in await self._steps(place, number, request):
                if isinstance(step, CHUNK_TYPES):
                    begun = True
                    yield step  # type: ignore[misc]
                elif isinstance(step, Wait):
                    await step.until()
                elif isinstance(step, Raise):
                    raise step.make(begun)
                elif isinstance(step, Check):
                    self._assert(step, number, request)
        finally:
            self.closed += 1

    async def _steps(self, place: int, number: int, request: Request) -> tuple[Step, ...]:
        if place >= len(self._turns):
            raise ProviderError(
                f"the script of {self.name!r} is exhausted: it has {place} turns, all were played, and request {number}"
                " came; add a turn, or use forever(...) or repeat=True",
                code="SCRIPT_EXHAUSTED",
            )
        written = self._written[place]
        if written is None:
            turn = _turn(self._turns[place])(request)
            written = compile_turn(await turn if inspect.isawaitable(turn) else turn)
        return written.numbered(number)

    def _assert(self, step: Check, number: int, request: Request) -> None:
        try:
            if step.holds(request) is not False:
                return
            failed = AssertionError(f"the check of request {number} returned False")
        except AssertionError as exc:
            failed = exc
        except Exception as exc:  # it looked for what is not there: verify() has to know of that as well
            failed = AssertionError(f"the check of request {number} raised {type(exc).__name__}: {exc}")
        self.failures.append(failed)
        raise ProviderError(
            f"a check of the script failed at request {number}: {failed}",
            code="SCRIPT_CHECK",
        ) from failed


def _turn(turn: Turn) -> Any:
    return turn.turn if isinstance(turn, Forever) else turn
