"""checkrein's context trimming: requests stay within the model's window, without a second model call."""

from __future__ import annotations

from .estimate import estimate_image_tokens, estimate_message_tokens, estimate_system_tokens, estimate_tokens
from .plugin import DEFAULT_WINDOW_TOKENS, Plugin
from .trim import MARKER_PREFIX, Cut, TrimOutcome, TrimResult, budget_tokens, trim_context

__all__ = [
    "Plugin",
    "trim_context",
    "TrimResult",
    "TrimOutcome",
    "Cut",
    "budget_tokens",
    "estimate_tokens",
    "estimate_image_tokens",
    "estimate_message_tokens",
    "estimate_system_tokens",
    "MARKER_PREFIX",
    "DEFAULT_WINDOW_TOKENS",
]
