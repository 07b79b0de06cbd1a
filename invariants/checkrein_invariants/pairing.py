"""What all validators share: the pairing of calls and results, and checks of small parts."""

from __future__ import annotations

import re
from typing import Any

from checkrein.text import decode_json

__all__ = ["Pairing", "check_arguments", "check_ends", "check_match", "check_text", "objects", "word"]


class Pairing:
    """Calls and their results: each id once, each call answered directly, in one run of results."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        self.seen: set[str] = set()
        self.owed: dict[str, str] = {}  # id -> where the call is
        self.done: set[str] = set()

    def call(self, call_id: Any, where: str) -> None:
        """A call is made."""
        if not isinstance(call_id, str) or not call_id:
            self.problems.append(f"{where}: expected a call id, got {call_id!r}")
            return
        if call_id in self.seen:
            self.problems.append(f"{where}: call id {call_id!r} is used twice")
        self.seen.add(call_id)
        self.owed[call_id] = where

    def result(self, call_id: Any, where: str) -> None:
        """A result comes."""
        if isinstance(call_id, str) and self.owed.pop(call_id, None) is not None:
            self.done.add(call_id)
        elif isinstance(call_id, str) and call_id in self.done:
            self.problems.append(f"{where}: a second result of call {call_id!r}")
        else:
            self.problems.append(f"{where}: result of {call_id!r:.80}, which is no call of the answer before it")

    def other(self, where: str) -> None:
        """Something that is no result comes: nothing may be owed any more."""
        for call_id, place in self.owed.items():
            self.problems.append(f"{where}: call {call_id!r} ({place}) has no result directly after its answer")
        self.owed.clear()
        self.done.clear()


def word(value: Any) -> str:
    """A word from a closed set, or what stands in its place."""
    return value if isinstance(value, str) else f"{value!r:.40}"


def check_arguments(text: Any, where: str, problems: list[str]) -> None:
    """A call's arguments are text that holds one JSON object."""
    try:
        value = decode_json(text) if isinstance(text, str) else None
    except ValueError as exc:
        problems.append(f"{where}: expected arguments that are a JSON object, got {exc}")
        return
    if not isinstance(value, dict):
        problems.append(f"{where}: expected arguments that are a JSON object as text, got {text!r:.80}")


def check_match(pattern: re.Pattern[str], value: Any, what: str, where: str, problems: list[str]) -> None:
    """An id or a name keeps to its alphabet and length."""
    if not isinstance(value, str) or pattern.match(value) is None:
        problems.append(f"{where}: expected {what} like {pattern.pattern[:-2]}, got {value!r:.80}")


def check_text(value: Any, where: str, problems: list[str]) -> None:
    """Text is there and not empty."""
    if not isinstance(value, str) or not value:
        problems.append(f"{where}: expected text, got {value!r:.80}")


def objects(value: Any, what: str, problems: list[str]) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a list with their indices; everything else is a problem."""
    if not isinstance(value, list) or not value:
        problems.append(f"{what}: expected a list that is not empty, got {value!r:.80}")
        return []
    good = []
    for i, item in enumerate(value):
        if isinstance(item, dict):
            good.append((i, item))
        else:
            problems.append(f"{what}[{i}]: expected an object, got {item!r:.80}")
    return good


def check_ends(first: Any, last: Any, problems: list[str]) -> None:
    """A conversation begins with the user and ends with the user or a result, by their roles."""
    if first != "user":
        problems.append(f"the beginning: expected a user message first, got {first!r}")
    if last not in ("user", "tool"):
        problems.append(f"the end: expected a user message or a result last, got {last!r}")
