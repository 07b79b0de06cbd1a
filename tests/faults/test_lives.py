"""L3, L7, L8, R1, R2, R5, I3: a session of several lives, with everything at once, breaks no law of lives.py.

    pytest tests/faults/test_lives.py --seeds=2000

A failing seed is replayed by `python tests/faults/lives.py SEED`.
"""

from __future__ import annotations

import pytest
from figures import count
from lives import play

import checkrein.snapshot as snapshots

SHOWN = 5
PARTS = 4


@pytest.mark.parametrize("nth", range(PARTS))
@pytest.mark.checkrein_oracle_off(reason="the lives are judged by the oracle itself, at each event")
def test_a_session_of_several_lives_breaks_no_law(nth: int, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """All plugins, cuts at any byte, forks, rewinds, snapshots of a few events, and a replay at the end."""
    monkeypatch.setattr(snapshots, "WORTH", 3)
    monkeypatch.setattr(snapshots, "PART", 1_000)
    mine = seeds[nth::PARTS]
    bad = [f"python tests/faults/lives.py {seed}: {'; '.join(found)}" for seed in mine if (found := play(seed))]
    count("lives: sessions, each with its seed", len(mine))
    assert not bad, f"{len(bad)} seeds:\n" + "\n".join(bad[:SHOWN])
