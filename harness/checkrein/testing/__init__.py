"""The testing kit: test your own agent as checkrein tests itself. See docs/testing.md.

Names are imported on first use, so that one part does not load another.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clock import BACKENDS, Stuck, VirtualLoop, hold, run_seeded, run_virtual
    from .script_data import load_script, parse_script, turns_of
    from .scripted import (
        ScriptedModel,
        call,
        check,
        error,
        finish,
        forever,
        hang,
        metadata,
        opaque,
        text,
        thinking,
        torn,
        usage,
        wait,
    )
    from .strict_server import Hold, StrictChatServer

_SCRIPTED = (
    "ScriptedModel",
    "text",
    "thinking",
    "call",
    "usage",
    "finish",
    "torn",
    "error",
    "wait",
    "hang",
    "check",
    "metadata",
    "opaque",
    "forever",
)
_CLOCK = ("BACKENDS", "Stuck", "VirtualLoop", "hold", "run_seeded", "run_virtual")
_DATA = ("load_script", "parse_script", "turns_of")
_SERVER = ("StrictChatServer", "Hold")
_HOME = (
    dict.fromkeys(_SCRIPTED, ".scripted")
    | dict.fromkeys(_CLOCK, ".clock")
    | dict.fromkeys(_DATA, ".script_data")
    | dict.fromkeys(_SERVER, ".strict_server")
)

__all__ = [
    "ScriptedModel",
    "text",
    "thinking",
    "call",
    "usage",
    "finish",
    "torn",
    "error",
    "wait",
    "hang",
    "check",
    "metadata",
    "opaque",
    "forever",
    "load_script",
    "parse_script",
    "turns_of",
    "StrictChatServer",
    "Hold",
    "run_virtual",
    "run_seeded",
    "hold",
    "Stuck",
    "VirtualLoop",
    "BACKENDS",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
