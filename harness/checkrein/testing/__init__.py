"""The testing kit: test your own agent as checkrein tests itself. See docs/testing.md.

Names are imported on first use, so that one part does not load another.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clock import BACKENDS, Stuck, VirtualLoop, hold, run_seeded, run_virtual
    from .crash_states import CrashState, RecordingOps, crash_states
    from .faults import HANG, KINDS, FaultPlan, ForeignFault, Row, Scenario, Seams, Seen, SweepReport, sweep
    from .file_faults import FaultyOps, fault_sweep
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
    from .seams import RUN_HOOKS, SeamModel, SeamStore, seam_plugin, seam_tool
    from .store_kit import StoreCase, store_conformance
    from .store_model import store_machine
    from .strict_server import Hold, StrictChatServer

_HOME = {
    ".scripted": ("ScriptedModel text thinking call usage finish torn error wait hang check metadata opaque forever"),
    ".script_data": "load_script parse_script turns_of",
    ".clock": "BACKENDS Stuck VirtualLoop hold run_seeded run_virtual",
    ".faults": "HANG KINDS FaultPlan ForeignFault Row Scenario Seams Seen SweepReport sweep",
    ".seams": "RUN_HOOKS SeamModel SeamStore seam_plugin seam_tool",
    ".strict_server": "Hold StrictChatServer",
    ".store_kit": "StoreCase store_conformance",
    ".store_model": "store_machine",
    ".file_faults": "FaultyOps fault_sweep",
    ".crash_states": "CrashState RecordingOps crash_states",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

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
    "run_virtual",
    "run_seeded",
    "hold",
    "Stuck",
    "VirtualLoop",
    "BACKENDS",
    "StrictChatServer",
    "Hold",
    "sweep",
    "SweepReport",
    "Row",
    "Scenario",
    "Seams",
    "Seen",
    "FaultPlan",
    "ForeignFault",
    "KINDS",
    "HANG",
    "SeamModel",
    "SeamStore",
    "seam_plugin",
    "seam_tool",
    "RUN_HOOKS",
    "StoreCase",
    "store_conformance",
    "store_machine",
    "fault_sweep",
    "FaultyOps",
    "crash_states",
    "CrashState",
    "RecordingOps",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
