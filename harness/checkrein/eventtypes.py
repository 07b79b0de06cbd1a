"""Event types that plugins bring (L6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from .events import FreeEvent

__all__ = ["EventType", "Balance"]


class Balance(Struct, frozen=True):
    """A balance rule: each `opens` event owes one `closes` event with the same value of `key`.

    Args:
        opens: the opening event's type.
        closes: the closing event's type.
        key: the member that pairs them.
        closing: pure function from the opening event to the closing event's members (besides the key),
            called when a turn is closed over an open pair; None gives the key alone.
    """

    opens: str
    closes: str
    key: str
    closing: Callable[[FreeEvent], dict[str, Any]] | None = None


class EventType(Struct, frozen=True):
    """A plugin's own event type.

    Args:
        name: `<plugin>/<word>`.
        model_visible: whether its member `message` {role, content} is part of the derived history.
        balance: the rule it opens, if any.
    """

    name: str
    model_visible: bool = False
    balance: Balance | None = None
