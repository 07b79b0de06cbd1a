"""What the tests of rules share: calls to judge, and the three questions that are asked of a rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from checkrein.calls import Call
from checkrein_permissions.rules import exact_rule as exact
from checkrein_permissions.rules import parse_rule
from checkrein_permissions.subject import Subject


def call_of(name: str, **arguments: Any) -> Call:
    return Call("c1.1.1", name, arguments, 1, 1)


def run(command: Any, **more: Any) -> Call:
    return call_of("shell", command=command, **more)


def exact_rule(call: Call, workspace: Path) -> str | None:
    return exact(Subject(call, workspace))


def allows(rule: str, call: Call, workspace: Path) -> bool | None:
    return parse_rule(rule).matches(Subject(call, workspace), broad=False)


def denies(rule: str, call: Call, workspace: Path) -> bool | None:
    return parse_rule(rule).matches(Subject(call, workspace), broad=True)


__all__ = ["allows", "call_of", "denies", "exact_rule", "run"]
