"""Services: what plugins offer each other and the harness, by type. Who asks a person, who runs a process.

Plugins do not import each other; they meet here and in the hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .discovery import BUILTIN
from .errors import ConfigError

if TYPE_CHECKING:
    from .plugins import PluginManager

__all__ = ["Services"]

T = TypeVar("T")


class Services:
    """The services of one harness.

    Args:
        plugins: asked who could provide a missing service, by `provides`; only for the error.
    """

    def __init__(self, plugins: PluginManager | None = None) -> None:
        self._plugins = plugins
        self._provided: dict[type, tuple[Any, str | None]] = {}
        self._left: dict[type, str] = {}

    def provide(self, type_: type[Any], value: object, plugin: str | None = None) -> None:
        """Offer `value` as the service `type_`; it leaves with its plugin.

        Args:
            type_: the class or protocol that others ask for.
            value: what they get.
            plugin: the plugin that provides it; None for the program itself.

        Raises:
            ConfigError: the type is provided already, or `value` is not of it.
        """
        if type_ in self._provided:
            raise ConfigError(
                f"expected one provider of the service {_name(type_)}, got {_who(self._provided[type_][1])} and "
                f"{_who(plugin)}; block one of them (plugins.block)"
            )
        if not _fits(value, type_):
            raise ConfigError(f"expected a {_name(type_)} from {_who(plugin)}, got {type(value).__qualname__}")
        self._provided[type_] = (value, plugin)

    def service(self, type_: Callable[..., T]) -> T:
        """Return the service of this type.

        Args:
            type_: the class or protocol; as `type[T]` mypy would take no protocol.

        Raises:
            ConfigError: nobody provides it; the message says who could.
        """
        wanted = cast(type, type_)
        try:
            return cast(T, self._provided[wanted][0])
        except KeyError:
            raise ConfigError(self._missing(wanted)) from None

    def has(self, type_: type) -> bool:
        """Return whether somebody provides this type."""
        return type_ in self._provided

    def withdraw(self, plugin: str) -> list[type]:
        """Take back everything a plugin provided, and return the types."""
        gone = [type_ for type_, (_, owner) in self._provided.items() if owner == plugin]
        for type_ in gone:
            del self._provided[type_]
            self._left[type_] = plugin
        return gone

    def _missing(self, type_: type) -> str:
        who = _could_provide(type_, self._plugins) if self._plugins is not None else []
        if (left := self._left.get(type_)) is not None:
            who.append(f"plugin {left!r} did, and has left")
        there = ", ".join(sorted(_name(each) for each in self._provided)) or "(none)"
        hint = (
            f"could be provided by {'; '.join(who)}" if who else "call harness.provide(type, value), or load a plugin"
        )
        return f"expected a service {_name(type_)}, got none: provided are {there}; {hint}"


def _could_provide(type_: type, plugins: PluginManager) -> list[str]:
    """Those that are loaded and say so, and ours that are not: what they provide is not known."""
    who = [f"plugin {name!r}" for name in plugins.names() if type_ in getattr(plugins.plugin(name), "provides", ())]
    return who + [
        f"plugin {report.name!r} ({report.state}: {report.problem})"
        for report in plugins.reports
        if report.state != "loaded" and report.distribution == BUILTIN
    ]


def _name(type_: type) -> str:
    return f"{type_.__module__}.{type_.__qualname__}"


def _who(plugin: str | None) -> str:
    return f"plugin {plugin!r}" if plugin is not None else "the program"


def _fits(value: object, type_: type) -> bool:
    try:
        return isinstance(value, type_)
    except TypeError:  # a protocol that cannot be checked at run time
        return True
