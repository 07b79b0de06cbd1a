"""What plugins answer with: votes of guards and continuations, and retries."""

from __future__ import annotations

from math import isfinite
from typing import TypeAlias

from msgspec import Struct

from .messages import Block

__all__ = ["Allow", "Ask", "Deny", "GuardVote", "Continue", "Stop", "ContinuationVote", "Retry"]


_TEXT = (str,)
_MAYBE_TEXT = (str, type(None))
_NUMBER = (int, float)
_MAYBE_NUMBER = (*_NUMBER, type(None))


def _check(answer: Struct, **members: tuple[type, ...]) -> None:
    """Refuse a wrong member where the plugin makes it, in its own hook: later on it would be a failure of the loop."""
    for name, types in members.items():
        value = getattr(answer, name)
        if not isinstance(value, types):
            words = " or ".join(each.__name__ for each in types)
            raise TypeError(f"expected {type(answer).__name__}({name}=) of {words}, got {type(value).__name__}")
        if isinstance(value, float) and not isfinite(value):
            raise TypeError(f"expected {type(answer).__name__}({name}=) to be finite, got {value}")


class Allow(Struct, frozen=True):
    """The call may run, as far as this guard is concerned."""

    reason: str = ""


class Ask(Struct, frozen=True):
    """Somebody must allow the call.

    Args:
        summary: what is asked, for a person; control characters are escaped on screens.
        rule: the rule that an `allowed_rule` answer would remember.
    """

    summary: str
    rule: str | None = None

    def __post_init__(self) -> None:
        _check(self, summary=_TEXT, rule=_MAYBE_TEXT)


class Deny(Struct, frozen=True):
    """The call must not run; `reason` is what the model reads."""

    reason: str

    def __post_init__(self) -> None:
        _check(self, reason=_TEXT)


GuardVote: TypeAlias = Deny | Ask | Allow | None


class Continue(Struct, frozen=True):
    """The turn goes on with `content`, logged as context from the plugin; it must not be empty (T5)."""

    reason: str
    content: str | list[Block]

    def __post_init__(self) -> None:
        _check(self, reason=_TEXT)


class Stop(Struct, frozen=True):
    """The turn ends here: completed after a final answer, cancelled after tool calls (T5).

    Args:
        reason: why, logged.
        budget: which budget ran out, if one did; the cause is then `budget` instead of `hook`.
        limit: the budget's limit, in its own unit.
        used: how much was used, in the same unit.
    """

    reason: str
    budget: str | None = None
    limit: float | None = None
    used: float | None = None

    def __post_init__(self) -> None:
        _check(self, reason=_TEXT, budget=_MAYBE_TEXT, limit=_MAYBE_NUMBER, used=_MAYBE_NUMBER)


ContinuationVote: TypeAlias = Stop | Continue | None


class Retry(Struct, frozen=True):
    """Send the request again after `after_s` seconds, as a new attempt of the same step (M9)."""

    after_s: float = 0.0

    def __post_init__(self) -> None:
        _check(self, after_s=_NUMBER)
