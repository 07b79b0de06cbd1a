"""May a project's file say what reaches beyond its folder? Only one that somebody named or trusts.

A file that was merely found comes from a stranger's repository as easily as from a friend's. It may set agents,
models and limits; but not the loop and the switches of `[plugins]`, which could leave a guard out, and not the keys
a plugin names in `needs_trust`, as rules for tools and hosts that get a key. Why so: docs/decisions/0009.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from checkrein.errors import ConfigError

from .convert import join
from .layers import LoadedConfig, user_file
from .types import SWITCHES

__all__ = ["beyond", "forget", "refuse_untrusted", "trust"]

FILE_NAME = "trusted.json"
EVERY_KEY = "*"
MOST_SHOWN = 5


def refuse_untrusted(
    loaded: LoadedConfig, needs_trust: Mapping[str, Collection[str]], environ: Mapping[str, str] | None = None
) -> None:
    """Refuse a project's file that was merely found and says what reaches beyond its folder.

    Args:
        loaded: the configuration.
        needs_trust: by plugin, the keys of its table that need trust.
        environ: the environment; None takes the process's.

    Raises:
        ConfigError: nobody named the file or trusts what it says now.
    """
    if loaded.named or loaded.project_file is None:
        return
    paths = beyond(loaded.project, needs_trust)
    if not paths or _trusted(_store(environ)).get(_place(loaded)) == digest(loaded.project):
        return
    shown = ", ".join(paths[:MOST_SHOWN]) + (", ..." if len(paths) > MOST_SHOWN else "")
    raise ConfigError(
        f"expected a file that you trust to set {shown}, got one that was found in this folder; read it, then run"
        f" `checkrein config trust`, or name it: --config {loaded.project_file.name}",
        file=str(loaded.project_file),
    )


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


def beyond(document: Mapping[str, Any], needs_trust: Mapping[str, Collection[str]]) -> list[str]:
    """Return the paths in a file's document that need trust.

    Args:
        document: a whole configuration without problems.
        needs_trust: by plugin, the keys of its table that need trust; `*` is all.
    """
    tables = document.get("plugins", {})
    paths = ["loop"] if "loop" in document else []
    paths += [join("plugins", (key,)) for key in tables if key in SWITCHES]
    paths += _in_tables(tables, "plugins", needs_trust)
    for index, agent in enumerate(document.get("agents", ())):
        paths += _in_tables(agent.get("plugins", {}), f"agents[{index}].plugins", needs_trust)
    return paths


def _in_tables(tables: Mapping[str, Any], at: str, needs_trust: Mapping[str, Collection[str]]) -> Iterator[str]:
    for name, keys in needs_trust.items():
        for key in tables.get(name, ()):
            if key in keys or EVERY_KEY in keys:
                yield join(at, (name, key))


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a file says of loop and plugins: that is trusted, whatever else changes in it."""
    agents = [(agent["id"], agent["plugins"]) for agent in document.get("agents", ()) if agent.get("plugins")]
    said = {"loop": document.get("loop"), "plugins": document.get("plugins", {}), "agents": agents}
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()


def _place(loaded: LoadedConfig) -> str:
    return os.path.realpath(loaded.project_file or loaded.root)


def _store(environ: Mapping[str, str] | None) -> Path:
    user = user_file(os.environ if environ is None else environ)
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
