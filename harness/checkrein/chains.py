"""A hook's compiled chain: its implementations with their accounts, callable with all the hook's arguments (H7)."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

__all__ = ["Impl", "Chain"]


class Impl:
    """One implementation of a hook, callable with all the hook's arguments.

    Attributes:
        plugin: the plugin's name.
        function: its function's name; a plugin may implement a hook twice (`specname`).
        call: takes every argument of the specification and passes on those the plugin asked for.
        is_async: whether the plugin wrote `async def`.
        calls, time_s, changes, faults: the account (H7).
    """

    __slots__ = (
        "plugin",
        "hook",
        "kind",
        "function",
        "call",
        "is_async",
        "calls",
        "time_s",
        "changes",
        "faults",
        "recent",
        "off",
    )

    def __init__(
        self,
        plugin: str,
        hook: str,
        kind: str,
        function: Callable[..., Any],
        wanted: tuple[str, ...],
        names: tuple[str, ...],
    ) -> None:
        self.plugin = plugin
        self.hook = hook
        self.kind = kind
        self.function = str(getattr(function, "__name__", hook))
        self.call = _adapter(function, wanted, names)
        self.is_async = iscoroutinefunction(function)
        self.calls = self.changes = self.faults = 0
        self.time_s = 0.0
        self.recent: list[float] = []  # when it last failed, for switching observers off (H5)
        self.off = False


class Chain:
    """A hook's implementations, the first to run first, and its wrappers, the outermost first."""

    __slots__ = ("impls", "wrappers", "deadline_s")

    def __init__(self, impls: list[Impl], wrappers: list[Impl], deadline_s: float | None) -> None:
        self.impls = impls
        self.wrappers = wrappers
        self.deadline_s = deadline_s


def _adapter(function: Callable[..., Any], wanted: tuple[str, ...], names: tuple[str, ...]) -> Callable[..., Any]:
    """A plugin may take any subset of the arguments, in any order; the full set in order costs nothing."""
    if wanted == names:
        return function
    places = [names.index(name) for name in wanted]
    return lambda *args: function(*[args[i] for i in places])
