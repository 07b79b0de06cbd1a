"""Run the proof on all cores, and print its figures in one table: the command behind docs/reliability.md.

    python tests/faults/prove.py                        # about 60,000 fault runs and 10,000 seeds
    python tests/faults/prove.py --faults full --seeds 1000

Each process takes every n-th test (CHECKREIN_SHARD); the figures are added up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_FAULTS = ("single faults", "pairs of faults: runs", "cancel points", "line faults")


def main() -> int:
    """Run, add up, print; the exit code is 0 only if every test passed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", default="400", help="faults per scenario, or full (400)")
    parser.add_argument("--seeds", default="230", help="seeds per race and backend (230)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{i}.json") for i in range(options.processes)]
        command = [sys.executable, "-m", "pytest", str(HERE), "-q", "-p", "no:cacheprovider", "--no-header"]
        command += [f"--faults={options.faults}", f"--seeds={options.seeds}"]
        children = []
        for i, file in enumerate(files):
            env = {**os.environ, "CHECKREIN_SHARD": f"{i}/{options.processes}", "CHECKREIN_FIGURES": str(file)}
            children.append(subprocess.Popen(command, cwd=ROOT, env=env))
        codes = [child.wait() for child in children]
        figures: Counter[str] = Counter()
        for file in files:
            if file.exists():
                figures.update(json.loads(file.read_text()))
    for name, number in sorted(figures.items()):
        print(f"{number:>9,}  {name}")
    faults = sum(n for name, n in figures.items() if name.startswith(_FAULTS))
    seeds = sum(n for name, n in figures.items() if name.startswith("interleavings: runs"))
    print(f"{faults:>9,}  fault runs, and {seeds:,} seeds, in {time.monotonic() - began:.0f} s; exit codes {codes}")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
