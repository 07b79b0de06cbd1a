"""Plugins' lifespans and supervised tasks: entered in plugin order, left in reverse with a deadline (H1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import anyio

from .hookcheck import taken_by
from .hookspecs import SPECS
from .owner import ours
from .wrapping import StartWraps

if TYPE_CHECKING:
    from pluggy import HookImpl

    from .harness import Harness

__all__ = ["Lifespans"]


class Lifespans:
    """What is open between a harness's start and its end. Each lifespan lives in a task of its own,

    so that scopes and groups a plugin opens are left in the task that entered them, whoever closes the harness.
    """

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._open: list[_Lifespan] = []

    async def enter(self) -> None:
        """Enter every plugin's lifespan in order.

        A found plugin that fails to start, or passes its deadline, is skipped (H5).

        Raises:
            PluginError: a required plugin failed to start.
        """
        wraps = StartWraps(self._harness, "lifespan", self._available)
        for impl in list(self._harness.plugins.impls("lifespan")):
            if impl.plugin_name not in self._harness.plugins:
                continue  # it left with what it requires
            try:
                await self._enter(impl)
            except KeyboardInterrupt:
                raise
            except BaseException as exc:
                if ours(exc):
                    raise
                self._harness.plugins.failed(impl.plugin_name, "lifespan", exc)
        wraps.leave(None, lambda plugin, value: value)

    def _available(self, plugin: str) -> dict[str, Any]:
        return {"harness": self._harness, "tasks": Tasks(self._harness, plugin)}

    async def _enter(self, impl: HookImpl) -> None:
        available = self._available(impl.plugin_name)
        manager: Any = impl.function(*[available[name] for name in taken_by(impl)])
        if manager is None:
            return
        span = _Lifespan(impl.plugin_name, self._contain)
        self._harness.owner.spawn(span.run, manager)
        with anyio.move_on_after(self._deadline()):
            await span.entered.wait()
        if not span.entered.is_set():
            span.give_up()
            raise TimeoutError(f"did not start within {self._deadline():g} s")
        if span.error is not None:
            raise span.error
        self._open.append(span)

    async def leave(self) -> None:
        """Leave them in reverse order; what fails or hangs is recorded, and the rest is left all the same."""
        while self._open:
            span = self._open.pop()
            span.leave.set()
            with anyio.move_on_after(self._deadline()) as scope:
                await span.left.wait()
            if scope.cancelled_caught:
                span.give_up()
                self._contain(span.plugin, TimeoutError(f"lifespan did not stop within {self._deadline():g} s"))

    def _contain(self, plugin: str, error: BaseException) -> None:
        self._harness.hooks.faults.write(plugin, "lifespan", error, None, "contained")

    def _deadline(self) -> float:
        return self._harness.config.limits.deadlines().get("lifespan") or SPECS["lifespan"].deadline_s or 30.0


class _Lifespan:
    def __init__(self, plugin: str, failed: Callable[[str, BaseException], None]) -> None:
        self.plugin = plugin
        self._failed = failed
        self.entered = anyio.Event()
        self.leave = anyio.Event()
        self.left = anyio.Event()
        self.error: BaseException | None = None
        self._scope = anyio.CancelScope()

    async def run(self, manager: AbstractAsyncContextManager[Any]) -> None:
        try:
            with self._scope:
                async with manager:
                    self.entered.set()
                    await self.leave.wait()
        except BaseException as exc:
            if ours(exc):
                raise
            if self.entered.is_set():  # also long before the end, as a task group in it does whose task fails
                self._failed(self.plugin, exc)
            else:
                self.error = exc
        finally:
            self.left.set()
            self.entered.set()

    def give_up(self) -> None:
        self._scope.cancel()


class Tasks:
    """Starts supervised tasks for a plugin (see checkrein.owner.TaskStarter)."""

    def __init__(self, harness: Harness, plugin: str) -> None:
        self._harness = harness
        self._plugin = plugin

    def start(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `fn(*args)` until it ends or the harness closes; its failure is a fault of the plugin."""
        self._harness.owner.spawn(self._run, fn, args)

    async def _run(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        try:
            await fn(*args)
        except BaseException as exc:
            if ours(exc):
                raise
            self._harness.hooks.faults.write(self._plugin, "lifespan", exc, None, "contained")
