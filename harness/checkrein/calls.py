"""A tool call on its way through the hooks, and what comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from .events import ToolErrorInfo
from .messages import Block, Content, TextBlock, as_content

if TYPE_CHECKING:
    from .tools import Tool

__all__ = ["Call", "Outcome", "Proceed", "CODES", "check_members", "error_outcome"]

CODES = (
    "NOT_STARTED",
    "OUTCOME_UNKNOWN",
    "DENIED",
    "REFUSED_BY_FAULT",
    "WITHHELD_BY_FAULT",
    "UNKNOWN_TOOL",
    "INVALID_ARGUMENTS",
    "TIMEOUT",
    "TOOL_ERROR",
)


class Call(Struct, frozen=True):
    """One tool call, as `tools_execute` and `tools_guard` see it.

    Attributes:
        call_id: our id, `c<turn>.<step>.<n>`.
        name: the tool's name.
        arguments: the decoded arguments; rewrite with `replace` and hand the copy to `proceed`.
        tool: what will run; None for an unknown tool (which never reaches the hooks).
        attempt: 1, then one more each time `proceed` runs the tool again.
        parent: the call this one is nested in, if any.
    """

    call_id: str
    name: str
    arguments: dict[str, Any]
    turn: int
    step: int
    tool: Tool | None = None
    attempt: int = 1
    parent: str | None = None

    @property
    def effect(self) -> str:
        """`read_only`, `idempotent` or `effectful` (the default, also for what is not known)."""
        return "effectful" if self.tool is None else self.tool.effect

    def replace(self, **arguments: Any) -> Call:
        """Return a copy whose arguments are changed by these."""
        return Call(
            self.call_id,
            self.name,
            {**self.arguments, **arguments},
            self.turn,
            self.step,
            self.tool,
            self.attempt,
            self.parent,
        )


class Outcome(Struct, frozen=True):
    """What a call came to.

    Attributes:
        content: what the model reads.
        is_error: whether it failed.
        error: the failure's name and code.
        value: the structured value, JSON, for programs.
        decision: allow, ask or deny, when a guard voted.
        by: the plugin that answered instead of the tool.
        cleaned: how many characters were replaced in it (L9).
    """

    content: Content
    is_error: bool = False
    error: ToolErrorInfo | None = None
    value: Any = None
    decision: str | None = None
    by: str | None = None
    cleaned: int | None = None

    @classmethod
    def text(cls, text: str, **members: Any) -> Outcome:
        """An outcome of one text block."""
        return cls([TextBlock(text)], **members)

    @classmethod
    def of(cls, content: str | Block | Sequence[Block], **members: Any) -> Outcome:
        """An outcome of any content."""
        return cls(as_content(content), **members)


def check_members(outcome: Outcome) -> None:
    """Refuse a member of another type: constructors check nothing, and the log would not be readable (L5).

    Its `value` is any JSON, and is looked at where it is logged.

    Raises:
        TypeError, ValueError: with the member's path.
    """
    convert(to_builtins(replace(outcome, value=None)), Outcome)


Proceed: TypeAlias = Callable[[Call], Awaitable[Outcome]]


def error_outcome(code: str, message: str, *, name: str | None = None, **members: Any) -> Outcome:
    """An error result with a code from CODES (or a tool's own) and words for the model."""
    return Outcome([TextBlock(message)], True, ToolErrorInfo(name or code, code), **members)
