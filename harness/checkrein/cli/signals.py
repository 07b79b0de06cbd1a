"""SIGINT and SIGTERM as events of a command: the first one is told, the second one ends the process.

Plain signal handlers, not the event loop's: the second signal has to work when a plugin holds the loop, and
Windows has no other kind. The library itself installs none (C8).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from checkrein.threads import loop_post

if TYPE_CHECKING:
    from checkrein.agents import AgentLike

__all__ = ["EXIT_SIGNAL", "Signals", "save"]

EXIT_SIGNAL = 130
SAVE_S = 1.0
"""Seconds the second signal leaves for saving; the third one leaves none."""


class Signals:
    """A context manager, entered in the event loop of the main thread.

    Args:
        tell: called in the event loop with the signal's number at the first signal, and at the first one
            after each `heard()`.
        save: called in the event loop before a forced exit; hands what is in memory to the store.
    """

    def __init__(self, tell: Callable[[int], object], save: Callable[[], object]) -> None:
        self._tell = tell
        self._save = save
        self._unheard = 0
        self._post: Callable[[Callable[[], object]], bool] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self._post = loop_post()
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(signum) != signal.SIG_IGN:  # a background job's parent said to ignore it
                    self._before[signum] = signal.signal(signum, self._arrived)
        return self

    def __exit__(self, *exc: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler if handler is not None else signal.SIG_DFL)

    def heard(self) -> None:
        """What the last signal asked for is done: the next one is a first one again."""
        self._unheard = 0

    def _arrived(self, signum: int, frame: FrameType | None) -> None:
        assert self._post is not None
        self._unheard += 1
        if self._unheard == 1:
            self._post(lambda: self._tell(signum))
        elif self._unheard == 2:
            timer = threading.Timer(SAVE_S, os._exit, (EXIT_SIGNAL,))
            timer.daemon = True
            timer.start()
            self._post(self._leave)  # in the loop, so that no append is cut in two
        else:
            os._exit(EXIT_SIGNAL)

    def _leave(self) -> None:
        try:
            self._save()
        finally:
            os._exit(EXIT_SIGNAL)


def save(agent: AgentLike | None) -> None:
    """Close the open turn as a cancel would, without awaiting anything, and hand the log to the store.

    Args:
        agent: whose process is about to be left; None if there is none yet.
    """
    from checkrein.closing import closed
    from checkrein.events import Cause, Reason
    from checkrein.store import flush

    if agent is None:
        return
    session = agent.session
    try:
        closed(session, Reason("cancelled", cause=Cause("signal")))
    finally:
        if session.writer is not None:
            flush(session.writer, session.lines)
