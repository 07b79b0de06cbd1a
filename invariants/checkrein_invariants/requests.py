"""Rules O16 to O18 and O26 as far as the events alone tell: headers and parts, opaque data, usage, the cache prefix.

Rebuilding a request to its digest needs the derivation; that is deep.py.
"""

from __future__ import annotations

from typing import Any

from checkrein.events import RequestEnd, RequestHeader, RequestStart
from checkrein.messages import OpaqueBlock, Usage

from .folds import Fold, Handler, Loose, Where
from .rules import Report

__all__ = ["Requests"]


class Requests(Fold):
    """Follows the request header in force, the prompt parts, and the totals.

    Attributes:
        usage: the sum of all requests' usage.
    """

    def __init__(self, report: Report, where: Where) -> None:
        super().__init__(report, where)
        self.usage = Usage()
        self._parts: dict[str, int] = {}
        self._header: RequestHeader | Loose | None = None
        self._messages = 0  # of the request before
        self._edits: Any = None
        self._free = True  # an event said why the next request need not extend it

    def handlers(self) -> dict[str, Handler]:
        """Everything of a request, and what may change its prefix."""
        return {
            "prompt/part": Requests._part,
            "request/header": Requests._new_header,
            "request/start": Requests._start,
            "request/end": Requests._end,
            "assistant/message": Requests._answer,
            "compaction/summary": Requests._changed,
            "session/repaired": Requests._changed,
            "session/created": Requests._changed,
        }

    def lost(self) -> None:
        """A header may be lost, and the history is shorter."""
        self._header = None
        self._free = True

    def _changed(self, event: Any) -> None:
        self._free = True

    def _part(self, event: Any) -> None:
        if event.id is not None and self._parts.setdefault(event.id, event.seq) != event.seq:
            self.report.add("O16", f"prompt part {event.id} is written twice", self._parts[event.id])

    def _new_header(self, event: Any) -> None:
        before, self._header = self._header, event
        if type(event) is not RequestHeader:
            self._free = True
            return
        for part in (*event.system, *event.tools):
            if part not in self._parts and not self.where.holes:
                self.report.add("O16", f"the header names prompt part {part}, which is not in the log")
        if type(before) is RequestHeader:
            self._free = True
            if event.reason == "change" and _same(before, event):
                self.report.add("O26", "a request/header that changes nothing", before.seq)

    def _start(self, event: Any) -> None:
        header = self._header
        if event.header is not None and not (header is None and self.where.holes):
            if header is None:
                self.report.add("O16", f"the request names header {event.header}, but there is none")
            elif event.header != header.seq:
                self.report.add("O16", f"the request names header {event.header}, in force is {header.seq}", header.seq)
        if type(event) is not RequestStart:
            self._free = True
            return
        if event.messages < 1:
            self.report.add("O16", "the request has no messages")
        if event.messages < self._messages and not self._free and event.edits == self._edits:
            self.report.add("O26", f"the request has {event.messages} messages, the one before had {self._messages}")
        self._messages, self._edits = event.messages, event.edits
        self._free = False

    def _end(self, event: Any) -> None:
        if type(event) is not RequestEnd or event.usage is None:
            return
        usage = event.usage
        counts = (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning)
        if any(count is not None and count < 0 for count in counts):
            self.report.add("O18", f"a negative count in {usage}")
        elif usage.reasoning is not None and usage.output is not None and usage.reasoning > usage.output:
            self.report.add("O18", f"{usage.reasoning} reasoning tokens of {usage.output} output tokens")
        self.usage += usage

    def _answer(self, event: Any) -> None:
        if type(event) is Loose or self._header is None or event.replaced is not None:
            return
        provider = self._header.provider
        for block in event.content:
            if type(block) is OpaqueBlock and provider is not None and block.provider != provider:
                self.report.add(
                    "O17", f"opaque data of {block.provider!r} in an answer of {provider!r}", self._header.seq
                )


def _same(a: RequestHeader, b: RequestHeader) -> bool:
    return (a.provider, a.model, a.settings, a.system, a.tools) == (b.provider, b.model, b.settings, b.system, b.tools)
