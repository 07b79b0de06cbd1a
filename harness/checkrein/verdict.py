"""The service that judges a stored log. The oracle provides it; the harness, which imports none of ours, asks.

if harness.services.has(Judge):
    verdict = harness.service(Judge).judge(harness.store.read(session_id))
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct

from .store import StoredLog

__all__ = ["Judge", "Verdict"]


class Verdict(Struct, frozen=True):
    """What was found in a stored log.

    Attributes:
        balanced: whether no rule is broken.
        events: how many events it holds.
        findings: what is broken or worth a note, one line each.
    """

    balanced: bool
    events: int
    findings: tuple[str, ...] = ()


@runtime_checkable
class Judge(Protocol):
    """Checks a log from its stored bytes alone."""

    def judge(self, stored: StoredLog) -> Verdict:
        """Return the verdict on a log; never raises for what its bytes are."""
        ...
