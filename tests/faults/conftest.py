"""What the proof shares: its worlds on the path, and the figures it prints at the end of a run.

A test adds to a figure with `count("fault runs", n)`; docs/reliability.md names the commands and what they printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from figures import FIGURES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much was tried."""
    if FIGURES:
        terminalreporter.section("the proof: what was tried")
        for name, number in sorted(FIGURES.items()):
            terminalreporter.write_line(f"{number:>9,}  {name}")
