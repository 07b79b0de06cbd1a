"""The worlds of the fault sweeps on the path: their scripts together use every feature of the loop."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "faults"))
