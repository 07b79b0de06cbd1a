"""Collecting what plugins bring: event types, stores, providers, tools, prompt sections (H4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .config.types import SessionConfig
from .errors import ConfigError, PluginError
from .events import KNOWN
from .eventtypes import EventType
from .hookcheck import taken_by
from .nearest import did_you_mean
from .prompt import Section
from .providers import Provider
from .store import Store
from .wrapping import StartWraps

if TYPE_CHECKING:
    from .harness import Harness
    from .tools import Tool

__all__ = ["check_store", "check_trust", "collect", "leave", "listed"]

T = TypeVar("T")


def listed(name: str, given: Iterable[T]) -> list[T]:
    """What a program handed over of tools, plugins or providers.

    Raises:
        ConfigError: it is one of them, or a text, instead of a list.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"expected a list of {name}, got {given!r}; write {name}=[...]")
    return list(given)


def check_store(harness: Harness, *, named: bool) -> None:
    """Refuse a store that somebody asked for and nobody brings; without the default one sessions stay in memory.

    Args:
        harness: with what the plugins brought.
        named: whether the program handed one over.

    Raises:
        ConfigError: nobody brings it.
    """
    name, known = harness.config.session.store, ["memory", *harness.stores]
    origin = None if harness.loaded is None else harness.loaded.origins.get("session.store")
    asked = name != SessionConfig().store or origin is not None
    if not named and asked and name not in known:
        words = f"expected one of the stores {', '.join(known)}, got {name!r}{did_you_mean(name, known)}"
        raise ConfigError(words, path="session.store", file=origin)


def check_trust(harness: Harness) -> None:
    """Look at a project's file that nobody named or trusts, before any hook is called.

    Raises:
        ConfigError: it says who gets which key; with the keys, and what to do.
    """
    loaded, plugins = harness.loaded, harness.plugins
    if loaded is not None and loaded.project and not loaded.named:
        from .config.trust import check_found

        if (said := check_found(loaded, {name: plugins.plugin(name) for name in plugins.names()})) is not None:
            import logging

            logging.getLogger("checkrein.config").warning("%s", said)


def collect(harness: Harness, tools: Sequence[Tool | Callable[..., Any]], providers: Sequence[Provider]) -> None:
    """Ask every plugin, in plugin order, and register the program's own last.

    A found plugin that fails here is skipped, with all it brought; a required one stops the start (H5).

    Raises:
        PluginError: a required plugin fails, brings something else than asked for, or a name twice.
        ConfigError: the program's own tools or providers clash.
    """
    for hook, register in _REGISTER.items():
        for name, item in _asked(harness, hook):
            if name not in harness.plugins:
                continue  # an earlier item of its own was refused, and it left
            try:
                register(harness, name, item)
            except BaseException as exc:
                harness.plugins.failed(name, hook, exc)
    for provider in providers:
        harness.providers.add(provider)
        harness.brought.pop(("provider", provider.name), None)  # it stays when the plugin of the one it replaced leaves
    for tool in tools:
        harness.tools.add(tool)


def _asked(harness: Harness, hook: str) -> list[tuple[str, Any]]:
    """What the plugins bring, each item with its plugin, as the hook's wrappers leave it."""
    wraps = StartWraps(harness, hook, lambda plugin: {"harness": harness})
    brought: list[tuple[str, Any]] = []
    for impl in list(harness.plugins.impls(hook)):
        if impl.plugin_name not in harness.plugins:
            continue  # it left with what it requires
        try:
            answer: Any = impl.function(*(harness,) * len(taken_by(impl)))
            brought += [(impl.plugin_name, item) for item in answer or ()]
        except KeyboardInterrupt:
            raise
        except BaseException as exc:
            harness.plugins.failed(impl.plugin_name, hook, exc)
    owners: dict[int, list[str]] = {}
    for name, item in brought:
        owners.setdefault(id(item), []).append(name)
    changer: list[str] = []

    def took(plugin: str, items: Any) -> list[Any]:
        changer.append(plugin)
        return list(items)

    items = wraps.leave([item for _, item in brought], took)
    # Each item stays its plugin's; a new one belongs to the last wrapper that changed the list.
    return [(names.pop(0) if (names := owners.get(id(item))) else changer[-1], item) for item in items]


def leave(harness: Harness, plugin: str) -> None:
    """Forget everything a plugin brought: it leaves with it (H4)."""
    harness.tools.remove_plugin(plugin)
    for kind, name in [key for key, owner in harness.brought.items() if owner == plugin]:
        del harness.brought[kind, name]
        if kind == "provider":
            harness.providers.remove(name)
        elif kind == "store":
            harness.stores.pop(name, None)
        elif kind == "event type":
            harness.event_types.pop(name, None)
        else:
            harness.sections[:] = [section for section in harness.sections if section.name != name]


def _claim(harness: Harness, kind: str, name: str, plugin: str) -> None:
    other = harness.brought.get((kind, name))
    if other is not None and not harness.plugins.may_override(name):
        raise PluginError(
            f"its {kind} {name!r} exists already, from plugin {other!r}; block one of them, or name it in"
            " plugins.override",
            plugin=plugin,
        )
    harness.brought[kind, name] = plugin


def _must_be(kind: type, item: object, plugin: str) -> None:
    if not isinstance(item, kind):
        raise PluginError(f"expected {kind.__name__} objects, got {type(item).__name__}", plugin=plugin)


def _event_type(harness: Harness, plugin: str, item: EventType) -> None:
    _must_be(EventType, item, plugin)
    if item.name in KNOWN:
        raise PluginError(f"the event type {item.name!r} is one of ours; name yours {plugin}/...", plugin=plugin)
    _claim(harness, "event type", item.name, plugin)
    harness.event_types[item.name] = item


def _store(harness: Harness, plugin: str, item: Store) -> None:
    _must_be(Store, item, plugin)
    _claim(harness, "store", item.name, plugin)
    harness.stores[item.name] = item


def _provider(harness: Harness, plugin: str, item: Provider) -> None:
    _must_be(Provider, item, plugin)
    _claim(harness, "provider", item.name, plugin)
    harness.providers.add(item)


def _tool(harness: Harness, plugin: str, item: Tool) -> None:
    harness.tools.add(item, plugin, override=harness.plugins.may_override(getattr(item, "name", "")))


def _section(harness: Harness, plugin: str, item: Section) -> None:
    _must_be(Section, item, plugin)
    if not (isinstance(item.text, str) or callable(item.text)):
        raise PluginError(
            f"its prompt section {item.name!r} holds {type(item.text).__name__}; expected a text, or a function",
            plugin=plugin,
        )
    if not isinstance(item.order, (int, float)):  # they are sorted before each request
        raise PluginError(
            f"its prompt section {item.name!r} has the order {item.order!r}; expected a whole number, as 100",
            plugin=plugin,
        )
    _claim(harness, "prompt section", item.name, plugin)
    harness.sections[:] = [each for each in harness.sections if each.name != item.name]  # it may take one over
    harness.sections.append(item)


_REGISTER: dict[str, Callable[[Harness, str, Any], None]] = {
    "register_events": _event_type,
    "register_stores": _store,
    "register_providers": _provider,
    "register_tools": _tool,
    "prompt_sections": _section,
}
