"""What the installed distributions offer, read from their metadata: entry points, found without an import.

Plugins, loops and commands come in by the same door. This module imports only the standard
library (`checkrein --help` needs it); loading plugins is plugins.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import ConfigError
from .nearest import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["BUILTIN", "COMMANDS", "LOOPS", "PLUGINS", "Found", "discover", "load_loop", "load_named"]

BUILTIN = "checkrein"
COMMANDS = "checkrein.commands"
LOOPS = "checkrein.loops"
PLUGINS = "checkrein.plugins"
DEFAULT_LOOP = "checkrein_loop:LoopAgent"  # a test holds it to the entry point of the same name


class Found(NamedTuple):
    """An entry point and where it comes from.

    Attributes:
        name: the entry point's name.
        value: what it points to, as `package.module:Object`.
        distribution: the distribution's name, empty if it is not known.
        version: the distribution's version, empty if it is not known.
        entry_point: what loads it.
    """

    name: str
    value: str
    distribution: str
    version: str
    entry_point: EntryPoint

    @property
    def builtin(self) -> bool:
        """Whether it is one of ours."""
        return self.distribution == BUILTIN

    @property
    def origin(self) -> str:
        """Distribution and version, for a person."""
        return " ".join(part for part in (self.distribution or "an unknown distribution", self.version) if part)

    def load(self) -> Any:
        """Import what the entry point names; whatever the import raises goes on."""
        return self.entry_point.load()


def discover(group: str) -> list[Found]:
    """Return the entry points of a group in plugin order: ours in their metadata's order, then the others by name.

    The order of directories on sys.path must not decide the order of plugins, so the others are sorted.

    Args:
        group: the entry-point group.
    """
    from importlib.metadata import entry_points

    known: dict[int, tuple[str, str]] = {}
    points = list(entry_points(group=group))
    for point in points:
        if id(point.dist) not in known:  # reading the metadata is most of the cost: once per distribution
            known[id(point.dist)] = _name_and_version(point)
    found = [Found(point.name, point.value, *known[id(point.dist)], point) for point in points]
    ours = [one for one in found if one.builtin]
    others = sorted((one for one in found if not one.builtin), key=lambda one: (one.name, one.distribution, one.value))
    return list(dict.fromkeys(ours + others))


def _name_and_version(point: EntryPoint) -> tuple[str, str]:
    try:
        metadata = point.dist.metadata if point.dist is not None else None
    except Exception:  # a broken installation: the entry point is still there
        metadata = None
    return (metadata["Name"] or "", metadata["Version"] or "") if metadata is not None else ("", "")


@cache
def load_loop(name: str) -> Any:
    """Return the loop of this name: what is called with (harness, spec, session) and makes an agent.

    Args:
        name: of an entry point of group `checkrein.loops`, as the config's `loop` says it.

    Raises:
        ConfigError: there is none or more than one of this name, or it fails to import.
    """
    if name == "default":
        # Ours comes with us: reading the metadata of all that is installed to find it would cost start-up time.
        module, _, attribute = DEFAULT_LOOP.partition(":")
        return getattr(import_module(module), attribute)
    return load_named(LOOPS, name, what="loop", path="loop")


def load_named(group: str, name: str, *, what: str, path: str | None = None, found: Iterable[Found] = ()) -> Any:
    """Import the one entry point of this name.

    Args:
        group: the entry-point group.
        name: the entry point's name.
        what: the word for it in messages, as `loop`.
        path: the config key that names it.
        found: entry points to choose from instead of the installed ones.

    Raises:
        ConfigError: there is none or more than one of this name, or it fails to import.
    """
    offered = list(found) or discover(group)
    named = [one for one in offered if one.name == name]
    if not named:
        known = sorted({one.name for one in offered})
        raise ConfigError(
            f"expected one of the {what}s {', '.join(known) or '(none installed)'}, "
            f"got {name!r}{did_you_mean(name, known)}; install what brings it (group {group})",
            path=path,
        )
    if len(named) > 1:
        both = " and ".join(one.origin for one in named)
        raise ConfigError(f"expected one {what} named {name!r}, got it from {both}; uninstall one of them", path=path)
    try:
        return named[0].load()
    except Exception as error:
        raise ConfigError(
            f"{what} {name!r} of {named[0].origin} ({named[0].value}) cannot be imported: "
            f"{type(error).__name__}: {error}",
            path=path,
        ) from error
