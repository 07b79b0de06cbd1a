"""The balance of a transcript, whatever its format: each call answered once, at once, in order; each id once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from checkrein.derive import WORDS, is_object

from .model import BARRIERS, Change, Item, Problem

__all__ = ["Balanced", "balance"]

LOST = WORDS["OUTCOME_UNKNOWN"]


class Balanced:
    """What balancing found and did.

    Attributes:
        problems: what was wrong.
        changes: what was done about it.
        items: the balanced items.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.changes: list[Change] = []
        self.items: list[Item] = []

    def found(self, line: int, kind: str, message: str, change: str) -> None:
        """Note a problem and what is done about it."""
        self.problems.append(Problem(line, kind, message))
        self.changes.append(Change(line, change))


class _Group:
    """An assistant's calls with their results."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.last = item  # what its results are put behind
        self.results: list[Item | None] = [None] * len(item.calls)
        self.arrived: list[Item] = []
        self.late: list[Item] = []  # results that came behind another message

    @property
    def in_place(self) -> bool:
        """Whether every call is answered, behind it and in its order."""
        return not self.late and self.results == self.arrived


_Place: TypeAlias = tuple[_Group, int]


def balance(items: Sequence[Item]) -> Balanced:
    """Return the balanced form of a transcript's items; the items themselves are changed.

    Args:
        items: in the file's order.

    Returns:
        The problems by line, the changes, and the items in their new order.
    """
    out = Balanced()
    _name_calls(items, out)
    groups = _match(items, out)
    moved = {id(result) for group in groups for result in _settle(group, out)}
    behind = {id(group.last): group for group in groups}
    for item in items:
        if item.kind != "result" or (item.call is not None and id(item) not in moved):
            out.items.append(item)
        group = behind.get(id(item))
        if group is not None:
            out.items += [result for result in group.results if result is not None and id(result) in moved]
    out.problems.sort(key=lambda problem: problem.line)
    out.changes.sort(key=lambda change: change.line)
    return out


def _name_calls(items: Sequence[Item], out: Balanced) -> None:
    """Give every call an id of its own, and arguments that are an object."""
    used = {call.id: 2 for item in items for call in item.calls}
    seen: set[str] = set()
    for item in items:
        for call in item.calls:
            call.stored_id = call.id
            if not call.id:
                call.id = _free("call", used)
                out.found(item.line, "missing id", f"a call of {call.name!r} has no id", f"named it {call.id}")
                item.changed = True
            elif call.id in seen:
                call.id = _free(call.id, used)
                message = f"the id {call.stored_id!r} is used by an earlier call too"
                out.found(item.line, "duplicate id", message, f"renamed the later one to {call.id}")
                item.changed = True
            seen.add(call.id)
            _convert(item, call.odd, call.id, out)
            if not is_object(call.arguments):
                shown = call.arguments[:60]
                message = f"the arguments of {call.id} are no JSON object: {shown!r}"
                out.found(item.line, "arguments", message, f"replaced the arguments of {call.id} by {{}}")
                call.arguments = "{}"
                item.changed = True


def _convert(item: Item, odd: str, call_id: str, out: Balanced) -> None:
    """Have a row written anew in which something stands as another type than the format has."""
    if odd:
        message = f"{odd} of {call_id!r} is not of the type that the format has"
        out.found(item.line, "type", message, f"wrote {odd} of {call_id} as the type that the format has")
        item.changed = True


def _free(stem: str, used: dict[str, int]) -> str:
    """An id nobody has; `used` says of each id which number to try behind it, so that equal ones cost linear time."""
    number = used.get(stem, 2)
    while f"{stem}_{number}" in used:
        number += 1
    used[stem] = number + 1
    used[f"{stem}_{number}"] = 2
    return f"{stem}_{number}"


def _match(items: Sequence[Item], out: Balanced) -> list[_Group]:
    """Find the call of each result: of the latest answer that has one with its id and no result yet, the first."""
    groups: list[_Group] = []
    waiting: dict[str, list[_Place]] = {}  # by id, the next one last; a result without an id takes any of them
    answered: set[str] = set()
    behind: _Group | None = None  # the group whose results may stand here
    for item in items:
        if item.kind in BARRIERS:
            behind = None
        if item.calls:
            behind = _Group(item)
            groups.append(behind)
            for index in reversed(range(len(item.calls))):
                for call_id in {"", item.calls[index].stored_id}:
                    waiting.setdefault(call_id, []).append((behind, index))
        if item.kind == "mark" and behind is not None:
            behind.last = item
        if item.kind != "result":
            continue
        place = _unanswered(waiting.get(item.call_id, []))
        if place is None:
            kind = "duplicate result" if item.call_id in answered else "orphan result"
            why = "is answered already" if item.call_id in answered else "was never made"
            message = f"a result for {item.call_id!r}: that call {why}"
            out.found(item.line, kind, message, f"left out the result for {item.call_id!r}")
            continue
        group, index = place
        _assign(group, index, item, out)
        answered.add(item.call_id)
        if group is not behind:
            group.late.append(item)
        else:
            group.last = item
    return groups


def _unanswered(places: list[_Place]) -> _Place | None:
    while places:
        group, index = places.pop()
        if group.results[index] is None:
            return group, index
    return None


def _assign(group: _Group, index: int, item: Item, out: Balanced) -> None:
    call = item.call = group.item.calls[index]
    group.results[index] = item
    group.arrived.append(item)
    if not item.call_id and call.stored_id:
        out.found(item.line, "missing id", "a result does not say whose it is", f"took it as the one of {call.id}")
    item.changed = item.changed or item.call_id != call.id
    _convert(item, item.odd, call.id, out)


def _settle(group: _Group, out: Balanced) -> list[Item]:
    """Answer what is unanswered; returns the results that have to be placed, none if all stand where they belong."""
    if group.in_place:
        return []
    line = group.item.line
    in_order = [result for result in group.results if result is not None]
    for result in group.late or ([] if in_order == group.arrived else group.arrived[:1]):
        name = result.call.id if result.call else ""
        message = f"the result of {name} does not follow its call (line {line}) at once and in the calls' order"
        out.found(result.line, "wrong order", message, f"put the results of line {line} behind it, in its order")
    for index, call in enumerate(group.item.calls):
        if group.results[index] is None:
            message = f"the call {call.id} of {call.name!r} has no result"
            out.found(line, "orphan call", message, f"answered {call.id} with an error result: {LOST!r}")
            group.results[index] = Item("result", None, text=LOST, call_id=call.id, call=call, changed=True)
    return [result for result in group.results if result is not None]
