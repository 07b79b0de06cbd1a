"""I3, I6, C4: whatever order the tasks of a race run in, the laws of races.py hold. Orders are drawn from seeds.

    pytest tests/faults/test_interleavings.py --seeds=250          # over 10,000 runs

A failing run names the command that replays it.
"""

from __future__ import annotations

import pytest
from figures import count
from races import RACES, race

from checkrein.testing import run_seeded

SHOWN = 5


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", sorted(RACES))
def test_I3_I6_no_order_of_tasks_breaks_a_law(name: str, backend: str, seeds: range) -> None:
    """Balanced, conserved, first in first out, every waiter back, nothing left running."""
    bad: list[str] = []
    shapes: set[tuple[str, ...]] = set()
    for seed in seeds:
        try:
            found, session = run_seeded(race, name, seed, seed=seed, backend=backend)
            shapes.add(tuple(event.type for event in session.events))
        except Exception as exc:
            found = [f"raised {exc!r}"]
        if found:
            bad.append(f"python tests/faults/races.py {name} {backend} {seed}: {'; '.join(found)}")
    count("interleavings: runs, each with its seed", len(seeds))
    count("interleavings: different logs", len(shapes))
    assert not bad, f"{len(bad)} of {len(seeds)} seeds:\n" + "\n".join(bad[:SHOWN])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_seed_replays_exactly(backend: str) -> None:
    """The same seed gives the same events, another one another order."""

    def shape(seed: int) -> list[str]:
        _, session = run_seeded(race, "bursts", seed, seed=seed, backend=backend)
        return [f"{event.type} {getattr(event, 'id', '')}" for event in session.events]

    assert shape(3) == shape(3)
    assert len({tuple(shape(seed)) for seed in range(6)}) > 1
