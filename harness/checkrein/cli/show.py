"""Events in words, for a person at a terminal: what `run` and `chat` show as it happens, `sessions show` afterwards.

Everything here was written by models, tools and strangers: each line goes through `visible`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from checkrein import events as ev
from checkrein.messages import CallBlock, MediaBlock, TextBlock
from checkrein.visible import excerpt, visible

if TYPE_CHECKING:
    from checkrein.events import AnyEvent, Reason
    from checkrein.messages import Block, Source, Usage

__all__ = ["PRINTABLE", "Narrator", "clock", "reason_text", "shown_text", "usage_text"]

PRINTABLE = "\n\t\ufe0f\u200d\xa0\u202f"
"""What text keeps on a terminal: lines, tabs, and what emoji and typography are made of."""

LINE_CHARS = 160


def shown_text(text: str) -> str:
    """Return a model's or a user's text as a terminal may show it."""
    return visible(text, keep=PRINTABLE)


def brief(text: str, chars: int = LINE_CHARS) -> str:
    """Return one line of text: what fits, and how much more there is."""
    return visible(excerpt(" ".join(text.split()), chars))


def clock(time_ms: int) -> str:
    """Return a log's time in local time, to the second."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))
    except (OverflowError, OSError, ValueError):  # a stranger's log may say anything
        return f"{time_ms} ms"


def reason_text(reason: Reason) -> str:
    """Return how a turn ended, in a line."""
    parts = [reason.kind]
    if reason.error:
        parts.append(f"({reason.error}{f', {reason.code}' if reason.code else ''})")
    if reason.cause_text:
        parts.append(f"by {reason.cause_text}")
    if reason.max_steps is not None:
        parts.append(f"after {reason.max_steps} steps")
    if reason.plugin and reason.plugin not in (reason.message or ""):
        parts.append(f"in plugin {reason.plugin}")
    text = " ".join(parts)
    return brief(f"{text}: {reason.message}" if reason.message else text, 1_000)


def usage_text(usage: Usage) -> str:
    """Return token counts in a few words; empty if nothing was counted."""
    read = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    return f"{read} tokens in, {usage.output or 0} out" if read or usage.output else ""


def content_words(content: Sequence[Block]) -> str:
    """Return content as text, with a note in the place of what is none."""
    parts: list[str] = []
    for block in content:
        if type(block) is TextBlock:
            parts.append(block.text)
        elif type(block) is MediaBlock:
            parts.append(f"[{block.media_type}{f' {block.name}' if block.name else ''}]")
    return "".join(parts)


