"""THE concrete loop: LoopAgent, its inbox, and the turn and step driver.

Start reading at loop.py, `run_turn` and `run_step`. Everything beyond "call the model, run the tools,
repeat" is a plugin. This package imports the standard library, anyio, msgspec and checkrein only.
"""

from __future__ import annotations

from .agent import LoopAgent

__all__ = ["LoopAgent"]
