"""What ends an answer on this wire: the one table of finish reasons (M11, docs/providers.md)."""

from __future__ import annotations

__all__ = ["FAILED", "FINISH"]

# What the wire's finish reasons mean; a word that is in neither table is `other`.
FINISH = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "refusal": "refusal",
}
# Words that say the answer failed.
FAILED = frozenset(("error", "abort", "network_error", "insufficient_system_resource"))