class Narrator:
    """Says what each event of a log means to a person; remembers what a later event refers to.

    Args:
        whole: say everything that was said in full, as a transcript does; else only what happens around it.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._arguments: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._told: set[str] = set()
        self._say: dict[type, Callable[[Any], str]] = {
            ev.AssistantThinking: self._thinking,
            ev.AssistantAnswer: self._answer,
            ev.AssistantPartial: self._partial,
            ev.ToolCalled: self._called,
            ev.ToolEnded: self._result,
            ev.ToolResulted: self._result,
            ev.ToolLate: self._late,
            ev.RequestStart: self._request,
            ev.RequestEnd: self._request_end,
            ev.PluginFaulted: self._fault,
            ev.ApprovalDecided: self._decided,
            ev.InboxDiscarded: self._discarded,
            ev.CompactionEnd: self._compacted,
            ev.TurnEnd: self._turn_end,
            ev.LogGap: self._gap,
            ev.SessionRepaired: self._repaired,
        }
        if whole:
            self._say |= {
                ev.TurnStart: lambda event: f"--- turn {event.turn}, {clock(event.time)}",
                ev.UserInput: self._input,
                ev.SteeringInput: self._input,
                ev.ContextInput: self._input,
            }

    def __call__(self, event: AnyEvent) -> str:
        """Return what to say of the event, empty if nothing."""
        say = self._say.get(type(event))
        return shown_text(say(event)) if say is not None else ""  # also words of closed sets, in a stranger's log

    # --- what is said -----------------------------------------------------------------------------

    def _input(self, event: ev.UserInput | ev.SteeringInput | ev.ContextInput) -> str:
        kind = {"steering/message": " (steering)", "context/message": " (context)"}.get(event.type, "")
        return f"{_who(event.source)}{kind}: {shown_text(content_words(event.content))}"

    def _thinking(self, event: ev.AssistantThinking) -> str:
        return f"thinking: {brief(event.text)}" if event.text.strip() else ""

    def _answer(self, event: ev.AssistantAnswer) -> str:
        for block in event.content:
            if type(block) is CallBlock:
                self._arguments[block.call_id] = block.arguments
        text = content_words(event.content)
        return f"model: {shown_text(text)}" if self._whole and text.strip() else ""

    def _partial(self, event: ev.AssistantPartial) -> str:
        text = shown_text(event.text) if self._whole else brief(event.text)
        return f"cut off, no answer: {text}" if text.strip() else ""

    # --- calls ------------------------------------------------------------------------------------

    def _called(self, event: ev.ToolCalled) -> str:
        self._names[event.call_id] = event.name
        return f"call {brief(event.name)} {brief(self._arguments.pop(event.call_id, ''))}".rstrip()

    def _result(self, event: ev.ToolEnded | ev.ToolResulted) -> str:
        if event.call_id in self._told:
            self._told.discard(event.call_id)
            return ""
        if type(event) is ev.ToolEnded:
            self._told.add(event.call_id)
        text = content_words(event.content or ())
        code = event.error.code if event.error is not None else "error"
        word = f"failed {code}" if event.is_error else "result"
        took = f" ({event.duration_ms} ms)" if event.duration_ms is not None else ""
        name = self._names.get(event.call_id, event.call_id)
        return f"  {word} of {brief(name)}{took}: {brief(text) or '(no output)'}"

    def _late(self, event: ev.ToolLate) -> str:
        name = self._names.get(event.call_id, event.call_id)
        return f"  {brief(name)} returned after its call was closed; its result is dropped"

    def _decided(self, event: ev.ApprovalDecided) -> str:
        return "  nobody is here to allow it" if event.outcome == "closed" else f"  {event.outcome.replace('_', ' ')}"

    # --- what happens around it ---------------------------------------------------------------------

    def _request(self, event: ev.RequestStart) -> str:
        return f"attempt {event.attempt}: what came of the last one does not count" if event.attempt > 1 else ""

    def _request_end(self, event: ev.RequestEnd) -> str:
        if event.error is None:
            return ""
        code = f" {event.error.code}" if event.error.code else ""
        return f"request failed ({event.error.kind}{code}): {brief(event.error.message)}"

    def _fault(self, event: ev.PluginFaulted) -> str:
        error = f"{event.error.name}: {event.error.message}"
        return f"plugin {brief(event.plugin or '?')} failed in {event.hook} ({event.action}): {brief(error)}"

    def _discarded(self, event: ev.InboxDiscarded) -> str:
        return f"input {event.id} was discarded: {brief(event.reason)}"

    def _compacted(self, event: ev.CompactionEnd) -> str:
        return f"history compacted: {event.outcome}"

    def _turn_end(self, event: ev.TurnEnd) -> str:
        if event.reason.kind == "completed" and not self._whole:
            return ""
        return f"turn {event.turn} {reason_text(event.reason)}"

    def _gap(self, event: ev.LogGap) -> str:
        return f"events {event.after + 1} to {event.before - 1} are lost ({event.skipped_bytes} bytes cannot be read)"

    def _repaired(self, event: ev.SessionRepaired) -> str:
        torn = f", {event.set_aside_bytes} torn bytes set aside" if event.set_aside_bytes else ""
        return f"repaired: {len(event.calls)} unanswered calls{torn}"


def _who(source: Source) -> str:
    return "you" if source.kind == "user" else brief(" ".join(p for p in (source.kind, source.name, source.id) if p))
