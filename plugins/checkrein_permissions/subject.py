"""What a call is about, as the rules see it: its commands, paths and texts, each looked at once per question."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from checkrein.calls import Call

from .commands import Command, parse
from .paths import Canonical, canonical

__all__ = ["Leaf", "Subject", "kind_of"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COMMAND_NAMES = _words("command cmd commands argv command_line shell_command")
_FURTHER_NAMES = _words("args arguments")  # beside a command: its further words
_PATH_NAMES = _words(
    "path paths file files filename filenames file_name filepath directory directories dir folder root cwd workdir "
    "source src destination dest dst target"
)
_PATH_ENDS = ("_path", "_paths", "_file", "_files", "_dir", "_directory", "_folder", "_filename")


class Leaf(NamedTuple):
    """A value in a call's arguments.

    Attributes:
        argument: the nearest name above it.
        kind: `command`, `path` or `text`.
        value: a str, number or bool.
    """

    argument: str
    kind: str
    value: Any


def kind_of(argument: str) -> str:
    """Return what an argument of this name holds: `command`, `path` or `text`."""
    name = argument.casefold()
    if name in _COMMAND_NAMES:
        return "command"
    return "path" if name in _PATH_NAMES or name.endswith(_PATH_ENDS) else "text"


class Subject:
    """One call under question. Paths are resolved when first asked for, and stay for this question only.

    Args:
        call: exactly what would run.
        workspace: the folder relative paths are resolved in.
    """

    def __init__(self, call: Call, workspace: Path) -> None:
        self.call = call
        self._workspace = workspace
        self._paths: dict[str, Canonical | None] = {}
        self._commands: dict[str, Command] = {}

    @cached_property
    def leaves(self) -> list[Leaf]:
        """The values in its arguments; most calls are judged without a look at them."""
        return list(_leaves(self.call.arguments, "", "text"))

    def of(self, kind: str) -> list[Leaf]:
        """The values of one kind."""
        return [leaf for leaf in self.leaves if leaf.kind == kind]

    def path(self, value: Any) -> Canonical | None:
        """Return where a path leads, None if that cannot be told."""
        if not isinstance(value, str):
            return None
        if value not in self._paths:
            self._paths[value] = canonical(value, self._workspace)
        return self._paths[value]

    def command(self, value: Any) -> Command:
        """Return a parsed command."""
        text = value if isinstance(value, str) else "\0"  # what is no text cannot be read
        if text not in self._commands:
            self._commands[text] = parse(text)
        return self._commands[text]


def _leaves(value: Any, name: str, kind: str) -> Iterator[Leaf]:
    if isinstance(value, dict):
        for key, item in value.items():
            kind = kind_of(key)
            if kind == "command" and isinstance(item, str):
                item = " ".join((item, *(_further(value[each]) for each in value if each.casefold() in _FURTHER_NAMES)))
            yield from _leaves(item, key, kind)
    elif isinstance(value, list):
        if kind == "command" and value and all(isinstance(item, str) for item in value):
            yield Leaf(name, kind, shlex.join(value))
        else:
            for item in value:
                yield from _leaves(item, name, kind)
    elif value is not None:
        yield Leaf(name, kind, value)


def _further(value: Any) -> str:
    """The words beside a command as its text goes on with them; what is neither a text nor texts cannot be read."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return shlex.join(value)
    return value if isinstance(value, str) else "\0" if value else ""
