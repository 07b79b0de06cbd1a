"""Where the configuration comes from: defaults < user file < project file < environment < command line.

Each layer is judged by itself, so that an error names its own file or variable; then they are laid over each
other, tables key by key, agents by id. The shape is types.py.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from checkrein.errors import ConfigError

from .check import problems_in
from .convert import Problem, as_error, convert, join
from .environment import environment_layers, interpolate, nested
from .types import HarnessConfig, plain, shaped

__all__ = ["FILE_NAME", "LoadedConfig", "load_config", "user_file"]

FILE_NAME = "checkrein.toml"
MOST_BYTES = 1 << 20
COMMAND_LINE = "the command line"

Steps = tuple[Any, ...]


class LoadedConfig(Struct, frozen=True):
    """A configuration and where it came from.

    Attributes:
        config: the effective configuration.
        files: the files that were read, the weakest first.
        hash: SHA-256 in hex of the effective configuration, with `${NAME}` in place of what was interpolated.
        project_file: the project's file, None without one.
        root: the folder that relative paths of the config start from.
        origins: the file, variable or command line that set a key, by path (`agents[0].model`).
        document: the effective configuration as a plain document, with `${NAME}` as in `hash`.
        project: the project's file alone, as it was read.
        named: whether somebody named the project's file, or it is the user's; else it was merely found (trust.py).
    """

    config: HarnessConfig
    files: tuple[Path, ...]
    hash: str
    project_file: Path | None
    root: Path
    origins: Mapping[str, str]
    document: Mapping[str, Any]
    project: Mapping[str, Any]
    named: bool

    @property
    def found(self) -> bool:
        """Whether there was any config file."""
        return bool(self.files)


class _Merged(Struct):
    """The layers so far: values, who set them, and the raw text of what was interpolated."""

    document: dict[str, Any] = field(default_factory=dict)
    origins: dict[Steps, str] = field(default_factory=dict)
    raw: dict[Steps, str] = field(default_factory=dict)


def load_config(
    path: str | Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> LoadedConfig:
    """Read, check and lay over each other all layers of the configuration.

    Args:
        path: the project's file, or the folder it is in; None takes `checkrein.toml` in `cwd`, if it is there.
        overrides: the command line's values, nested or by dotted path (`agents.main.model`), agents by id;
            None is no value.
        environ: the environment; None takes the process's.
        cwd: the working folder; None takes the process's.

    Returns:
        The configuration; with no file at all it is the defaults', with one agent `main`.

    Raises:
        ConfigError: `path` is not there, or any layer has a problem; all problems of the first such layer are told.
    """
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    project = _project_file(path, cwd)
    user = user_file(environ)
    if user is not None and not user.is_file():
        user = None
    own = user is not None and project is not None and user.samefile(project)
    if own:
        user = None
    merged = _Merged()
    said: dict[str, Any] = {}
    for file in (each for each in (user, project) if each is not None):
        said = read_toml(file)
        _lay(merged, said, str(file), environ, interpolated=file is not project)
    for label, document in environment_layers(environ):
        _lay(merged, _agents_as_list(document), label, environ, interpolated=True)
    for key, value in _plain(overrides or {}).items():
        _lay(merged, _agents_as_list(nested(key.split("."), value)), COMMAND_LINE, environ, interpolated=True)
    config: HarnessConfig = convert(shaped(merged.document), HarnessConfig)
    document = plain(config)
    for steps, text in merged.raw.items():
        _put(document, steps, text)
    return LoadedConfig(
        config,
        tuple(each for each in (user, project) if each is not None),
        hashlib.sha256(msgspec.json.encode(document, order="deterministic")).hexdigest(),
        project,
        (project.parent if project is not None else cwd).absolute(),
        {join("", steps): label for steps, label in merged.origins.items()},
        document,
        said if project is not None else {},
        path is not None or own,
    )


def user_file(environ: Mapping[str, str]) -> Path | None:
    """Return where the user's file would be, None on a system without a home.

    Args:
        environ: `CHECKREIN_CONFIG_HOME` names the folder; else it is the platform's.
    """
    if home := environ.get("CHECKREIN_CONFIG_HOME"):
        return Path(home).expanduser() / FILE_NAME
    if sys.platform == "win32":
        base = environ.get("APPDATA")
        return Path(base) / "checkrein" / FILE_NAME if base else None
    if base := environ.get("XDG_CONFIG_HOME"):
        return Path(base) / "checkrein" / FILE_NAME
    home = environ.get("HOME")
    return Path(home) / ".config" / "checkrein" / FILE_NAME if home else None


def read_toml(file: Path) -> dict[str, Any]:
    """Read a TOML file of at most 1 MiB.

    Raises:
        ConfigError: it cannot be read, is too long, no UTF-8 or no TOML; with line and column.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"expected a readable file, got {error.strerror or error}", file=str(file)) from error
    if len(data) > MOST_BYTES:
        raise ConfigError(f"expected at most {MOST_BYTES} bytes of configuration, got more", file=str(file))
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"expected UTF-8, got another encoding in line {line}", file=str(file)) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"expected TOML, got a syntax error: {error}", file=str(file)) from error
    except RecursionError as error:
        raise ConfigError("expected TOML, got arrays nested too deep", file=str(file)) from error


