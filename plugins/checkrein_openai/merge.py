"""Joining the pieces of members that go back to the provider as they came (M5). Pure."""

from __future__ import annotations

from typing import Any

__all__ = ["joined", "merge_counts"]

_GROWING = frozenset(("text", "summary", "data", "thinking"))


def joined(before: Any, now: Any) -> Any:
    """Join two pieces of a streamed member: lists item by item, objects member by member, else the later one."""
    if isinstance(before, list) and isinstance(now, list):
        out = list(before)
        for item in now:
            if out and _goes_on(out[-1], item):
                out[-1] = {**out[-1], **{k: _grown(k, out[-1].get(k), v) for k, v in item.items() if v is not None}}
            else:
                out.append(item)
        return out
    if isinstance(before, dict) and isinstance(now, dict):
        return {**before, **{k: joined(before.get(k), v) for k, v in now.items()}}
    return before if now is None else now


def merge_counts(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Join two `usage` objects of one request: counts are cumulative, so the later one stands where it speaks."""
    return {**before, **{name: value for name, value in now.items() if value is not None}}


def _goes_on(last: Any, item: Any) -> bool:
    """Whether an item goes on with the one before: the same type at the same index, or thinking not yet signed."""
    if not (isinstance(last, dict) and isinstance(item, dict)) or last.get("type") != item.get("type"):
        return False
    if item.get("index") is None:  # LiteLLM's `thinking_blocks` have none; the signature comes last
        return last.get("index") is None and item.get("type") == "thinking" and not last.get("signature")
    return bool(last.get("index") == item["index"])


def _grown(key: str, before: Any, now: Any) -> Any:
    return before + now if key in _GROWING and isinstance(before, str) and isinstance(now, str) else now
