"""The neutral conversation: content blocks, derived messages, and the request a provider gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, overload

import msgspec
from msgspec import Struct

__all__ = [
    "TextBlock",
    "MediaBlock",
    "CallBlock",
    "ThinkingBlock",
    "OpaqueBlock",
    "Block",
    "Content",
    "Source",
    "USER",
    "Usage",
    "UserMessage",
    "AssistantMessage",
    "ToolMessage",
    "Message",
    "ToolSchema",
    "Request",
    "View",
    "as_content",
    "content_text",
]


class TextBlock(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="text", gc=False):
    """Plain text."""

    text: str
    provider_metadata: str | None = None


class MediaBlock(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="media", gc=False):
    """An image, audio or file: by exactly one of base64 `data`, `url` or `blob` (its SHA-256)."""

    media_type: str
    data: str | None = None
    url: str | None = None
    blob: str | None = None
    bytes: int | None = None
    name: str | None = None
    provider_metadata: str | None = None


class CallBlock(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_call", gc=False):
    """A tool call asked for by the model; `arguments` is its raw text."""

    call_id: str
    name: str
    arguments: str
    provider_metadata: str | None = None


class ThinkingBlock(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="thinking", gc=False):
    """A burst of thinking; in the log its text stands in `assistant/thinking`, in a derived message here."""

    index: int
    text: str | None = None
    provider_metadata: str | None = None


class OpaqueBlock(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="opaque"):
    """A part we do not know: sent back unread to the same provider, to no other (M5)."""

    provider: str
    data: Any
    provider_metadata: str | None = None


Block: TypeAlias = TextBlock | MediaBlock | CallBlock | ThinkingBlock | OpaqueBlock
Content: TypeAlias = list[Block]


class Source(Struct, frozen=True, omit_defaults=True, gc=False):
    """Where an input came from: user, plugin (name), agent (id) or schedule (id)."""

    kind: str
    name: str | None = None
    id: str | None = None

    @property
    def prefix(self) -> str:
        """What the model sees before the content; empty for the user (I5)."""
        return "" if self.kind == "user" else f"[from {self.name or self.id or self.kind}] "


USER = Source("user")


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """Token counts of one request, disjoint; reasoning is a part of output. Absent is absent, not zero (M10)."""

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None

    def __add__(self, other: Usage) -> Usage:
        def plus(a: int | None, b: int | None) -> int | None:
            return b if a is None else a if b is None else a + b

        return Usage(
            plus(self.input, other.input),
            plus(self.cache_read, other.cache_read),
            plus(self.cache_write, other.cache_write),
            plus(self.output, other.output),
            plus(self.reasoning, other.reasoning),
        )


class UserMessage(Struct, frozen=True, omit_defaults=True, tag_field="role", tag="user", gc=False):
    """What the model reads as the user's; the source prefix is already in the content."""

    content: Content


class AssistantMessage(Struct, frozen=True, omit_defaults=True, tag_field="role", tag="assistant", gc=False):
    """An answer; `provider` and `model` say who gave it, so opaque data goes back to nobody else (M5)."""

    content: Content
    provider: str | None = None
    model: str | None = None
    provider_metadata: str | None = None

    @property
    def calls(self) -> list[CallBlock]:
        """The tool calls in it, in the model's order."""
        return [block for block in self.content if type(block) is CallBlock]


class ToolMessage(Struct, frozen=True, omit_defaults=True, tag_field="role", tag="tool", gc=False):
    """The result of one call."""

    call_id: str
    name: str
    content: Content
    is_error: bool = False
    provider_call_id: str | None = None


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


class ToolSchema(Struct, frozen=True, omit_defaults=True):
    """A tool as the model sees it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]


class View(Sequence[Message]):
    """The first `n` items of an append-only list, without copying it."""

    __slots__ = ("_items", "_n")

    def __init__(self, items: list[Message], n: int | None = None) -> None:
        self._items = items
        self._n = len(items) if n is None else n

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return self._items[slice(*index.indices(self._n))]
        if index < 0:
            index += self._n
        if not 0 <= index < self._n:
            raise IndexError(index)
        return self._items[index]


class Request(Struct, frozen=True):
    """One model request, provider-neutral.

    Attributes:
        model: the model's name, without its provider.
        messages: the derived history, never empty, the last one user or tool.
        system: the system prompt's parts, in order.
        tools: the tools' schemas, in a stable order.
        settings: provider-neutral settings, as temperature, max_tokens, output_schema.
        provider: the provider's name.
        seqs: the log position of each message, for plugins that cut history.
        edit: the cut `drop()` made, recorded in the log.
    """

    model: str
    messages: Sequence[Message]
    system: tuple[str, ...] = ()
    tools: tuple[ToolSchema, ...] = ()
    settings: dict[str, Any] = {}
    provider: str = ""
    seqs: Sequence[int] = ()
    edit: Edit | None = None

    def replace(self, **changes: Any) -> Request:
        """Return a copy with these members changed."""
        return msgspec.structs.replace(self, **changes)

    def drop(self, first: int, last: int, marker: str) -> Request:
        """Return a copy without messages `first` to `last` (indices, both included), a marker in their place.

        Args:
            first: index of the first message left out.
            last: index of the last one; the next message must not be a tool result.
            marker: what the model reads instead, as a user message.

        Raises:
            ValueError: the range is not in the history, or splits a call from its results.
        """
        n = len(self.messages)
        if not 0 <= first <= last < n:
            raise ValueError(f"expected 0 <= first <= last < {n}, got {first}..{last}")
        if isinstance(self.messages[first], ToolMessage) or (
            last + 1 < n and isinstance(self.messages[last + 1], ToolMessage)
        ):
            raise ValueError(f"dropping {first}..{last} would split a call from its results")
        edit = Edit(drop=(self.seqs[first], self.seqs[last]), marker=marker)
        return self.replace(messages=edit.apply(self.messages, self.seqs), edit=edit)


class Edit(Struct, frozen=True, omit_defaults=True):
    """What `agent_request` made of the history: a dropped range of log positions and the text in its place."""

    drop: tuple[int, int]
    marker: str
    plugin: str | None = None

    def apply(self, messages: Sequence[Message], seqs: Sequence[int]) -> list[Message]:
        """Return the messages without the dropped range, the marker in its place."""
        from bisect import bisect_left, bisect_right

        low, high = bisect_left(seqs, self.drop[0]), bisect_right(seqs, self.drop[1])
        head: list[Message] = list(messages[:low])
        return [*head, UserMessage([TextBlock(self.marker)]), *messages[high:]]


def as_content(content: str | Block | Sequence[Block]) -> Content:
    """Return content as a list of blocks; a str becomes one text block.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(content, str):
        return [TextBlock(str.__str__(content))]  # no subclass, as of a template engine: those are no JSON
    if isinstance(content, Struct):
        return [content]
    if not isinstance(content, Iterable):
        raise TypeError(f"expected text, a block or a list of blocks, got {type(content).__name__}")
    return list(content)


def content_text(content: Sequence[Block]) -> str:
    """Return the text blocks of content, joined."""
    return "".join(block.text for block in content if type(block) is TextBlock)
