"""Collecting what plugins bring: event types, stores, providers, tools, prompt sections (H4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .errors import CheckreinError, PluginError
from .events import KNOWN
from .eventtypes import EventType
from .prompt import Section

if TYPE_CHECKING:
    from .harness import Harness
    from .providers import Provider
    from .tools import Tool

__all__ = ["collect"]


def collect(harness: Harness, tools: Sequence[Tool | Callable[..., Any]], providers: Sequence[Provider]) -> None:
    """Ask every plugin, in plugin order, and register the program's own last.

    Raises:
        PluginError: a plugin fails, brings something else than asked for, or a name twice.
        ConfigError: the program's own tools or providers clash.
    """
    owners: dict[tuple[str, str], str] = {}

    def claim(kind: str, name: str, plugin: str) -> None:
        other = owners.get((kind, name))
        if other is not None and not harness.plugins.may_override(name):
            raise PluginError(
                f"its {kind} {name!r} exists already, from plugin {other!r}; block one of them, or name it in"
                " plugins.override",
                plugin=plugin,
            )
        owners[kind, name] = plugin

    for plugin, kind in _ask(harness, "register_events", EventType):
        claim("event type", kind.name, plugin)
        if kind.name in KNOWN:
            raise PluginError(f"the event type {kind.name!r} is one of ours; name yours {plugin}/...", plugin=plugin)
        harness.event_types[kind.name] = kind
    for plugin, store in _ask(harness, "register_stores", None):
        claim("store", store.name, plugin)
        harness.stores[store.name] = store
    for plugin, provider in _ask(harness, "register_providers", None):
        claim("provider", provider.name, plugin)
        harness.providers.add(provider)
    for plugin, tool in _ask(harness, "register_tools", None):
        harness.tools.add(tool, plugin, override=harness.plugins.may_override(getattr(tool, "name", "")))
    for plugin, section in _ask(harness, "prompt_sections", Section):
        claim("prompt section", section.name, plugin)
        harness.sections.append(section)
    for provider in providers:
        harness.providers.add(provider)
    for tool in tools:
        harness.tools.add(tool)


def _ask(harness: Harness, hook: str, kind: type | None) -> Iterable[tuple[str, Any]]:
    for impl in harness.plugins.impls(hook):
        name = impl.plugin_name
        try:
            args = (harness,) if "harness" in impl.argnames else ()
            answer: Any = impl.function(*args)
            items = list(answer or ())
        except (CheckreinError, KeyboardInterrupt):
            raise
        except BaseException as exc:
            raise PluginError(f"{hook} failed: {type(exc).__name__}: {exc}", plugin=name) from exc
        for item in items:
            if kind is not None and not isinstance(item, kind):
                raise PluginError(f"{hook}: expected {kind.__name__} objects, got {type(item).__name__}", plugin=name)
            yield name, item
