"""The session: an append-only log and its projections. append = encode -> check -> commit -> notify (L3).

The main path is `append`. Closing what is open is closing.py; reading a stored log is recovery.py;
nothing here does I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import force_setattr

from .codec import encode, fast_encode, plain
from .errors import RefusedAtAppend
from .events import AnyEvent, FreeEvent, PluginFaulted
from .kept import Kept
from .log import without_gc
from .rules import STEPS, apply, check, fold_all
from .state import State, need_step
from .text import clean

if TYPE_CHECKING:
    from .eventtypes import Balance, EventType
    from .hooks import Hooks

__all__ = ["Session", "Deferred", "WATCHERS", "Observer", "projections"]

E = TypeVar("E", bound="AnyEvent")
Observer = Callable[[AnyEvent], None]

# Each new or loaded session calls every watcher; what it returns observes the session (the pytest oracle).
WATCHERS: list[Callable[[Session], Observer | None]] = []

MAX_GENERATIONS = 8
MAX_REFOLDS = 16


def projections(types: dict[str, EventType]) -> State:
    """The projections of an empty log, for these event types of plugins."""
    return State(types, {kind.balance.closes: kind.balance for kind in types.values() if kind.balance is not None})


class Deferred:
    """An append made inside an observer: committed right after the current notification (L4).

    Attributes:
        event: the event, once committed; None before, and for good if it was refused.
    """

    __slots__ = ("owed", "generation", "plugin", "event")

    def __init__(self, owed: AnyEvent, generation: int, plugin: str | None) -> None:
        self.owed = owed
        self.generation = generation
        self.plugin = plugin
        self.event: AnyEvent | None = None


def _place(event: AnyEvent, seq: int) -> None:
    """Give an event its place in the log, and the time; one that has this very place (a replay's) keeps both.

    Raises:
        RefusedAtAppend: it has another one: it stands in this log already, or in another.
    """
    if event.seq < 0:
        now = time_ns() // 1_000_000
        if type(event) is FreeEvent:
            event.seq, event.time = seq, now
        else:
            force_setattr(event, "seq", seq)  # type: ignore[arg-type]
            force_setattr(event, "time", now)  # type: ignore[arg-type]
    elif event.seq != seq:
        raise RefusedAtAppend(f"expected an event without seq, or seq {seq}; got seq {event.seq}")


class Session(Kept):
    """One agent's log. How its events and lines are kept, and read, is kept.py.

    Args:
        session_id: its name, unique in its store.
        types: event types that plugins registered, by name.

    Attributes:
        state: the projections; read-only.
        events: the events, in order. A long session reads the older ones from its store when they are asked for, and
            from one turn to the next this may be another object.
        writer: the store's writer, None for a session in memory.
        hooks: the dispatcher, whose `session_event` chain is told of each event before the other observers.
        on_fault: called with (plugin, error, event) when an observer or a deferred append failed.
    """

    __slots__ = (
        "id",
        "types",
        "closes",
        "hooks",
        "on_fault",
        "put_blob",
        "_observers",
        "_notifying",
        "_generation",
        "_deferred",
        "_inputs",
        "author",
        "resumed",
        "__weakref__",
    )

    def __init__(self, session_id: str, types: dict[str, EventType] | None = None) -> None:
        super().__init__()
        self.id = session_id
        self.types: dict[str, EventType] = types if types is not None else {}
        self.state = projections(self.types)
        self.closes: dict[str, Balance] = self.state.closes
        self.hooks: Hooks | None = None
        self.on_fault: Callable[[Session, str | None, BaseException, AnyEvent | None], None] | None = None
        self.put_blob: Callable[[bytes], str] | None = None
        self._observers: tuple[Observer, ...] = ()
        self._notifying = False
        self._generation = 0
        self._deferred: deque[Deferred] | None = None  # made on first use: most sessions never defer
        self._inputs = 0
        self.resumed: dict[str, Any] | None = None  # what session/resumed will say, once there is something to say
        self.author: str | None = None  # the plugin whose code runs right now, set by the dispatcher
        if WATCHERS:
            for watch in WATCHERS:
                if (observer := watch(self)) is not None:
                    self.observe(observer)

    @classmethod
    def load(
        cls,
        session_id: str,
        events: Sequence[AnyEvent],
        lines: Sequence[bytes],
        types: dict[str, EventType] | None = None,
        state: State | None = None,
    ) -> Session:
        """Return a session over stored events, folded without checks: any log loads (L8, R1).

        Args:
            session_id: its name.
            events: what recovery made of the log; Pages stay where they are.
            lines: their sealed lines.
            types: event types that plugins registered, by name.
            state: the projections of exactly these events, if they were made before.
        """
        session = cls(session_id, types)
        session.fill(events, lines)
        if state is not None:
            session.state, session.closes = state, state.closes
        else:
            with without_gc(len(session.events)):
                fold_all(session.state, session.events)
        return session

    # --- writing ----------------------------------------------------------------------------------

    def append(self, event: E, /) -> E:
        """Append an event; its `seq` and `time` are filled in.

        Args:
            event: one that is in no log yet: `append(StepStart(turn=1, step=1))`. One that has a seq already
                (a replay's) keeps it and its time.

        Returns:
            The same event, committed. Inside an observer: a Deferred, whose `event` comes right after.

        Raises:
            RefusedAtAppend: it cannot be encoded, breaks a structural rule, or has another event's seq; the log
                is unchanged.
        """
        if self._notifying:
            return self._defer(event)  # type: ignore[return-value]
        # Most of what is on the way of each event is written out here: a call costs as much as what it does.
        state = self.state
        seq = state.next_seq
        _place(event, seq)
        try:
            body = fast_encode(event)
        except (TypeError, ValueError, RecursionError):
            body = encode(event)  # a FreeEvent; or it says in our words what is wrong
        in_step, strict, fold = STEPS[type(event)]
        if in_step and (event.step != state.step or event.turn != state.turn or not state.step_open):  # type: ignore[union-attr]
            need_step(state, event)
        if strict is not None:
            strict(state, event)
        try:
            self._lines.append(body)
            self._recent.append(event)  # the commit: from here on the event exists
            state.next_seq = seq + 1
            if fold is not None:
                fold(state, event)
        except BaseException:
            self._refold()
            if self._recent and self._recent[-1] is event:
                self._notify(event)
            raise
        if self._observers or (self.hooks is not None and self.hooks.session_event is not None):
            try:
                self._notify(event)
            finally:
                self._notifying = False  # also when something struck where _notify would have said so
        return event

    def append_free(self, type: str, fields: dict[str, Any], *, plugin: str | None = None) -> FreeEvent | Deferred:  # noqa: A002
        """Append a plugin's own event (L6).

        Args:
            type: a registered type, `<plugin>/<word>`, or any word that is not one of ours.
            fields: plain JSON; text is cleaned, anything JSON cannot carry is refused with its path (L2).
            plugin: who appends it.

        Raises:
            NotPlainJSON: with the path.
            RefusedAtAppend: as append.
        """
        if any(name in fields for name in ("type", "seq", "time", "crc")):
            raise RefusedAtAppend("expected members of the plugin's own, got one of type, seq, time, crc")
        count = 0

        def cleaned(text: str) -> str:
            nonlocal count
            text, replaced = clean(text)
            count += replaced
            return text

        members = plain(fields, text=cleaned)
        if plugin is not None:
            members["plugin"] = plugin
        if count:
            members["cleaned"] = count

        return Session.append(self, FreeEvent(type, -1, 0, members))  # a replay's own append knows no free events

    def next_input(self) -> str:
        """Reserve the next input id; also inside an observer, where the acceptance is committed later (I3)."""
        self._inputs = max(self.state.inputs, self._inputs) + 1
        return f"i{self._inputs}"

    def _refold(self) -> None:
        """Fold the state again from the log, in place, however often something strikes meanwhile (L3)."""
        for attempt in range(MAX_REFOLDS):
            try:
                del self._lines[len(self._recent) :]
                self.state.__init__(self.types, self.closes)  # type: ignore[misc]
                fold_all(self.state, self.events)
                return
            except BaseException:
                if attempt == MAX_REFOLDS - 1:
                    raise

    # --- observing --------------------------------------------------------------------------------

    @property
    def notifying(self) -> bool:
        """Whether an observer is being called right now."""
        return self._notifying

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call `observer(event)` after each commit; returns the function that ends it."""
        self._observers = (*self._observers, observer)

        def stop() -> None:
            self._observers = tuple(o for o in self._observers if o is not observer)

        return stop

    def _notify(self, event: AnyEvent) -> None:
        """Tell everybody, then commit what they appended, in order, at most 8 generations deep (L4)."""
        held: BaseException | None = None
        self._generation = 0
        told: AnyEvent | None = event
        while told is not None:
            try:
                self._notifying = True
                held = self._tell(told) or held
            except BaseException as exc:  # struck between two observers: the deferred appends are owed all the same
                held = exc
            finally:
                self._notifying = False
            if not self._deferred:
                break
            try:
                told, struck = self._next_deferred()
                held = struck or held
            except BaseException as exc:
                told, held = None, exc
        if held is not None:
            raise held

    def _tell(self, event: AnyEvent) -> BaseException | None:
        held: BaseException | None = None
        hooks = self.hooks
        if hooks is not None and (chain := hooks.session_event) is not None:
            author = event.plugin if type(event) is PluginFaulted else None  # its own fault is not told to it (H2)
            try:
                hooks.observe(chain, self, (self, event), author)
            except BaseException as exc:  # the chain contains its own faults: this is a held KeyboardInterrupt
                held = exc
        for observer in self._observers:
            try:
                observer(event)
            except KeyboardInterrupt as exc:
                held = exc
            except BaseException as exc:
                self._fault(None, exc, event)
                self._notifying = True
        return held

    def _defer(self, event: AnyEvent) -> Deferred:
        deferred = Deferred(event, self._generation + 1, self.author)
        if self._deferred is None:
            self._deferred = deque()
        self._deferred.append(deferred)
        return deferred

    def _next_deferred(self) -> tuple[AnyEvent | None, BaseException | None]:
        """Commit the next deferred append that is legal.

        Returns:
            The event, None when there is none left; and what struck meanwhile, if something did.
        """
        struck: BaseException | None = None
        for _ in range(MAX_REFOLDS + len(self._deferred or ())):
            if not self._deferred:
                break
            deferred = self._deferred[0]
            if deferred.event is not None:  # committed, and struck before it was taken off
                self._deferred.popleft()
                continue
            self._generation = deferred.generation
            try:
                event, body = self._made(deferred)
            except Exception as exc:
                self._deferred.popleft()
                # Answers to the fault that ended the chain are dropped in silence: it has been told once.
                if deferred.generation <= MAX_GENERATIONS + 1:
                    self._fault(deferred.plugin, exc, None)
                continue
            except BaseException as exc:
                struck = exc  # it is still owed
                continue
            try:
                self._lines.append(body)
                self._recent.append(event)
                deferred.event = event
                apply(self.state, event)
            except BaseException as exc:
                struck = exc
                self._refold()
                if not (self._recent and self._recent[-1] is event):
                    continue
                deferred.event = event
            self._deferred.popleft()
            return event, struck
        return None, struck

    def _made(self, deferred: Deferred) -> tuple[AnyEvent, bytes]:
        event = deferred.owed
        if deferred.generation > MAX_GENERATIONS and type(event) is not PluginFaulted:
            raise RefusedAtAppend(f"observers answered events with events {MAX_GENERATIONS} times in a row")
        _place(event, self.state.next_seq)
        body = encode(event)
        check(self.state, event)
        return event, body

    def _fault(self, plugin: str | None, exc: BaseException, event: AnyEvent | None) -> None:
        """Report a fault; what is appended for it waits its turn."""
        if self.on_fault is None:
            return
        try:
            self._notifying = True
            self.on_fault(self, plugin, exc, event)
        finally:
            self._notifying = False
