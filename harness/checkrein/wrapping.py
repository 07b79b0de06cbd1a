"""Wrappers: `@hookimpl(wrapper=True)` generators around any hook (H2). They yield once, and receive the awaited value.

    @hookimpl(wrapper=True)
    def tools_guard(self, call):
        vote = yield            # a fault of the wrapped implementations is raised here
        return vote             # None leaves it as it is

Sync by nature, so they have no deadline. What a wrapper raises is its own fault, by the policy of the hook.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from .errors import PluginFault
from .hookcheck import taken_by

if TYPE_CHECKING:
    from pluggy import HookImpl

    from .harness import Harness
    from .hooks import Chain, Impl

__all__ = ["StartWraps", "Wraps", "wrapped"]

OnFault: TypeAlias = "Callable[[Impl, BaseException], BaseException | None]"


class Wraps:
    """The open wrappers of one call.

    Args:
        on_fault: records what a wrapper raised; returns the error the call ends with, None if it is contained.
        valid: raises for a value a wrapper must not return.

    Attributes:
        error: what the call ends with so far.
        changed: the plugins whose wrappers returned another value, innermost first.
    """

    __slots__ = ("_on_fault", "_open", "_valid", "changed", "error")

    def __init__(self, on_fault: OnFault, valid: Callable[[Any], None]) -> None:
        self._on_fault = on_fault
        self._valid = valid
        self._open: list[tuple[Impl, Generator[None, Any, Any]]] = []
        self.error: BaseException | None = None
        self.changed: list[str] = []

    def enter(self, chain: Chain, args: tuple[Any, ...]) -> bool:
        """Run every wrapper up to its yield, the outermost first; returns whether the call may go on."""
        for impl in chain.wrappers:
            if impl.off:
                continue
            impl.calls += 1
            began = perf_counter()
            try:
                generator: Generator[None, Any, Any] = impl.call(*args)
                if next(generator, self) is self:
                    raise RuntimeError("a wrapper yields once, it did not")
                self._open.append((impl, generator))
            except BaseException as exc:
                self.error = self._on_fault(impl, exc)
            impl.time_s += perf_counter() - began
            if self.error is not None:
                return False
        return True

    def leave(self, result: Any) -> Any:
        """Hand the value, or the error, to every wrapper, the innermost first; returns the value it became.

        Only a plugin's fault can be turned into a value: a cancellation and a KeyboardInterrupt go on.
        """
        while self._open:
            impl, generator = self._open.pop()
            began = perf_counter()
            try:
                if self.error is None:
                    generator.send(result)
                else:
                    generator.throw(self.error)
                generator.close()
                raise RuntimeError("a wrapper yields once, it did more often")
            except StopIteration as stop:
                result = self._returned(impl, stop.value, result)
            except BaseException as exc:
                if exc is not self.error:
                    self.error = self._on_fault(impl, exc) or self.error
            impl.time_s += perf_counter() - began
        return result

    def _returned(self, impl: Impl, value: Any, result: Any) -> Any:
        if value is None or value is result:
            return result
        try:
            self._valid(value)
        except Exception as exc:
            self.error = self._on_fault(impl, exc) or self.error
            return result
        if self.error is not None and not isinstance(self.error, PluginFault):
            return result
        self.error = None
        impl.changes += 1
        self.changed.append(impl.plugin)
        return value


async def wrapped(wraps: Wraps, chain: Chain, args: tuple[Any, ...], core: Callable[[], Awaitable[Any]]) -> Any:
    """Run `core` inside the chain's wrappers and return the value.

    Raises:
        BaseException: what the call ends with: a PluginFault, or what left `core`.
    """
    result: Any = None
    if wraps.enter(chain, args):
        try:
            result = await core()
        except BaseException as exc:
            wraps.error = exc
    result = wraps.leave(result)
    error, wraps.error = wraps.error, None  # else the error's own traceback would hold it
    if error is not None:
        raise error
    return result


class StartWraps:
    """Wrappers around a start-up hook, before there is a dispatcher: what fails, fails the start or is skipped (H5).

    Args:
        harness: whose plugins are asked.
        hook: the hook's name.
        available: the hook's arguments by name; a function of the plugin's name.
    """

    __slots__ = ("_harness", "_hook", "_open")

    def __init__(self, harness: Harness, hook: str, available: Callable[[str], dict[str, Any]]) -> None:
        self._harness = harness
        self._hook = hook
        self._open: list[tuple[HookImpl, Generator[None, Any, Any]]] = []
        for impl in list(harness.plugins.wrappers(hook)):
            if impl.plugin_name not in harness.plugins:
                continue  # it left with what it requires
            given = available(impl.plugin_name)
            try:
                generator: Any = impl.function(*[given[name] for name in taken_by(impl)])
                if next(generator, self) is self:
                    raise RuntimeError("a wrapper yields once, it did not")
                self._open.append((impl, generator))
            except KeyboardInterrupt:
                raise
            except BaseException as exc:
                harness.plugins.failed(impl.plugin_name, hook, exc)

    def leave(self, value: Any, took: Callable[[str, Any], Any]) -> Any:
        """Hand `value` to every wrapper, the innermost first; what one returns goes through `took(plugin, value)`."""
        while self._open:
            impl, generator = self._open.pop()
            try:
                if impl.plugin_name not in self._harness.plugins:
                    generator.close()  # it left meanwhile, and has no say
                    continue
                returned = _sent(generator, value)
                if returned is not None and returned is not value:
                    value = took(impl.plugin_name, returned)
            except KeyboardInterrupt:
                raise
            except BaseException as exc:
                self._harness.plugins.failed(impl.plugin_name, self._hook, exc)
        return value


def _sent(generator: Generator[None, Any, Any], value: Any) -> Any:
    try:
        generator.send(value)
    except StopIteration as stop:
        return stop.value
    generator.close()
    raise RuntimeError("a wrapper yields once, it did more often")
