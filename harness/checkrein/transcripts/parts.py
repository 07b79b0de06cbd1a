"""Small total readers for JSON that may be anything."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["member", "as_object", "as_text", "blocks", "as_arguments", "odd_id"]


def member(value: Any, *path: str) -> Any:
    """The member of an object, or of the objects in it; None where there is none."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def as_object(value: Any) -> dict[str, Any]:
    """An object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_text(value: Any) -> str:
    """A str or number as text, the text of content blocks joined; empty for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "".join(as_text(member(block, "text")) for block in value)
    return ""


def odd_id(value: Any) -> str:
    """`the id` if it is not stored as text: no server takes a number for the text of the same digits."""
    return "" if value is None or isinstance(value, str) else "the id"


def blocks(content: Any) -> list[dict[str, Any]]:
    """Content as blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def as_arguments(value: Any) -> str:
    """Arguments as raw text, whether they are stored as text or as an object."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
