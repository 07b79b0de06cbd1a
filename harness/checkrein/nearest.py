"""The nearest known name, for error messages."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or nothing when no known name is near."""
    import difflib

    near = difflib.get_close_matches(got, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
