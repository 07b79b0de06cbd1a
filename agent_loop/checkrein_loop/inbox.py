"""The inbox: queued, steering and context input, each in exactly one place at any time (I1-I8).

Everything is derived from the log; the only memory of its own is how far a cancel parked what was
pending, and that too is the same after a resume.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert

from checkrein.agents import PendingInput
from checkrein.codec import plain
from checkrein.errors import ConfigError, InboxFull, UnknownInput
from checkrein.events import InboxAccepted, InboxDiscarded, InboxReplaced, SessionResumed
from checkrein.messages import USER, Block, Content, MediaBlock, Source, TextBlock, as_content
from checkrein.output import checked_block
from checkrein.state import Pending
from checkrein.text import clean

if TYPE_CHECKING:
    from .agent import LoopAgent

__all__ = ["Inbox", "cleaned_content"]

KINDS = ("queued", "steering")


class Inbox:
    """One agent's pending input.

    Attributes:
        parked_before: what was accepted at an earlier seq waits for the next input or `wake()` (C4).
        confirmed: what was accepted at an earlier seq is where the flushing plugins keep it (R4).
        waited: ids somebody waits for; they are never parked.
    """

    __slots__ = ("agent", "confirmed", "parked_before", "waited", "_coming")

    def __init__(self, agent: LoopAgent) -> None:
        self.agent = agent
        self.parked_before = agent.session.state.next_seq  # a resumed session's pending input is parked
        self.confirmed = self.parked_before  # and came from the store
        self.waited: dict[str, int] = {}
        self._coming: list[tuple[Any, str, str | None]] = []  # accepted inside an observer, not committed yet (L4)

    # --- accepting --------------------------------------------------------------------------------

    def accept(
        self,
        kind: str,
        content: str | Block | Sequence[Block],
        source: Source,
        key: str | None = None,
        own_turn: bool = False,
        options: dict[str, Any] | None = None,
    ) -> str:
        """Log an input as accepted, and return its id; a known key returns the first one's (I3).

        Raises:
            InboxFull: `inbox_max` inputs are pending.
            ValueError: the content is empty, or an option is none of ours.
        """
        session = self.agent.session
        if key is not None and (known := self.known(key)) is not None:
            return known
        limit = self.agent.spec.inbox_max
        if len(session.state.pending) + len(self._uncommitted()) >= limit:
            raise InboxFull(f"the inbox of {self.agent.id!r} holds {limit} inputs (inbox_max); wait, or withdraw some")
        blocks, count = cleaned_content(content)
        if source is not USER:
            source, more = cleaned_source(source)
            count += more
        if session.resumed is not None:
            # Written with the first input, so that opening a session twice adds nothing to it (R2).
            facts, session.resumed = session.resumed, None
            session.append(SessionResumed(**facts))
        input_id = session.next_input()
        event = session.append(
            InboxAccepted(
                id=input_id,
                kind=kind,
                content=blocks,
                source=source,
                own_turn=own_turn,
                options=checked_options(options) if options else None,
                key=key,
                cleaned=count or None,
            )
        )
        if session.notifying:
            self._coming.append((event, input_id, key))
        return input_id

    def known(self, key: str) -> str | None:
        """The id of the input that was accepted with a client's key, if there is one."""
        for _, input_id, its_key in self._uncommitted():
            if its_key == key:
                return input_id
        return self.agent.session.state.keyed(key)

    def _uncommitted(self) -> list[tuple[Any, str, str | None]]:
        if self._coming:
            notifying = self.agent.session.notifying
            self._coming = [entry for entry in self._coming if notifying and entry[0].event is None]
        return self._coming

    def replace(self, input_id: str, content: str | Block | Sequence[Block]) -> None:
        """Replace a pending input's content.

        Raises:
            UnknownInput: it is not pending.
        """
        self._must_be_pending(input_id)
        blocks, count = cleaned_content(content)
        self.agent.session.append(InboxReplaced(id=input_id, content=blocks, cleaned=count or None))

    def discard(self, input_id: str, reason: str) -> None:
        """Take a pending input out.

        Raises:
            UnknownInput: it is not pending.
        """
        self._must_be_pending(input_id)
        self.agent.session.append(InboxDiscarded(id=input_id, reason=clean(reason)[0]))

    def refuse(self, reason: str) -> None:
        """Discard what no flush confirmed (R4); what one did, and nobody waits for, is parked."""
        self.park()  # before an observer of what is discarded sends anything
        for entry in list(self._candidates()):
            if entry.seq >= self.confirmed or entry.id in self.waited:
                self.discard(entry.id, reason)

    def _must_be_pending(self, input_id: str) -> None:
        if input_id not in self.agent.session.state.pending:
            raise UnknownInput(f"expected the id of a pending input, got {input_id!r}; see agent.pending")

    # --- taking -----------------------------------------------------------------------------------

    def owed(self) -> bool:
        """Whether a turn has to begin: some input that is not parked, or that somebody waits for."""
        for entry in self.agent.session.state.pending.values():
            if (entry.seq >= self.parked_before or entry.id in self.waited) and entry.kind in KINDS:
                return True
        return False

    def take(self, cancelled: bool = False) -> list[Pending]:
        """The input of the next turn, in order; an input of run() is always a turn of its own (T6).

        Steering that an earlier turn left over counts as queued; fresh steering waits for the first step,
        unless there is nothing else to begin a turn with.

        Args:
            cancelled: the turn was cancelled before it began: it takes only what was pending then (C4).
        """
        source = self._parked if cancelled else self._candidates
        last_end = self._last_end()
        entries: Iterator[Pending] = (e for e in source() if not _steers(e, last_end))
        first = next(entries, None)
        if first is None:
            entries = source()
            first = next(entries, None)
        if first is None:
            return []
        taken = [first]
        if not first.own_turn and self.agent.spec.queue_mode != "one":
            taken += takewhile(lambda entry: not entry.own_turn, entries)
        return taken

    def waiting(self) -> list[Pending]:
        """Injected context, then steering, for the step boundary."""
        if not self.agent.session.state.pending:
            return []
        pending, last_end = list(self.agent.session.state.pending.values()), self._last_end()
        return [e for e in pending if e.kind == "context"] + [e for e in pending if _steers(e, last_end)]

    def steering_waits(self) -> bool:
        """Whether steering of this turn is pending; what an earlier one left over is queued input now (T5)."""
        pending = self.agent.session.state.pending
        if not pending:
            return False
        last_end = self._last_end()
        return any(_steers(entry, last_end) for entry in pending.values())

    def _candidates(self) -> Iterator[Pending]:
        """What a turn can begin with; read on only as far as needed, since thousands may be pending."""
        return (entry for entry in self.agent.session.state.pending.values() if entry.kind in KINDS)

    def _parked(self) -> Iterator[Pending]:
        return (entry for entry in self._candidates() if entry.seq < self.parked_before)

    def _last_end(self) -> int:
        ends = self.agent.session.state.ends
        return ends[next(reversed(ends))] if ends else -1

    # --- waiting and parking ------------------------------------------------------------------------

    def join(self, input_id: str) -> None:
        """Somebody waits for an input from now on; it is not parked."""
        self.waited[input_id] = self.waited.get(input_id, 0) + 1

    def leave(self, input_id: str) -> None:
        """One who waited does so no longer."""
        self.waited[input_id] -= 1
        if not self.waited[input_id]:
            del self.waited[input_id]

    def park(self) -> None:
        """Park what is pending now: a cancel came (C4)."""
        self.parked_before = self.agent.session.state.next_seq

    def parked(self) -> bool:
        """Whether anything is left of what was pending when a cancel came."""
        return any(True for _ in self._parked())

    def unpark(self) -> None:
        """Take parked input with the next turn."""
        self.parked_before = 0

    def listed(self) -> list[PendingInput]:
        """What is pending, in order (I6)."""
        return [
            PendingInput(entry.id, entry.kind, tuple(entry.content), entry.source)
            for entry in self.agent.session.state.pending.values()
        ]


