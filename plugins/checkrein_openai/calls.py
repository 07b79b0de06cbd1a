"""Which call a tool-call delta belongs to, though servers leave out, repeat or retype its labels (M7).

Pure. A slot is a call of the model; index and id are hints that lead to it. The order of arrival
is the model's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from checkrein.chunks import CallChunk
from checkrein.text import clean

from .wirejson import dumps, is_object, whole

__all__ = ["CallSlots", "Slot", "MAX_CALLS"]

MAX_CALLS = 1_024
_KNOWN = frozenset(("index", "id", "type", "function", "name", "arguments"))


class Slot(Struct):
    """One call while it streams.

    Attributes:
        block: its index among the answer's blocks.
        index: the server's index, if it sends any.
        id: the server's id, if it sends any.
        name: the tool's name on the wire, empty until it comes.
        pieces: the argument text so far.
        extra: members we do not know, to go back as they came.
    """

    block: int
    index: int | None
    id: str | None
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def complete(self) -> bool:
        """Whether the arguments so far are one whole JSON object."""
        return bool(self.pieces) and self.pieces[-1].rstrip().endswith("}") and is_object("".join(self.pieces))


class CallSlots:
    """The calls of one stream.

    Args:
        new_block: opens a block and returns its index.
        names: our names of the tools whose name had to be changed for the wire.
    """

    def __init__(self, new_block: Callable[[], int], names: Mapping[str, str]) -> None:
        self.slots: list[Slot] = []
        self._new_block = new_block
        self._names = names
        self._by_index: dict[int, Slot] = {}
        self._by_id: dict[str, Slot] = {}

    def push(self, entry: Any, *, fresh: bool = False) -> CallChunk | None:
        """Take one delta of a call; None if it says nothing.

        Args:
            entry: the delta, as the server sent it.
            fresh: it is known to begin a call, if it has a name.

        Raises:
            ValueError: the answer has more calls than MAX_CALLS.
        """
        if not isinstance(entry, dict):
            return None
        function = entry.get("function")
        inner = function if isinstance(function, dict) else entry
        index, id_ = _index(entry.get("index")), _id(entry.get("id"))
        name = inner.get("name")
        name = clean(name)[0] if isinstance(name, str) else ""
        arguments = _arguments(inner.get("arguments"))
        extra = {key: value for key, value in entry.items() if key not in _KNOWN and value is not None}
        if index is None and id_ is None and not (name or arguments or extra):
            return None
        slot = self._slot(index, id_, name, arguments, fresh)
        slot.extra.update(extra)
        if arguments:
            slot.pieces.append(arguments)
        if name and name != slot.name:
            slot.name += name
        return CallChunk(slot.block, slot.id, self._names.get(slot.name, slot.name) or None, arguments)

    def _slot(self, index: int | None, id_: str | None, name: str, arguments: str, fresh: bool) -> Slot:
        slot = self._find(index, id_)
        if slot is None or (fresh and name) or _is_another(slot, index, id_, name, arguments):
            if len(self.slots) >= MAX_CALLS:
                raise ValueError(f"expected at most {MAX_CALLS} calls in one answer, got more")
            slot = Slot(self._new_block(), index, id_)
            self.slots.append(slot)
        if index is not None:
            slot.index = index
            self._by_index[index] = slot
        if id_ is not None:
            slot.id = slot.id or id_
            self._by_id[id_] = slot
        return slot

    def _find(self, index: int | None, id_: str | None) -> Slot | None:
        if index is not None and (slot := self._by_index.get(index)) is not None:
            return slot
        if id_ is not None:
            slot = self._by_id.get(id_)
            # One id under two indices is two calls: ids are only labels.
            return slot if slot is not None and (index is None or slot.index is None) else None
        last = self.slots[-1] if self.slots else None
        if index is not None and last is not None and last.index is not None:
            return None
        return last


def _is_another(slot: Slot, index: int | None, id_: str | None, name: str, arguments: str) -> bool:
    """Whether a delta that leads to a slot by its labels begins another call all the same."""
    if not name:
        return False
    if id_ is not None and slot.id is not None and id_ != slot.id:
        return True  # servers that give every call the index 0
    if not slot.name:
        return False  # the arguments came before the name
    if name != slot.name:
        return bool(slot.pieces) or index is None  # else a name in pieces
    # The name again: some repeat it with each delta; a second whole object is a second call.
    return arguments.lstrip().startswith("{") and slot.complete()


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    return whole(value)


def _id(value: Any) -> str | None:
    if isinstance(value, str):
        return clean(value)[0] or None
    number = whole(value)
    return None if number is None else str(number)


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value)
