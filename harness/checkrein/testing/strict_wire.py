"""The wire of the strict server: an answer of a script as frames of OpenAI's chat streaming."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .script import cut
from .script_data import CallData, TurnData, UsageData

__all__ = ["call", "chunk", "deltas", "finish", "usage"]

FINISH = {"max_tokens": "length", "refusal": "content_filter"}


def deltas(turn: TurnData, number: int) -> Iterator[dict[str, Any]]:
    """The deltas of an answer, in order, without the terminal frame."""
    if turn.thinking is not None:
        yield from ({"reasoning_content": piece} for piece in cut(turn.thinking, turn.pieces))
    if turn.text is not None:
        yield from ({"content": piece} for piece in cut(turn.text, turn.pieces))
    for i, made in enumerate(turn.calls):
        first, *rest = cut(made.text, turn.pieces)
        yield {"tool_calls": [{"index": i, **call(i, number, made, first)}]}
        yield from ({"tool_calls": [{"index": i, "function": {"arguments": piece}}]} for piece in rest)


def call(i: int, number: int, made: CallData, arguments: str) -> dict[str, Any]:
    """A tool call with its id and name; `arguments` is all of its text or the first piece."""
    call_id = f"call_{number}_{i + 1}" if made.id is None else made.id
    return {"id": call_id, "type": "function", "function": {"name": made.name, "arguments": arguments}}


def chunk(body: dict[str, Any], number: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """A frame of the stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": body["model"],
        "choices": [choice],
    }


def finish(turn: TurnData) -> str:
    """The finish reason in OpenAI's words."""
    word = turn.finish or ("tool_calls" if turn.calls else "stop")
    return FINISH.get(word, word)


def usage(turn: TurnData) -> dict[str, Any]:
    """The token counts in OpenAI's words: prompt tokens hold the cached ones."""
    counts = turn.usage or UsageData()
    prompt = (counts.input or 0) + (counts.cache_read or 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": counts.output or 0,
        "total_tokens": prompt + (counts.output or 0),
        "prompt_tokens_details": {"cached_tokens": counts.cache_read or 0},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning or 0},
    }
