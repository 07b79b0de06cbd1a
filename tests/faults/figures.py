"""The figures of the proof: how much each test tried, by name; the terminal summary prints them."""

from __future__ import annotations

from collections import Counter

__all__ = ["FIGURES", "count"]

FIGURES: Counter[str] = Counter()


def count(name: str, number: int = 1) -> None:
    """Add to a figure.

    Args:
        name: what was tried, as `fault runs`.
        number: how often.
    """
    FIGURES[name] += number
