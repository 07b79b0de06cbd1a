"""The whole of tests/faults at its full default scale, on all cores: what a plain `pytest` runs of it.

`pytest tests/faults` runs the same tests in this process instead, at the scale of --faults and --seeds.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from figures import count

LIMIT_S = 2_400


def test_the_proof() -> None:
    """At least 50,000 fault runs and 10,000 seeds, and every test of them passes."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "prove.py")],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    figures = {name: int(n.replace(",", "")) for n, name in re.findall(r"^ *([\d,]+)  (\S.*)$", done.stdout, re.M)}
    total = re.search(r"([\d,]+)  fault runs, and ([\d,]+) seeds", done.stdout)
    assert total is not None, done.stdout[-2_000:]
    faults, seeds = (int(n.replace(",", "")) for n in total.groups())
    assert faults >= 50_000
    assert seeds >= 10_000
    for name, number in figures.items():
        if not name.startswith("fault runs"):
            count(name, number)
