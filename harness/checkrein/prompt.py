"""The system prompt: ordered sections, the agent's own last (M1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from .agents import AgentLike

__all__ = ["Section", "assemble"]


class Section(Struct, frozen=True):
    """A part of the system prompt.

    Args:
        name: unique among the sections.
        text: the text, or a function of the agent that returns it; empty text is dropped.
        order: ascending; ties go by registration.
    """

    name: str
    text: str | Callable[[AgentLike], str]
    order: int = 100


def assemble(sections: Iterable[Section], agent: AgentLike, own: str) -> tuple[str, ...]:
    """Return the system prompt's parts for this agent, empty ones dropped, its own prompt last."""
    parts = [s.text if isinstance(s.text, str) else s.text(agent) for s in sorted(sections, key=lambda s: s.order)]
    return tuple(part for part in (*parts, own) if part)
