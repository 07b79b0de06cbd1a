"""Two faults in one run: what answers the first one is struck by another, or by a cancel; or the cancel comes first.

    pytest tests/faults/test_pairs_of_faults.py --faults=full       # with the single faults a million
    pytest tests/faults/test_pairs_of_faults.py --faults=1600        # 100 pairs a script and backend

No table says here how a turn ends, only what may never be: see world.problems.
"""

from __future__ import annotations

from functools import partial

import pytest
import world
from figures import count

from checkrein.testing.faults import KINDS, sweep

PART = 16  # of the single faults' limit
FULL = 8_750  # a script and backend


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", sorted(world.SCRIPTS))
def test_two_faults(name: str, backend: str, faults: int | None) -> None:
    """No two faults leave a turn unbalanced, end one `internal`, leave a stream open, or kill the agent."""
    pairs = FULL if faults is None else max(2, faults // PART)
    scenario = partial(world.run_script, world.SCRIPTS[name])
    report = sweep(scenario, kinds=(*KINDS, "cancel"), backends=[backend], pairs=pairs)
    count("pairs of faults: runs", report.runs)
    count("pairs of faults: both struck", report.pairs)
    bad = report.failures
    assert not bad, f"{len(bad)} of {report.runs}:\n" + "\n".join(str(row) for row in bad[:8])
