"""Token counts of many dialects as disjoint ones (M10). Pure."""

from __future__ import annotations

from typing import Any

from checkrein.messages import Usage

from .wirejson import whole

__all__ = ["read_usage"]


def read_usage(raw: Any) -> Usage | None:
    """Return the counts of a `usage` object, None if it holds none.

    What the prompt read from or wrote to a cache is taken out of `input`, if it is counted there; thinking is a part of
    `output`, added where the server leaves it out (its total tells).
    """
    if not isinstance(raw, dict):
        return None
    prompt = _first(raw, "prompt_tokens", "input_tokens")
    output = _first(raw, "completion_tokens", "output_tokens")
    if prompt is None and output is None:
        return None
    prompt_details = _object(raw, "prompt_tokens_details", "input_tokens_details")
    output_details = _object(raw, "completion_tokens_details", "output_tokens_details")
    cache_read = _first(prompt_details, "cached_tokens")
    if cache_read is None:
        cache_read = _first(raw, "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
    cache_write = _first(prompt_details, "cache_write_tokens", "cache_creation_tokens")
    if cache_write is None:
        cache_write = _first(raw, "cache_creation_input_tokens")
    reasoning = _first(output_details, "reasoning_tokens")
    total = _first(raw, "total_tokens")
    if reasoning and prompt is not None and output is not None and total == prompt + output + reasoning:
        output += reasoning
    cached = 0 if _is_apart(raw) else (cache_read or 0) + (cache_write or 0)
    fresh = None if prompt is None else max(0, prompt - cached)
    if reasoning is not None and output is not None:
        reasoning = min(reasoning, output)
    return Usage(fresh, cache_read, cache_write, output, reasoning)


def _is_apart(raw: dict[str, Any]) -> bool:
    """Whether the prompt is counted without what the cache had of it: Anthropic's words, and none of OpenAI's."""
    return not raw.keys() & {"prompt_tokens", "prompt_tokens_details", "input_tokens_details"} and bool(
        raw.keys() & {"cache_read_input_tokens", "cache_creation_input_tokens"}
    )


def _first(raw: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = whole(raw.get(name))
        if value is not None and 0 <= value < 2**53:
            return value
    return None


def _object(raw: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        if isinstance(value := raw.get(name), dict):
            return value
    return {}
