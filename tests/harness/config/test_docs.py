"""The generated files of docs/ are what tools/gen_docs.py makes now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_generated_docs_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "gen_docs.py"), "--check"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"run `python tools/gen_docs.py`:\n{done.stdout}{done.stderr}"
