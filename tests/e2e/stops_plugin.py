"""The plugin of test_stops.py: it comes to one place of a turn, tells, and stays there. Runs in the stopped process.

Installed as the distribution e2e-stops; the table `[plugins.stops]` says where it stays.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import anyio

from checkrein import ToolContext, hookimpl, tool

EFFECTS = "effects"
STEERING = "Mind the gap."


def tell(word: str) -> None:
    """A line for whoever started this process."""
    os.write(2, f"{word}\n".encode())


def arrived() -> None:
    """Tell that the place is reached, and from now on each signal whose handler has run."""

    def telling(handler: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], None]:
        def told(signum: int, frame: FrameType | None) -> None:
            try:
                handler(signum, frame)
            finally:
                tell("heard")

        return told

    for signum in (signal.SIGINT, signal.SIGTERM):
        if callable(handler := signal.getsignal(signum)):
            signal.signal(signum, telling(handler))
    tell("here")


reached: Callable[[], object] = arrived
"""What is called at the place; programs put their own way to stop here."""


class Plugin:
    """Stays at one place of the first turn."""

    @dataclass(frozen=True)
    class Config:
        """`[plugins.stops]`.

        Attributes:
            place: where; empty for nowhere.
            deaf: whether it does not leave when it is cancelled.
            held: whether a place outside any await holds the event loop until standard input has a byte.
            steer: whether it steers the turn there.
        """

        place: str = ""
        deaf: bool = False
        held: bool = False
        steer: bool = False

    def __init__(self, config: Config) -> None:
        self.config = config
        self.been = False
        self.agent: Any = None

    def at(self, place: str) -> bool:
        """Whether this is the place, for the first time."""
        if self.been or self.config.place != place:
            return False
        self.been = True
        return True

    async def stay(self, place: str) -> None:
        """If this is the place, tell and stay."""
        if not self.at(place):
            return
        if self.config.steer:
            await self.agent.steer(STEERING).durable()
        reached()
        with anyio.CancelScope(shield=self.config.deaf):
            await anyio.sleep_forever()

    @hookimpl
    def agent_created(self, agent: Any) -> None:
        self.agent = agent

    @hookimpl
    def register_tools(self) -> list[Any]:
        @tool
        async def work(context: ToolContext) -> str:
            """Leave a mark, and work."""
            mark(context)
            await self.stay("tool")
            return "worked"

        @tool
        def work_in_thread(context: ToolContext) -> str:
            """Leave a mark, and work in a thread."""
            import threading

            mark(context)
            if self.at("thread"):
                context.agent.harness.from_thread(reached)
                threading.Event().wait()
            return "worked"

        return [work, work_in_thread]

    # --- hooks, in the order in which a turn comes to them --------------------------------------------

    @hookimpl
    async def session_flush(self, gate: str) -> None:
        await self.stay(f"flush {gate}")

    @hookimpl
    async def agent_request(self) -> None:
        await self.stay("agent_request")

    @hookimpl
    def stream_chunk(self) -> None:
        if self.at("stream"):
            reached()

    @hookimpl
    async def step_result(self) -> None:
        await self.stay("step_result")

    @hookimpl
    async def tools_execute(self, call: Any, proceed: Any) -> Any:
        await self.stay("tools_execute")
        return await proceed(call)

    @hookimpl
    async def tools_guard(self) -> None:
        await self.stay("tools_guard")

    @hookimpl
    async def turn_continuation(self) -> None:
        await self.stay("turn_continuation")

    @hookimpl
    def session_event(self, event: Any) -> None:
        places = {"request/start": "request", "approval/asked": "approval", "step/end": "between"}
        place = places.get(event.type)
        if place is not None and self.at(place):
            reached()
            if self.config.held and place == "between":
                os.read(0, 1)


def mark(context: ToolContext) -> None:
    """The effect: one more line."""
    with (context.workspace / EFFECTS).open("a") as file:
        file.write(f"{context.call_id}\n")
