"""The tools and plugins of the worlds. Making them costs more than a short run, so they are kept between runs."""

from __future__ import annotations

from contextvars import ContextVar
from functools import cache
from typing import Any

import anyio

from checkrein.testing.faults import Seams
from checkrein.testing.seams import seam_plugin, seam_tool

__all__ = ["kept_plugin", "kept_tools", "now"]


class _Now:
    """The seams of the run that goes on."""

    async def point(self, name: str) -> None:
        await _seams.get().point(name)

    def sync_point(self, name: str) -> None:
        _seams.get().sync_point(name)


_seams: ContextVar[Seams] = ContextVar("seams")  # tasks and threads inherit it
NOW: Any = _Now()


def now(seams: Seams) -> None:
    """Let the kept tools and plugins count their seams here, in this task and those it starts."""
    _seams.set(seams)


@cache
def kept_tools() -> tuple[Any, ...]:
    """The tools, on the seams of whatever run goes on."""
    return tuple(tools(NOW))


@cache
def kept_plugin(colour: str) -> object:
    """A plugin with every hook, on the seams of whatever run goes on."""
    return seam_plugin(NOW, colour=colour)


def tools(seams: Seams) -> list[Any]:
    async def add(a: int, b: int) -> int:
        """Add."""
        await anyio.sleep(0)
        return a + b

    async def slow(seconds: float = 5.0) -> str:
        """Sleep."""
        await anyio.sleep(seconds)
        return "slept"

    def sync(a: int) -> int:
        """A sync tool, in a thread."""
        return a + 1

    async def fails() -> str:
        """Raise."""
        raise ValueError("no")

    async def alone() -> str:
        """Run alone."""
        return "alone"

    return [
        seam_tool(add, seams, read_only=True, timeout_s=60),
        seam_tool(slow, seams, timeout_s=60),
        seam_tool(sync, seams, idempotent=True),
        seam_tool(fails, seams, timeout_s=60),
        seam_tool(alone, seams, exclusive=True, timeout_s=60),
    ]
