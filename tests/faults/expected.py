"""What each fault must come to: a table of (seam, fault) -> the reasons allowed, and how often it is recorded.

The failure policies are those of docs/semantics.md H1; a fault that turns a turn another way than its policy says
is as wrong as an unbalanced log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checkrein.events import PluginFaulted
from checkrein.testing.faults import HANG

SAME = "same"  # as without the fault
PLUGIN = "error/plugin"
STORE = "error/store"
GATE = "GateClosed"
KEYBOARD = "KeyboardInterrupt"
MODEL = ("error/generate", "error/stream", "error/timeout")

# By the seam's beginning, the longest first. A KeyboardInterrupt is everywhere the program's own (C10).
REASONS: dict[str, tuple[str, ...]] = {
    "hook:agent_request": (PLUGIN,),
    "hook:step_result": (PLUGIN,),
    "hook:turn_continuation": (PLUGIN,),
    "hook:tools_execute": (SAME,),
    "hook:tools_guard": (SAME,),
    "hook:request_error": (SAME,),
    "hook:session_flush": (STORE, GATE, SAME),
    "hook:": (SAME,),
    "tool:": (SAME,),
    "model:close": (SAME, *MODEL),
    "model:": MODEL,
    "store:close": (SAME,),
    "store:": (STORE, GATE, SAME),
}
NOT_PLAIN = ("cancelled", "system_exit", "generator_exit", "base_exception")


def reasons(seam: str, kind: str, base: str, retried: bool) -> set[str]:
    """The reasons a run may have."""
    if kind == "keyboard_interrupt":
        # Before its turn ended: raised, or the turn is cancelled; behind it: as without the fault.
        return {KEYBOARD, "cancelled", base}
    found = next(value for key, value in REASONS.items() if seam.startswith(key))
    allowed = {base if each == SAME else each for each in found}
    if kind == "stop_async_iteration" and seam in ("model:open", "model:item"):
        allowed |= {"interrupted", base}  # raised there, it is the stream's end: torn, unless finish had come
    if retried and seam.startswith("model:"):
        allowed |= {base, "interrupted"}
    if seam.startswith("tool:") and kind == HANG:
        allowed.add("cancelled")  # a script that cancels meanwhile
    return allowed


def recorded(seam: str, kind: str, events: Sequence[Any]) -> str | None:
    """What is wrong with the faults in the log: each once, with its author (O25); None if nothing is."""
    # A busy machine makes any tool hold the loop for a moment: that report is not what was injected.
    all_faults = [
        event
        for event in events
        if type(event) is PluginFaulted
        and "held the event loop" not in event.error.message
        and event.error.name != "AlreadyBegun"  # what the script `proceeded_twice` is about
    ]
    faults = [event for event in all_faults if "injected" in event.error.message]
    authors = {(fault.plugin, fault.hook) for fault in faults}
    if kind in ("keyboard_interrupt", HANG):
        return None if not faults else f"{kind} was recorded as a fault: {authors}"
    if seam.startswith("hook:plugin_fault") or seam in ("hook:agent_disposed", "hook:agent_created"):
        return None  # outside of what this scenario reads
    wants = 1
    if seam.startswith("tool:") and kind != "cancelled":
        wants = 0  # an error result, no fault
    if seam.startswith("model:") and not seam.endswith("close") and kind not in NOT_PLAIN:
        wants = 0  # an error of the request, no fault
    if seam.startswith("store:") and seam.endswith("close"):
        return None
    if kind in ("cancelled", "generator_exit"):
        # Their text is the backend's own: every recorded fault counts.
        faults = all_faults
    if kind == "cancelled" and seam.startswith("tool:sync") and not faults:
        return None  # asyncio's, raised in a thread under trio: there it is an exception like any other
    if len(faults) != wants:
        return f"expected {wants} recorded fault(s) for {kind} at {seam}, got {len(faults)}: {authors}"
    if wants and seam.startswith("hook:") and faults[0].hook != seam.split(":")[1]:
        return f"the fault at {seam} is recorded at {faults[0].hook}"
    return None
