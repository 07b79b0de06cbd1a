"""The lives of kill_worker.py on the path, and what they came to at the end of a run."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

KILLED = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[KILLED] = Counter()


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> Counter[str]:
    """What the kill tests count."""
    return pytestconfig.stash[KILLED]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash[KILLED]
    if figures:
        terminalreporter.section("kill -9: what was tried")
        for name, number in figures.items():
            terminalreporter.write_line(f"{number:>9,}  {name}")
