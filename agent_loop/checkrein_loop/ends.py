"""How turns end: the one place that names a reason (T4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from anyio import get_cancelled_exc_class

from checkrein.errors import GateClosed, PluginFault, ProviderError
from checkrein.events import Cause, Reason
from checkrein.owner import absorb, ours
from checkrein.text import clean, clean_json, describe

if TYPE_CHECKING:
    from .agent import LoopAgent

__all__ = ["StepFailed", "TurnCancelled", "checked_cause", "why", "of_provider"]


class StepFailed(Exception):
    """A step failed and said how."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message or reason.kind)
        self.reason = reason


class TurnCancelled(Exception):
    """A cancel was seen at a boundary where nothing awaits (C1)."""


def checked_cause(cause: Cause | str) -> Cause:
    """A cause as `turn/end` can hold it, its text cleaned (L9): one it could not hold would leave the turn open.

    Raises:
        TypeError, ValueError: it is no word and no Cause, or a member has another type.
    """
    if isinstance(cause, str):
        return Cause(clean(str.__str__(cause))[0])  # an enumeration's member would not be written
    if not isinstance(cause, Cause):
        raise TypeError(f"expected a word or a Cause, got {type(cause).__name__}")
    return msgspec.convert(clean_json(msgspec.to_builtins(cause))[0], Cause)


def why(agent: LoopAgent, exc: BaseException | None) -> Reason:
    """Name the reason for what left the turn; the order is the precedence of T4.

    Args:
        exc: what was raised; None when the turn's own scope took the cancellation.
    """
    if isinstance(exc, StepFailed):
        return exc.reason
    if isinstance(exc, PluginFault):
        return Reason("error", error="plugin", message=clean(str(exc))[0], plugin=exc.plugin)
    if isinstance(exc, GateClosed):
        return Reason("error", error="store", message=describe(exc))
    if isinstance(exc, ProviderError):
        return of_provider(exc)
    if isinstance(exc, KeyboardInterrupt):
        agent.hold(exc)
        return Reason("cancelled", cause=agent.cause or Cause("signal"))
    if exc is None or isinstance(exc, TurnCancelled) or ours(exc):
        if agent.failure is not None:
            return agent.failure
        if agent.disposing:
            return Reason("disposed")
        return Reason("cancelled", cause=agent.cause or Cause("task"))
    if isinstance(exc, get_cancelled_exc_class()):
        # Somebody cancelled the driver's own task, natively: the loop shuts down, or a plugin did it.
        absorb()
        return Reason("disposed") if agent.disposing else Reason("cancelled", cause=agent.cause or Cause("task"))
    return Reason("error", error="internal", code=type(exc).__name__, message=describe(exc))


def of_provider(error: ProviderError) -> Reason:
    """The reason of a turn whose request failed for good."""
    if error.code == "TORN":
        return Reason("interrupted", message=describe(error))
    return Reason("error", error=error.kind, code=error.code, message=describe(error))