def _project_file(path: str | Path | None, cwd: Path) -> Path | None:
    if path is None:
        file = cwd / FILE_NAME
        return file if file.is_file() else None
    file = cwd / Path(path).expanduser()
    if file.is_dir():
        file /= FILE_NAME
    if not file.is_file():
        raise ConfigError(
            "expected a config file, got none; give another path, or none for the defaults", file=str(file)
        )
    return file


def _lay(
    merged: _Merged, document: dict[str, Any], label: str, environ: Mapping[str, str], *, interpolated: bool
) -> None:
    raw: dict[Steps, str] = {}
    problems: list[Problem] = []
    document = interpolate(document, environ if interpolated else None, (), raw, problems)
    problems += problems_in(document)
    if problems:
        raise as_error(problems, label)
    _merge(merged, merged.document, document, (), (), label, raw)


def _merge(
    merged: _Merged, into: Any, new: Mapping[str, Any], at: Steps, here: Steps, label: str, raw: Mapping[Steps, str]
) -> None:
    """Lay a table over another. `at` is the place in the result, `here` the place in the layer."""
    for key, value in new.items():
        place, own = (*at, key), (*here, key)
        if place == ("agents",):
            _merge_agents(merged, into.setdefault(key, []), value, label, raw)
        elif isinstance(value, Mapping):
            if not isinstance(into.get(key), dict):
                into[key] = {}
            _merge(merged, into[key], value, place, own, label, raw)
        else:
            if place == ("plugins", "block"):  # what one layer blocks, no other lets in again
                value = list(dict.fromkeys((*into.get(key, ()), *value)))
            into[key] = value
            merged.origins[place] = label
            for steps in [steps for steps in merged.raw if steps[: len(place)] == place]:
                del merged.raw[steps]
            merged.raw |= {
                (*place, *steps[len(own) :]): text for steps, text in raw.items() if steps[: len(own)] == own
            }


def _merge_agents(
    merged: _Merged, into: list[Any], new: list[dict[str, Any]], label: str, raw: Mapping[Steps, str]
) -> None:
    """An agent whose id is there is laid over that one; the others are added."""
    for own, agent in enumerate(new):
        index = next((index for index, each in enumerate(into) if each["id"] == agent["id"]), len(into))
        if index == len(into):
            into.append({})
        _merge(merged, into[index], agent, ("agents", index), ("agents", own), label, raw)


def _agents_as_list(document: dict[str, Any]) -> dict[str, Any]:
    """The environment and the command line give agents by id."""
    agents = document.get("agents")
    if not isinstance(agents, dict) or not all(isinstance(each, dict) for each in agents.values()):
        return document
    return {**document, "agents": [{"id": name, **agent} for name, agent in agents.items()]}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items() if member is not None}
    return [_plain(member) for member in value] if isinstance(value, (list, tuple)) else value


def _put(document: Any, steps: Steps, value: Any) -> None:
    for step in steps[:-1]:
        document = document[step]
    document[steps[-1]] = value
