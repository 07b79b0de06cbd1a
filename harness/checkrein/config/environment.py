"""The environment as a layer of the configuration, and `${NAME}` in the values of the other layers.

    CHECKREIN_MODEL=openai:gpt-5                 a short name
    CHECKREIN__SESSION__STORE=memory             any key: sections and keys by two underscores, in lower case
    CHECKREIN__AGENTS__MAIN__MAX_STEPS=20        agents by id
    api_key = "${OPENAI_API_KEY}"                in the user's file, the environment and the command line

A project's file comes from a stranger's repository as easily as from a friend's: it may not read the environment.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from checkrein.errors import ConfigError

from .convert import Problem, join

__all__ = ["SHORT_NAMES", "environment_layers", "interpolate", "nested"]

PREFIX = "CHECKREIN__"
_NAME = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _text(value: str, name: str) -> Any:
    return value


def _names(value: str, name: str) -> Any:
    return [each for each in (part.strip() for part in value.split(",")) if each]


def _off(value: str, name: str) -> Any:
    if value.lower() in _YES:
        return False
    if value.lower() in _NO:
        return True
    raise ConfigError(f"expected 1 or 0, got {value!r}", file=f"environment variable {name}")


SHORT_NAMES: dict[str, tuple[tuple[str, ...], Callable[[str, str], Any]]] = {
    "CHECKREIN_MODEL": (("model",), _text),
    "CHECKREIN_LOOP": (("loop",), _text),
    "CHECKREIN_SESSION_STORE": (("session", "store"), _text),
    "CHECKREIN_PLUGINS_ALLOW": (("plugins", "allow"), _names),
    "CHECKREIN_PLUGINS_BLOCK": (("plugins", "block"), _names),
    "CHECKREIN_DISABLE_PLUGIN_AUTOLOAD": (("plugins", "autoload"), _off),
}
"""Variables that set one key each: the key's path, and how the text becomes its value."""


def environment_layers(environ: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a label and a document for each variable that sets a key; an empty variable sets none.

    Args:
        environ: the environment.

    Raises:
        ConfigError: a switch that is neither on nor off.
    """
    for name, (path, read) in SHORT_NAMES.items():
        if value := environ.get(name):
            yield f"environment variable {name}", nested(path, read(value, name))
    for name in sorted(environ):
        if name.startswith(PREFIX) and environ[name]:
            path = tuple(part.lower() for part in name.removeprefix(PREFIX).split("__"))
            yield f"environment variable {name}", nested(path, _value(environ[name]))


def nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return the document that holds one value at a path of keys."""
    for key in reversed(path):
        value = {key: value}
    document: dict[str, Any] = value
    return document


def _value(text: str) -> Any:
    """A TOML value if it is one, else the text itself."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return document["value"] if len(document) == 1 else text


def interpolate(
    value: Any, environ: Mapping[str, str] | None, steps: tuple[Any, ...], raw: dict[Any, str], problems: list[Problem]
) -> Any:
    """Return the value with `${NAME}` replaced in its texts, and `$${NAME}` made `${NAME}`.

    Args:
        value: a plain value.
        environ: where names are looked up; None where that is not allowed.
        steps: the place of the value.
        raw: is given the text as written, by place, of each text that something was looked up for.
        problems: is given what cannot be replaced.
    """
    if isinstance(value, dict):
        return {key: interpolate(each, environ, (*steps, key), raw, problems) for key, each in value.items()}
    if isinstance(value, list):
        return [interpolate(each, environ, (*steps, index), raw, problems) for index, each in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def replace(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return "${" + name + "}"
        raw[steps] = value
        if environ is None:
            problem = f"${{{name}}} is not replaced in a project's file; move this key to the user's file or the "
            problems.append(
                Problem(join("", steps), f"{problem}environment, or write $${{{name}}} for the text itself")
            )
        elif name not in environ:
            problem = f"expected the environment variable {name}, got none; set it, or write $${{{name}}}"
            problems.append(Problem(join("", steps), problem))
        return (environ or {}).get(name, "")

    return _NAME.sub(replace, value)
