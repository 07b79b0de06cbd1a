"""Single faults everywhere: every seam of every script fails in each of twelve ways, on both backends."""

from __future__ import annotations

from functools import partial

import pytest
import world
from figures import count

from checkrein.testing.faults import KINDS, sweep


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", sorted(world.SCRIPTS))
def test_single_fault_everywhere(name: str, backend: str, faults: int | None) -> None:
    """No single fault leaves a turn unbalanced, ends one `internal`, loses a delta, or kills the agent."""
    report = sweep(partial(world.run_script, world.SCRIPTS[name]), kinds=KINDS, backends=[backend], limit=faults)
    count("single faults: runs", report.runs)
    bad = report.failures
    assert not bad, f"{len(bad)} of {report.runs}:\n" + "\n".join(str(row) for row in bad[:8])