def _steers(entry: Pending, last_end: int) -> bool:
    """Whether an input is steering still: no turn has ended since it came."""
    return entry.kind == "steering" and entry.seq > last_end


class _Options(Struct, forbid_unknown_fields=True):
    """What an input may say of the turn that takes it (EVENTS.md)."""

    model: str | None = None
    settings: dict[str, Any] | None = None
    max_steps: Annotated[int, Meta(ge=0)] | None = None
    output_schema: dict[str, Any] | None = None


def checked_options(options: dict[str, Any]) -> dict[str, Any] | None:
    """Return the options of an input without those that are None, which is as if they were not given.

    Raises:
        ValueError: one has another name or type, and would have been passed over, or failed the turn as `internal`.
        NotPlainJSON: what is in one is no JSON.
    """
    given = plain({name: value for name, value in options.items() if value is not None})
    try:
        convert(given, _Options)
    except ValidationError as exc:
        raise ValueError(f"expected of the options {', '.join(_Options.__struct_fields__)}: {exc}") from None
    if "output_schema" in given:
        from .outputs import wrapped

        try:
            wrapped(given["output_schema"])
        except ConfigError as exc:
            raise ValueError(str(exc)) from None
    return given or None


def cleaned_source(source: Source) -> tuple[Source, int]:
    """Return who says it with clean names, and how many characters were replaced (L9)."""
    name, in_name = clean(source.name or "")
    id_, in_id = clean(source.id or "")
    return Source(source.kind, name or None, id_ or None), in_name + in_id


def cleaned_content(content: str | Block | Sequence[Block]) -> tuple[Content, int]:
    """Return input as clean blocks, and how many characters were replaced (L9).

    Raises:
        ValueError: there is nothing a model could read in it, or a media block is not as providers take it.
        TypeError: a block is not text or media.
    """
    out: Content = []
    total = 0
    for block in as_content(content):
        if not isinstance(block, (TextBlock, MediaBlock)):
            raise TypeError(f"expected text or media as input, got {type(block).__name__}")
        checked, count = checked_block(block)
        total += count
        if not isinstance(checked, TextBlock) or checked.text:
            out.append(checked)
    if not out or all(isinstance(block, TextBlock) and not block.text.strip() for block in out):
        raise ValueError("expected input with some text or media, got nothing; say something to the model")
    return out, total
