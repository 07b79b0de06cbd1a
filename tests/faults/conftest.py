"""What the proof shares: its worlds on the path, and the figures it prints at the end of a run.

A test adds to a figure with `count("fault runs", n)`; docs/reliability.md names the commands and what they
printed. prove.py sets CHECKREIN_SHARD (`i/n`: every n-th test) and CHECKREIN_FIGURES (a file for the figures).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


PROOF = HERE / "test_proof.py"


@pytest.fixture(autouse=True, scope="session")
def _no_tool_is_slow() -> Iterator[None]:
    """A busy machine, or a collection of garbage in a tool's step, is no fault of the tool (X3), and no other order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("checkrein.threads.BLOCKED_S", 60.0)
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep this process's share of the proof's tests; a run of everything leaves them to test_proof.py's processes."""
    if shard := os.environ.get("CHECKREIN_SHARD"):
        mine, of = map(int, shard.split("/"))
        chosen = [item for i, item in enumerate(items) if item.path != PROOF and i % of == mine]
    elif any(item.path == PROOF for item in items) and any(HERE not in item.path.parents for item in items):
        chosen = [item for item in items if HERE not in item.path.parents or item.path == PROOF]
        chosen.sort(key=lambda item: item.path == PROOF)  # last: it takes every core
    else:
        chosen = [item for item in items if item.path != PROOF]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much was tried."""
    from figures import FIGURES

    if file := os.environ.get("CHECKREIN_FIGURES"):
        Path(file).write_text(json.dumps(FIGURES))
    elif FIGURES:
        terminalreporter.section("the proof: what was tried")
        for name, number in sorted(FIGURES.items()):
            terminalreporter.write_line(f"{number:>9,}  {name}")
