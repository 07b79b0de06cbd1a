"""Model-visible means logged: the digest of a request, and rebuilding it from the log (L7, O16).

The digest is SHA-256 over the request's header and then its messages, one by one, so that it is
chained: a longer history continues where a shorter one stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from .derive import History
from .events import AnyEvent, RequestHeader, RequestStart
from .messages import Edit, Message, Request, ToolSchema
from .rules import apply
from .state import State
from .text import clean_json

__all__ = ["Digester", "Parts", "part_id", "rebuild", "cut_of", "edits_of", "apply_edits"]

MAX_PARTS = 10_000

_AT_ONCE = 256

_canonical = msgspec.json.Encoder(order="sorted")
_encode, _encode_lines = _canonical.encode, _canonical.encode_lines


def part_id(content: Any) -> str:
    """The id of a prompt part: 16 hex digits of the SHA-256 of its canonical JSON."""
    return sha256(_encode(content)).hexdigest()[:16]


class Part(NamedTuple):
    """A system section or tool schema: the thing itself, its plain JSON, and its id."""

    content: str | ToolSchema
    plain: Any
    id: str


class Parts:
    """The prompt parts of a harness, hashed once for all its agents."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Any, Part] = {}

    def of(self, content: str | ToolSchema) -> Part:
        """Return what is known of a part."""
        key: Any = content if isinstance(content, str) else id(content)
        part = self._known.get(key)
        if part is None:
            if len(self._known) > MAX_PARTS:  # sections that say the time make a new part each step
                self._known.clear()
            plain = content if isinstance(content, str) else clean_json(msgspec.to_builtins(content))[0]
            part = self._known[key] = Part(content, plain, part_id(plain))  # keeps content, so id() stays its own
        return part


class Digester:
    """Computes request digests incrementally: each message of the history is hashed once.

    An edit (a kept cut) has a chain of its own, so that a trimmed history stays incremental too.
    """

    __slots__ = ("_epoch", "_key", "_hash", "_done", "_lead")

    def __init__(self) -> None:
        self._epoch = -1
        self._key: Any = None
        self._hash = sha256()
        self._done = 0
        self._lead = 0

    def digest(self, header: bytes, messages: Sequence[Message], epoch: int, key: Any, incremental: bool = True) -> str:
        """Return the digest in hex.

        Args:
            header: the canonical header (header_bytes).
            messages: what is sent.
            epoch: the history's; another one starts the chain anew.
            key: what was made of the history; another one starts the chain anew.
            incremental: whether messages were only appended since the last call with the same key.
        """
        n = len(messages)
        if not incremental or epoch != self._epoch or key != self._key or n < self._done:
            self._epoch, self._key, self._hash, self._done = epoch, key, sha256(), 0
        chain = self._hash
        for first in range(self._done, n, _AT_ONCE):
            chain.update(_encode_lines(messages[first : min(n, first + _AT_ONCE)]))
        self._done = n
        whole = chain.copy()
        whole.update(header)
        return whole.hexdigest()


def header_bytes(request: Request, system: Sequence[str], tools: Sequence[str]) -> bytes:
    """The canonical header: provider, model, settings, and the prompt parts by id."""
    return _encode([request.provider, request.model, request.settings, list(system), list(tools)])


def edits_of(request: Request, base: Sequence[Message], plugins: Sequence[str]) -> dict[str, Any] | None:
    """What `agent_request` made of the history, as the log keeps it; None if it was left alone."""
    if request.messages is base:
        return None
    author = {"plugin": plugins[-1]} if plugins else {}
    edit = cut_of(request, base, request.seqs)
    if edit is not None:
        return {"drop": list(edit.drop), "marker": edit.marker, **author}
    return {"messages": msgspec.to_builtins(list(request.messages)), **author}


def cut_of(request: Request, base: Sequence[Message], seqs: Sequence[int]) -> Edit | None:
    """The cut that made a request's messages of the history; None if somebody wrote them otherwise."""
    edit = request.edit
    return edit if edit is not None and list(request.messages) == edit.apply(base, seqs) else None


def apply_edits(edits: dict[str, Any] | None, messages: Sequence[Message], seqs: Sequence[int]) -> Sequence[Message]:
    """The messages a request was sent with, from the history and the logged edits."""
    if not edits:
        return messages
    if "drop" in edits:
        first, last = edits["drop"]
        return Edit((first, last), edits["marker"]).apply(messages, seqs[: len(messages)])
    return msgspec.convert(edits["messages"], list[Message])


def rebuild(events: Sequence[AnyEvent], seq: int) -> tuple[Request, str]:
    """Rebuild the request that the `request/start` at `seq` sent.

    Args:
        events: the log from its beginning.
        seq: the seq of a `request/start`.

    Returns:
        The request, and its digest computed anew: it equals the recorded one, or the log was changed.

    Raises:
        ValueError: there is no `request/start` at seq, or its header or a part of its prompt is not in the log.
    """
    state = State()
    headers: dict[int, RequestHeader] = {}
    for event in events:
        if event.seq == seq:
            if type(event) is not RequestStart:
                raise ValueError(f"expected a request/start at seq {seq}, got {event.type}")
            return _rebuilt(state, event, headers)
        if type(event) is RequestHeader:
            headers[event.seq] = event
        apply(state, event)
    raise ValueError(f"expected a request/start at seq {seq}, the log ends before it")


def _rebuilt(state: State, start: RequestStart, headers: dict[int, RequestHeader]) -> tuple[Request, str]:
    header = headers.get(start.header)
    if header is None:
        raise ValueError(f"the request/header at seq {start.header} is not in the log")
    lost = [part for part in (*header.system, *header.tools) if part not in state.parts]
    if lost:
        raise ValueError(f"the prompt/part {', '.join(lost)} of the request at seq {start.seq} is not in the log")
    history: History = state.history
    view = history.view()
    request = Request(
        model=header.model,
        messages=apply_edits(start.edits, view, history.seqs),
        system=tuple(str(state.parts[part]) for part in header.system),
        tools=tuple(msgspec.convert(state.parts[part], ToolSchema) for part in header.tools),
        settings=header.settings,
        provider=header.provider,
        seqs=history.seqs[: len(view)],
    )
    head = header_bytes(request, header.system, header.tools)
    return request, Digester().digest(head, request.messages, 0, None)
