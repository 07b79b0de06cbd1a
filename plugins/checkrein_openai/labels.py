"""Names and ids that the wire takes: tool names, and the ids that pair calls with results (M7). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

from checkrein.messages import AssistantMessage, CallBlock, Message, ToolMessage

__all__ = ["CallIds", "ToolNames"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = {"any": re.compile(r"[!-~]{1,256}"), "alnum9": re.compile(r"[a-zA-Z0-9]{9}")}
_ID_CHARS = 40  # of an id that another model than its own reads: OpenAI takes no longer ones


class ToolNames:
    """Tool names on the wire: letters, digits, underscore and hyphen, at most 64; the same name always the same.

    Attributes:
        ours: our names, by the wire's, of those that had to be changed.
    """

    def __init__(self) -> None:
        self.ours: dict[str, str] = {}
        self._wire: dict[str, str] = {}

    def wire(self, name: str) -> str:
        """Return the name on the wire."""
        if _NAME.fullmatch(name):
            return name
        found = self._wire.get(name)
        if found is None:
            # The hash keeps two names apart that differ only in what cannot be said.
            stem = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:55]
            found = f"{stem}_{_digest(name)[:8]}"
            self._wire[name] = found
            self.ours[found] = name
        return found


class CallIds:
    """The ids of a request's calls, each unique in it.

    A call goes back under its provider's id if that provider gets the request, the id is valid (for another
    model also short), and no earlier call of the request has it: so an id, once sent, stays what it was in
    later requests.
    Otherwise it goes under ours, spelt as every server takes it.

    Args:
        messages: the request's.
        provider: who gets the request.
        model: which of its models.
        style: `any` or `alnum9`, as the quirk says.
    """

    def __init__(self, messages: Sequence[Message], provider: str, model: str, style: str) -> None:
        self._style = style
        self._used: set[str] = set()
        self._by_call: dict[tuple[int, str], str] = {}  # (position of the answer, our id)
        self._answer_of: dict[int, int] = {}  # position of a result -> position of its answer
        theirs: dict[tuple[int, str], str | None] = {}
        answer = -1
        for position, message in enumerate(messages):
            if isinstance(message, AssistantMessage):
                answer = position
            elif isinstance(message, ToolMessage):
                self._answer_of[position] = answer
                theirs.setdefault((answer, message.call_id), message.provider_call_id)
            else:
                answer = -1
        for position, message in enumerate(messages):
            for call in message.calls if isinstance(message, AssistantMessage) else ():
                id_ = theirs.get((position, call.call_id)) if message.provider == provider else None  # type: ignore[union-attr]
                long = len(id_ or "") > _ID_CHARS and message.model != model  # type: ignore[union-attr]
                self._choose((position, call.call_id), None if long else id_)

    def of_call(self, position: int, call: CallBlock) -> str:
        """Return the id of a call of the answer at this position."""
        return self._by_call[position, call.call_id]

    def of_result(self, position: int, result: ToolMessage) -> str:
        """Return the id of the call that the result at this position answers."""
        key = (self._answer_of[position], result.call_id)
        if key not in self._by_call:
            self._choose(key, None)
        return self._by_call[key]

    def _choose(self, key: tuple[int, str], theirs: str | None) -> None:
        if key in self._by_call:
            return
        found = theirs or ""
        n = 0
        while found in self._used or not _ID[self._style].fullmatch(found):
            found = self._ours(key[1], n)
            n += 1
        self._used.add(found)
        self._by_call[key] = found

    def _ours(self, call_id: str, n: int) -> str:
        if self._style == "alnum9":
            return _digest(f"{call_id}/{n}")[:9]
        spelt = re.sub(r"[^a-zA-Z0-9_-]", "_", call_id) or "call"
        end = f"_{n}" if n else ""
        return spelt[: _ID_CHARS - len(end)] + end


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()
