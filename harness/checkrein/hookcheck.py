"""Does a plugin fit the hook specifications? (H3) Asked before it is registered, so that nothing is half there.

pluggy would find the unknown arguments itself; the colours, the misspelt names, the forgotten marks and
the words of the error are ours.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pluggy

from .errors import PluginError
from .hookspecs import PROJECT, HookInfo, HookSpecs
from .nearest import did_you_mean

__all__ = ["Registry", "check_plugin", "signature_of", "taken_by"]


@cache
def _ours() -> dict[str, Any]:
    """Our specifications, by name; every harness has them, and to read them took half of the time of making one."""
    reader = pluggy.PluginManager(PROJECT)
    reader.add_hookspecs(HookSpecs)
    return {name: caller.spec for name, caller in vars(reader.hook).items() if caller.spec is not None}


class Registry(pluggy.PluginManager):
    """pluggy's registry, with our specifications."""

    def __init__(self) -> None:
        super().__init__(PROJECT)
        for name, spec in _ours().items():
            caller = pluggy.HookCaller(name, self._hookexec)
            caller.spec = spec
            setattr(self.hook, name, caller)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        """Return a hook's marks, None for what is none: pluggy asks for each attribute, and two thirds are Python's."""
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)

    def specified_in(self, specs: Any) -> list[str]:
        """The names of the hooks in a plugin's own `hookspecs`."""
        return [name for name in dir(specs) if self.parse_hookspec_opts(specs, name) is not None]

    def remove_hookspecs(self, specs: Any) -> list[str]:
        """Forget specifications, and return their names; implementations of others wait for them to come back (H4)."""
        names = self.specified_in(specs)
        for name in names:
            getattr(self.hook, name).spec = None
        return names


def signature_of(manager: pluggy.PluginManager, hook: str, *, is_async: bool = False) -> str:
    """Return a hook's specification as the line a plugin would write.

    Args:
        manager: the pluggy manager that knows the specification.
        hook: the hook's name.
        is_async: whether the line is to begin with `async`.
    """
    spec = getattr(manager.hook, hook).spec
    arguments = ", ".join(("self", *spec.argnames, *spec.kwargnames))
    return f"{'async ' if is_async else ''}def {hook}({arguments})"


def taken_by(impl: pluggy.HookImpl) -> tuple[str, ...]:
    """The arguments an implementation takes, in its own order; those with a default are given to it like the others."""
    return (*impl.argnames, *impl.kwargnames)


def check_plugin(name: str, plugin: object, manager: pluggy.PluginManager, specs: Mapping[str, HookInfo]) -> list[str]:
    """Check every implementation of a plugin against its specification (H3).

    Args:
        name: the plugin's name.
        plugin: the instance or module to be registered.
        manager: the pluggy manager; it must know all specifications.
        specs: the hooks' contracts.

    Returns:
        The hooks the plugin implements, in alphabetical order.

    Raises:
        PluginError: names the plugin, the hook and the expected signature.
    """
    hooks: list[str] = []
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is None:
            _check_unmarked(name, plugin, attribute, manager, specs)
            continue
        hook = options.get("specname") or attribute
        if hook not in specs:
            if not options.get("optionalhook"):
                raise PluginError(
                    f"expected the name of a hook, got {hook!r}{did_you_mean(hook, specs)}; "
                    "`checkrein plugins --hooks` lists them",
                    plugin=name,
                )
            continue
        impl = pluggy.HookImpl(plugin, name, getattr(plugin, attribute), options)
        _check_implementation(hook, impl, manager, specs[hook])
        hooks.append(hook)
    return sorted(hooks)


def _check_unmarked(
    name: str, plugin: object, attribute: str, manager: pluggy.PluginManager, specs: Mapping[str, HookInfo]
) -> None:
    """A method named as a hook but not marked is a guard that would never be asked, as is a mark on no function."""
    if isinstance(getattr(inspect.getattr_static(plugin, attribute, None), "checkrein_impl", None), dict):
        raise PluginError(
            f"{attribute} is marked @hookimpl and is no function: write a method that calls it",
            plugin=name,
        )
    if attribute not in specs or inspect.ismodule(plugin):
        return
    if inspect.isroutine(inspect.getattr_static(plugin, attribute, None)):
        raise PluginError(
            f"{attribute} is named as a hook and lacks @hookimpl: mark it, or give it another name; "
            f"expected @hookimpl {signature_of(manager, attribute)}",
            plugin=name,
        )


def _check_implementation(hook: str, impl: pluggy.HookImpl, manager: pluggy.PluginManager, info: HookInfo) -> None:
    def refuse(got: str, *, is_async: bool = False) -> PluginError:
        expected = signature_of(manager, hook, is_async=is_async)
        return PluginError(f"{hook}: got {got}, expected {expected}", plugin=impl.plugin_name)

    if impl.hookwrapper:
        raise refuse("an old-style wrapper (hookwrapper=True); write it with @hookimpl(wrapper=True)")
    spec = getattr(manager.hook, hook).spec
    known = (*spec.argnames, *spec.kwargnames)
    unknown = [argument for argument in taken_by(impl) if argument not in known]
    if unknown:
        raise refuse(f"an unknown argument {unknown[0]!r}{did_you_mean(unknown[0], known)}")
    _check_parameters(impl, known, refuse)
    if not impl.wrapper:
        _check_colour(impl.function, info, refuse)
    elif not inspect.isgeneratorfunction(impl.function):
        raise refuse("a wrapper that is no generator function: `result = yield`, then `return result`")


def _check_parameters(impl: pluggy.HookImpl, known: tuple[str, ...], refuse: Callable[..., PluginError]) -> None:
    """An argument that is taken by keyword alone would never be given."""
    function = inspect.unwrap(impl.function)
    code = getattr(function, "__code__", None)  # a signature costs more, and a start looks at every hook
    if code is None:
        return
    by_keyword = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    defaults = getattr(function, "__kwdefaults__", None) or {}
    if missed := [name for name in by_keyword if name in known or name not in defaults]:
        raise refuse(f"{missed[0]!r} behind a *, and arguments are given by position")


def _check_colour(function: Callable[..., Any], info: HookInfo, refuse: Callable[..., PluginError]) -> None:
    is_async = inspect.iscoroutinefunction(function)
    if inspect.isasyncgenfunction(function):
        hint = ": decorate it with @asynccontextmanager, below @hookimpl" if info.kind == "lifespan" else ""
        raise refuse(f"an async generator{hint}")
    if info.colour == "sync" and is_async:
        raise refuse("an async function for a sync hook (nothing may be awaited there)")
    if info.kind == "lifespan" and is_async:
        raise refuse("an async function: return an async context manager instead, as @asynccontextmanager makes one")
    if info.kind == "around" and not is_async and not inspect.iscoroutinefunction(inspect.unwrap(function)):
        raise refuse("a function that is not async", is_async=True)
    if info.kind != "collect" and inspect.isgeneratorfunction(function):
        raise refuse("a generator that is not marked @hookimpl(wrapper=True)")
