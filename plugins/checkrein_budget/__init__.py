"""checkrein's budgets: a turn that uses too much, or goes round in circles, is ended and says why."""

from __future__ import annotations

from .plugin import Plugin
from .repeats import find_circle

__all__ = ["Plugin", "find_circle"]
