"""The loop that comes with the harness is found without reading metadata, and is the one the entry point names."""

from __future__ import annotations

from importlib.metadata import entry_points

from checkrein.discovery import DEFAULT_LOOP, LOOPS, load_loop


def test_the_default_loop_is_the_entry_points() -> None:
    """One of the two cannot change alone."""
    (point,) = [each for each in entry_points(group=LOOPS) if each.name == "default"]
    assert point.value == DEFAULT_LOOP
    assert load_loop("default") is point.load()
