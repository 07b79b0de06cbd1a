"""Following an agent live: every event of its log and every delta, in order, over any number of turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from checkrein.events import AnyEvent
from checkrein.live import Buffer, Delta

if TYPE_CHECKING:
    from checkrein.agents import AgentLike

__all__ = ["Follower", "Item"]

Item: TypeAlias = AnyEvent | Delta


class Follower:
    """Reads an agent's events from its log and its deltas from a bounded buffer.

    Args:
        agent: whom.
        start: the list position of the first event to give.
    """

    def __init__(self, agent: AgentLike, start: int = 0) -> None:
        self._session = agent.session
        self._buffer = Buffer()
        self._next = start
        self._stop = agent.attach(self._buffer)

    def ready(self) -> Iterator[Item]:
        """What is there now; each item comes once, deltas behind the events they followed."""
        while True:
            events = self._session.events  # another object once the session has grown long
            items = self._buffer.items  # joining makes a new one
            if items and items[0][0] <= self._next:
                yield items.popleft()[1]
            elif self._next < len(events):
                self._next += 1
                yield events[self._next - 1]
            else:
                return

    async def wait(self) -> None:
        """Wait until there is something more; call it when `ready()` has come to its end."""
        await self._buffer.wait()

    def close(self) -> None:
        """Take no more deltas; events still come from the log."""
        self._stop()
