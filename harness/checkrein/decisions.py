"""What plugins answer with: votes of guards and continuations, and retries."""

from __future__ import annotations

import math
from typing import TypeAlias

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from .messages import Block

__all__ = ["Allow", "Ask", "Deny", "GuardVote", "Continue", "Stop", "ContinuationVote", "Retry", "check_members"]


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


class Deny(Struct, frozen=True):
    """The call must not run; `reason` is what the model reads."""

    reason: str


GuardVote: TypeAlias = Deny | Ask | Allow | None


class Continue(Struct, frozen=True):
    """The turn goes on with `content`, logged as context from the plugin; it must not be empty (T5)."""

    reason: str
    content: str | list[Block]


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


ContinuationVote: TypeAlias = Stop | Continue | None


class Retry(Struct, frozen=True):
    """Send the request again after `after_s` seconds, as a new attempt of the same step (M9)."""

    after_s: float = 0.0


def check_members(vote: Struct) -> None:
    """Check what Python does not: a vote's members are logged, and the log must be readable (L5).

    Raises:
        TypeError: a member is of another type than it is declared, or a number that is not finite.
    """
    members = asdict(vote)
    try:
        convert(members, type(vote))
    except ValidationError as exc:
        raise TypeError(f"a {type(vote).__name__} that holds the wrong type: {exc}") from None
    for name, value in members.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise TypeError(f"a {type(vote).__name__} whose {name} is {value}: expected a finite number")
