"""Tools: what a model can call. `@tool` makes one from a function's hints and docstring.

    @tool(read_only=True)
    def weather(city: str) -> str:
        "Current weather of a city."

What a tool is stands in toolbase.py, schemas from hints in schema.py, foreign ones in foreign.py, threads in
threads.py; what runs a call is the loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, ParamSpec, TypeVar, overload

from .errors import ConfigError, PluginError
from .nearest import did_you_mean
from .schema import docstring_of, read_signature
from .toolbase import FunctionTool, Reconcile, SchemaTool, Tool, ToolContext

__all__ = ["tool", "Tool", "FunctionTool", "SchemaTool", "ToolContext", "ToolRegistry", "Reconcile"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def tool(fn: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    fn: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    exclusive: bool = False,
    timeout_s: float | None = None,
    parameters: None = None,
    reconcile: Reconcile | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
@overload
def tool(
    fn: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    exclusive: bool = False,
    timeout_s: float | None = None,
    parameters: dict[str, Any],
    reconcile: Reconcile | None = None,
) -> Callable[[Callable[..., Any]], SchemaTool]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    exclusive: bool = False,
    timeout_s: float | None = None,
    parameters: dict[str, Any] | None = None,
    reconcile: Reconcile | None = None,
) -> Any:
    """Make a tool of a function: `@tool`, `@tool(read_only=True)`, `tool(object.method)`.

    Args:
        fn: the function; sync ones run in a thread.
        name: what the model calls it; the function's name if not given.
        description: what the model reads; the docstring's text before its sections if not given.
        read_only: it changes nothing.
        idempotent: running it twice does no more than running it once.
        exclusive: it runs alone in its step.
        timeout_s: seconds a call may take, above 0; None for no limit of its own.
        parameters: a JSON Schema of type object instead of the hints; the function then takes one dict.
        reconcile: called after a crash with the arguments of a call whose outcome is unknown, to say what became
            of it.

    Returns:
        The tool; or a decorator, if fn is not given.

    Raises:
        ConfigError: the name, the hints or the schema cannot be used; names function and parameter.
    """

    def make(fn: Callable[..., Any]) -> Tool:
        if isinstance(fn, Tool):
            raise ConfigError(
                f"{fn.name!r} is a tool already; use it as it is, or make another one of its function, .fn"
            )
        options: dict[str, Any] = {
            "name": name or getattr(getattr(fn, "func", fn), "__name__", type(fn).__name__),
            "read_only": read_only,
            "idempotent": idempotent,
            "exclusive": exclusive,
            "timeout_s": timeout_s,
            "reconcile": reconcile,
        }
        if parameters is not None:
            from .foreign import ForeignSchema

            text = description if description is not None else inspect.cleandoc(docstring_of(fn) or "")
            schema = ForeignSchema(parameters, name=f"tool {options['name']!r}")
            return SchemaTool(fn, schema=schema, description=text, **options)
        signature = read_signature(fn, ToolContext)
        text = description if description is not None else signature.description
        return FunctionTool(fn, signature=signature, description=text, **options)

    return make if fn is None else make(fn)


class ToolRegistry:
    """The tools of a harness, by name."""

    __slots__ = ("_by_name", "_chosen", "_plugins")

    def __init__(self) -> None:
        self._by_name: dict[str, Tool] = {}
        self._plugins: dict[str, str | None] = {}
        self._chosen: dict[tuple[str, ...] | None, tuple[Tool, ...]] = {}

    def add(self, item: Tool | Callable[..., Any], plugin: str | None = None, *, override: bool = False) -> Tool:
        """Register a tool; a plain function becomes one.

        Args:
            item: the tool.
            plugin: who brings it; None for the user's own code.
            override: whether it may take the place of another of its name.

        Raises:
            ConfigError: a tool of this name exists; names both owners. A PluginError if a plugin brings it.
        """
        new = item if isinstance(item, Tool) else tool(item)
        if new.name in self._by_name and not override:
            message = (
                f"tool {new.name!r} of {_owner(plugin)} exists already, from {_owner(self._plugins[new.name])};"
                " rename one, block one of the plugins, or allow the override"
            )
            raise PluginError(message, plugin=plugin) if plugin is not None else ConfigError(message)
        self._by_name[new.name] = new
        self._plugins[new.name] = plugin
        self._chosen.clear()
        return new

    def remove(self, name: str) -> None:
        """Forget a tool; nothing happens if it is not there."""
        if self._by_name.pop(name, None) is not None:
            del self._plugins[name]
            self._chosen.clear()

    def remove_plugin(self, plugin: str) -> None:
        """Forget all tools of a plugin: what it registered leaves with it (H4)."""
        for name in [name for name, owner in self._plugins.items() if owner == plugin]:
            self.remove(name)

    def get(self, name: str) -> Tool | None:
        """The tool of this name, None if there is none."""
        return self._by_name.get(name)

    def names(self) -> list[str]:
        """The registered names, sorted."""
        return sorted(self._by_name)

    def owner(self, name: str) -> str | None:
        """The plugin that brought a tool; None for the user's own, or if it is not there."""
        return self._plugins.get(name)

    def for_agent(self, patterns: Sequence[str] | None = None) -> tuple[Tool, ...]:
        """Return the tools an agent may use, sorted by name, so that requests keep their prefix (M1).

        Args:
            patterns: names or patterns (`fs_*`), `!pattern` to leave out; None means all, and so does a list
                of nothing but `!patterns`, but for those.
        """
        key = None if patterns is None else tuple(patterns)
        chosen = self._chosen.get(key)
        if chosen is None:
            if len(self._chosen) > 256:  # keys come from configuration; a bound all the same
                self._chosen.clear()
            chosen = self._chosen[key] = tuple(self._by_name[name] for name in self.names() if _allowed(name, key))
        return chosen

    def unmatched(self, patterns: Sequence[str]) -> list[str]:
        """Say of each pattern that no registered tool matches, most likely misspelt, what is near it.

        Args:
            patterns: as for `for_agent`.
        """
        return [
            f"no tool matches {p!r}{did_you_mean(p.removeprefix('!'), self.names())}"
            for p in patterns
            if not any(fnmatchcase(name, p.removeprefix("!")) for name in self._by_name)
        ]

    def warn_unmatched(self, agent: str, patterns: Sequence[str]) -> None:
        """Log what `unmatched` says of an agent's patterns; a tool may still come, so it is no error."""
        if complaints := self.unmatched(patterns):
            import logging

            for complaint in complaints:
                logging.getLogger("checkrein.tools").warning("agent %r: %s", agent, complaint)

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name


def _owner(plugin: str | None) -> str:
    return "the application" if plugin is None else f"plugin {plugin!r}"


def _allowed(name: str, patterns: tuple[str, ...] | None) -> bool:
    if patterns is None:
        return True
    allow = [p for p in patterns if not p.startswith("!")]
    deny = [p[1:] for p in patterns if p.startswith("!")]
    wanted = any(fnmatchcase(name, p) for p in allow) or (bool(deny) and not allow)
    return wanted and not any(fnmatchcase(name, p) for p in deny)
