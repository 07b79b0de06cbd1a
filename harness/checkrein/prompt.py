"""The system prompt: ordered sections, the agent's own last (M1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from .errors import CheckreinError
from .owner import absorb, ours

if TYPE_CHECKING:
    from .agents import AgentLike

__all__ = ["Section", "SectionFailed", "assemble"]


class SectionFailed(CheckreinError):
    """A section's function raised, or returned no text; the cause is what went wrong.

    Args:
        section: the section's name.
    """

    def __init__(self, section: str) -> None:
        super().__init__(f"the prompt section {section!r} cannot be made")
        self.section = section


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
    """Return the system prompt's parts for this agent, empty ones dropped, its own prompt last.

    Raises:
        SectionFailed: a section's function raised, or returned no text.
    """
    parts = [
        s.text if isinstance(s.text, str) else _made(s.name, s.text, agent)
        for s in sorted(sections, key=lambda s: s.order)
    ]
    return tuple(part for part in (*parts, own) if part)


def _made(name: str, make: Callable[[AgentLike], str], agent: AgentLike) -> str:
    try:
        text = make(agent)
        if not isinstance(text, str):
            raise TypeError(f"expected the text of the prompt section {name!r}, got {type(text).__name__}")
    except BaseException as exc:
        if ours(exc) or isinstance(exc, KeyboardInterrupt):
            raise
        absorb()
        raise SectionFailed(name) from exc
    return text
