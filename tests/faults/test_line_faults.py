"""L3, T3: KeyboardInterrupt and MemoryError at every executed line of append, fold and closing, in a running turn.

`sys.settrace` raises at the n-th line of these modules that runs while the turn does. After it the log is
balanced, bytes, events and state agree, and the next turn works. (One session alone: tests/harness.)

    pytest tests/faults/test_line_faults.py --faults=full          # every line
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import world
from figures import count
from stage import conserved, play, stage

import checkrein.closing
import checkrein.derive
import checkrein.rules
import checkrein.rules_calls
import checkrein.session
import checkrein.state
from checkrein.codec import encode, seal
from checkrein.rules import apply
from checkrein.session import Session
from checkrein.state import State
from checkrein.testing import run_virtual
from checkrein.testing.faults import Seams
from checkrein_invariants import check_events

pytestmark = pytest.mark.checkrein_oracle_off(reason="our own code is made to fail; judged here")

MODULES = (
    *(checkrein.session, checkrein.rules, checkrein.rules_calls, checkrein.state, checkrein.closing, checkrein.derive),
)
FILES = {str(Path(module.__file__ or "")): module.__name__ for module in MODULES}
SCRIPTS = ("one_call", "three_parallel_no_hooks", "torn", "cancelled_in_tool", "asked_denied_stored", "steered")
KINDS: dict[str, Callable[[], BaseException]] = {
    "keyboard_interrupt": lambda: KeyboardInterrupt("at a line"),
    "memory_error": lambda: MemoryError("at a line"),
}


class Lines:
    """Counts executed lines of the modules, and raises at one of them, once."""

    def __init__(self, at: int = 0, make: Callable[[], BaseException] | None = None) -> None:
        self.at = at
        self.make = make
        self.seen = 0
        self.on = False
        self.struck = ""
        self.session: Session | None = None

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function of every frame."""
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line" and self.on:
            self.seen += 1
            if self.seen == self.at and self.make is not None:
                self.on = False
                self.struck = f"{FILES[frame.f_code.co_filename]}:{frame.f_lineno} {frame.f_code.co_name}"
                raise self.make()
        return self.trace

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Trace what runs in here."""
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(before)


def disagree(session: Session) -> list[str]:
    """Where bytes, events and state are not the same log."""
    found = []
    if [seal(encode(event)) for event in session.events] != session.lines:
        found.append("events and bytes differ")
    state = State(session.types, session.closes)
    for event in session.events:
        apply(state, event)
    kept = session.state
    for name in ("next_seq", "turn", "turn_open", "step", "step_open", "due", "claimed", "discarded", "usage", "ends"):
        if getattr(kept, name) != getattr(state, name):
            found.append(f"the state says {name} {getattr(kept, name)!r}, the log {getattr(state, name)!r}")
    if list(kept.pending) != list(state.pending) or kept.history.messages != state.history.messages:
        found.append("the kept history or inbox is not the log's")
    return found


def unbalanced(session: Session) -> list[str]:
    """What is wrong with a log that rests."""
    return [str(violation) for violation in check_events(session.events)] + disagree(session) + conserved(session)


async def scenario(name: str, lines: Lines) -> list[str]:
    """Play a script with one line failing, then a plain turn."""
    found: list[str] = []
    async with stage(world.SCRIPTS[name], Seams()) as on:
        session = lines.session = on.agent.session
        lines.on = True
        try:
            await play(on)
        except (KeyboardInterrupt, MemoryError):
            pass  # it struck in the caller's own call, as send; or the driver handed it over
        finally:
            lines.on = False
        try:
            await on.agent.idle()
        except KeyboardInterrupt:
            pass
        found += unbalanced(session)
        on.model.over = True
        on.agent.wake()
        await on.agent.idle()
        again = await on.agent.run("and now?")
        if not again.ok:
            found.append(f"the next turn ended {again.reason}")
        found += disagree(session)
    if session.state.turn_open:
        found.append("a turn is open after the harness closed")
    return found


def run(name: str, backend: str, lines: Lines) -> list[str]:
    """One run; what leaves it is told, but for an interrupt nobody waited for, which ends the program (C10)."""
    with lines.traced():
        try:
            return run_virtual(scenario, name, lines, backend=backend, seed=0, stuck_s=0.3)
        except BaseException as exc:
            if isinstance(exc, KeyboardInterrupt) and lines.session is not None and lines.struck:
                return unbalanced(lines.session)
            return [f"raised {exc!r}"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", SCRIPTS)
def test_L3_T3_struck_at_a_line(name: str, kind: str, backend: str, faults: int | None) -> None:
    """Any line of the six modules; the turn is closed, and nothing of the log differs from itself."""
    plain = Lines()
    assert run(name, backend, plain) == []
    step = 1 if faults is None else max(1, plain.seen * 2 // faults)
    bad, tried = [], 0
    for at in range(1 + len(name) % step, plain.seen + 1, step):
        lines = Lines(at, KINDS[kind])
        found = run(name, backend, lines)
        tried += 1
        if found:
            bad.append(f"line {at} of {plain.seen}, {lines.struck}: {'; '.join(found)}")
    count(f"line faults: {kind}", tried)
    assert not bad, f"{len(bad)} of {tried}:\n" + "\n".join(bad[:8])
