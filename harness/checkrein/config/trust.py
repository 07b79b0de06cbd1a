"""What may a project's file say that was merely found? Not where keys go; and what it loosens is said aloud.

Such a file comes from a stranger's repository as easily as from a friend's. Keys that a plugin names in `needs_trust`,
as a host that gets a key, stop the start until somebody names or trusts the file; the loop, the switches of `[plugins]`
and the keys a plugin names in `loosens`, as rules for tools, are in force with a warning. Why so: docs/decisions/0009.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from checkrein.errors import ConfigError

from .convert import join
from .layers import LoadedConfig, user_file
from .types import SWITCHES

__all__ = ["beyond", "check_found", "forget", "trust"]

Needs: TypeAlias = Collection[str] | Callable[[Mapping[str, Any]], Collection[str]]


FILE_NAME = "trusted.json"
EVERY_KEY = "*"
MOST_SHOWN = 5


def check_found(
    loaded: LoadedConfig, plugins: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> str | None:
    """Refuse a project's file that was merely found and says who gets which key.

    Args:
        loaded: the configuration.
        plugins: the loaded plugins by name; `needs_trust` and `loosens` of each are read.
        environ: the environment; None takes the process's.

    Returns:
        What is to be said aloud of a file that loosens guards, None if there is nothing.

    Raises:
        ConfigError: nobody named the file or trusts what it says now.
    """
    if loaded.named or loaded.project_file is None:
        return None
    stops = beyond(loaded.project, {name: getattr(each, "needs_trust", ()) for name, each in plugins.items()})
    loose = [*_switches(loaded.project)]
    loose += beyond(loaded.project, {name: getattr(each, "loosens", ()) for name, each in plugins.items()})
    if not (stops or loose):
        return None
    user = _user_file(environ)  # without a home nothing can have been trusted
    if user is not None and _trusted(user.with_name(FILE_NAME)).get(_place(loaded)) == digest(loaded.project):
        return None
    if stops:
        raise ConfigError(
            f"expected a file that you trust to set {_shown(stops)}, got one that was found in this folder; read it,"
            f" then run `checkrein config trust`, or name it: --config {loaded.project_file.name}",
            file=str(loaded.project_file),
        )
    return (
        f"{loaded.project_file} was found in this folder and sets {_shown(loose)};"
        " read it, then `checkrein config trust` ends this warning"
    )


def _shown(paths: list[str]) -> str:
    return ", ".join(paths[:MOST_SHOWN]) + (", ..." if len(paths) > MOST_SHOWN else "")


def trust(loaded: LoadedConfig, environ: Mapping[str, str] | None = None) -> Path:
    """Remember that somebody trusts the project's file with what it says of plugins now.

    Args:
        loaded: the configuration; it has a project's file.
        environ: the environment; None takes the process's.

    Returns:
        Where that is remembered.

    Raises:
        ConfigError: there is no place to remember it.
    """
    store = _store(environ)
    _write(store, _trusted(store) | {_place(loaded): digest(loaded.project)})
    return store


def forget(loaded: LoadedConfig, environ: Mapping[str, str] | None = None) -> Path:
    """Trust the project's file no longer; arguments, result and error are those of `trust`."""
    store = _store(environ)
    known = _trusted(store)
    if known.pop(_place(loaded), None) is not None:
        _write(store, known)
    return store


def beyond(document: Mapping[str, Any], needed: Mapping[str, Needs]) -> list[str]:
    """Return the paths in a file's document that are among these keys of plugins.

    Args:
        document: a whole configuration without problems.
        needed: by plugin, keys of its table, `*` for all; or a function that picks them from a table.
    """
    paths = [*_in_tables(document.get("plugins", {}), "plugins", needed)]
    for index, agent in enumerate(document.get("agents", ())):
        paths += _in_tables(agent.get("plugins", {}), f"agents[{index}].plugins", needed)
    return paths


def _in_tables(tables: Mapping[str, Any], at: str, needed: Mapping[str, Needs]) -> Iterator[str]:
    for name, needs in needed.items():
        table = tables.get(name, {})
        keys = needs(table) if callable(needs) else needs
        for key in table:
            if key in keys or EVERY_KEY in keys:
                yield join(at, (name, key))


def _switches(document: Mapping[str, Any]) -> Iterator[str]:
    """The loop and the switches of `[plugins]`: they could leave a guard out."""
    if "loop" in document:
        yield "loop"
    for key in document.get("plugins", {}):
        if key in SWITCHES:
            yield join("plugins", (key,))


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a file says of loop and plugins: that is trusted, whatever else changes in it."""
    agents = [(agent["id"], agent["plugins"]) for agent in document.get("agents", ()) if agent.get("plugins")]
    said = {"loop": document.get("loop"), "plugins": document.get("plugins", {}), "agents": agents}
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()


def _place(loaded: LoadedConfig) -> str:
    return os.path.realpath(loaded.project_file or loaded.root)


def _user_file(environ: Mapping[str, str] | None) -> Path | None:
    return user_file(os.environ if environ is None else environ)


def _store(environ: Mapping[str, str] | None) -> Path:
    user = _user_file(environ)
    if user is None:
        raise ConfigError(
            "expected a folder of yours to remember trusted files in, got none; set CHECKREIN_CONFIG_HOME, or name"
            " the file with --config"
        )
    return user.with_name(FILE_NAME)


def _trusted(store: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(store.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"expected a JSON object of trusted files, got: {error}; repair or delete it", file=str(store)
        ) from error


def _write(store: Path, known: Mapping[str, str]) -> None:
    """Replace the file at once; a temporary file is for its owner only."""
    import tempfile  # every start with a found file imports this module, hardly one writes

    store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=store.parent)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(known, order="deterministic")) + b"\n")
    Path(name).replace(store)
