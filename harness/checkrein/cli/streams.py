"""Standard output and standard error of a command, written so that nothing said there can break it.

A reader that left (a closed pipe) or a full disk is remembered, not raised; text the terminal's encoding
cannot carry is written out; standard error never fails a command.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from checkrein import events as ev
from checkrein.live import StepReset, TextDelta, ThinkingDelta, ToolProgress
from checkrein.messages import CallBlock

from .modes import is_terminal
from .show import Narrator, brief, content_words, shown_text

if TYPE_CHECKING:
    from checkrein.session import Session

    from .follow import Item

__all__ = ["JsonLines", "Progress", "Streams", "silence"]


class Streams:
    """Where a command writes.

    Attributes:
        terminal: whether standard output is one.
        gone: whether standard output takes nothing any more: its reader left, its disk is full, it is closed.
        failed: whether it is one of the latter two.
    """

    def __init__(self) -> None:
        self.gone = self.failed = False
        self._stdout = sys.stdout  # this very one: what others print meanwhile may go elsewhere
        self.terminal = is_terminal(sys.stdout)
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._dim = is_terminal(sys.stderr) and not plain
        self._open = False  # a line of the answer is not ended
        for stream in (sys.stdout, sys.stderr):
            if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
                reconfigure(errors="backslashreplace")

    def out(self, text: str) -> None:
        """Write to standard output, as it is."""
        if text:
            self._open = not text.endswith("\n")
            self._write(self._stdout, text)

    def show(self, text: str) -> None:
        """Write a model's text to standard output: made visible if that is a terminal."""
        self.out(shown_text(text) if self.terminal else text)

    def raw(self, line: bytes) -> None:
        """Write a line of bytes to standard output."""
        self._write(getattr(self._stdout, "buffer", self._stdout), line + b"\n")

    def end_line(self) -> None:
        """End the line of standard output, if one is open."""
        if self._open:
            self.out("\n")

    def note(self, text: str) -> None:
        """Write a line to standard error."""
        if self.terminal:
            self.end_line()
        try:
            click.echo(click.style(text, dim=True) if self._dim else text, err=True)
        except OSError:  # nobody reads it: not a reason to stop
            silence(sys.stderr)

    def finish(self) -> None:
        """End a command whose output is all it is for: with exit code 1 if that could not be written."""
        if self.failed:
            click.get_current_context().exit(1)

    def _write(self, stream: Any, data: Any) -> None:
        if self.gone:
            return
        if stream is None:  # whoever started us closed it: the same as a full disk, not a success
            self.gone = self.failed = True
            self.note("standard output cannot be written: it is closed")
            return
        try:
            stream.write(data)
            stream.flush()
        except OSError as error:
            self.gone = True
            silence(stream)
            if not isinstance(error, BrokenPipeError):
                self.failed = True
                self.note(f"standard output cannot be written: {error.strerror or error}")


class Progress:
    """Shows an agent at work: its text on standard output if that is a terminal, the rest on standard error.

    Args:
        streams: where to.
        spoken: ids of inputs the user has just typed and need not see again.
        answers: beside a pipe too, write each final answer to standard output when it is there.
    """

    def __init__(self, streams: Streams, spoken: set[str] | None = None, *, answers: bool = False) -> None:
        self._streams = streams
        self._answers = answers
        self._narrate = Narrator()
        self._spoken = spoken
        self._streamed = False  # the open step's text is on the screen already

    def show(self, item: Item) -> None:
        """Show one event or delta."""
        streams = self._streams
        kind = type(item)
        if kind is TextDelta:
            if streams.terminal:
                streams.show(item.text)  # type: ignore[union-attr]
                self._streamed = True
        elif kind is ToolProgress:
            streams.note(f"  {brief(item.text)}")  # type: ignore[union-attr]
        elif kind is StepReset or kind is ThinkingDelta:
            return  # told by the events around them
        else:
            self._event(item)

    def _event(self, event: Any) -> None:
        kind = type(event)
        if kind is ev.AssistantAnswer:
            self._answer(event)
        elif kind is ev.AssistantPartial and self._streamed:
            self._streamed = False
            self._streams.note("cut off: this is no answer")
            return
        elif kind is ev.UserInput and self._spoken is not None:
            if event.id not in self._spoken:
                self._streams.note(f"input: {brief(content_words(event.content))}")
            self._spoken.discard(event.id)
        if text := self._narrate(event):
            self._streams.note(text)

    def _answer(self, event: ev.AssistantAnswer) -> None:
        """A step's text: what came whole is shown now; beside a pipe, what is not the answer is a note."""
        text = content_words(event.content)
        if self._streams.terminal:
            if not self._streamed:  # a plugin put it in the place of what the model said, or the model did not stream
                self._streams.show(text)
            self._streams.end_line()
        elif any(type(block) is CallBlock for block in event.content):
            if text.strip():
                self._streams.note(f"model: {brief(text)}")
        elif self._answers:
            self._streams.out(f"{text}\n")
        self._streamed = False


class JsonLines:
    """Writes every event as its log line, and every delta as an object of a type `delta/...`.

    Args:
        streams: where to.
        session: whose events are shown, all from `start` on and in order.
        start: the list position of the first one.
    """

    def __init__(self, streams: Streams, session: Session, start: int) -> None:
        self._streams = streams
        self._session = session
        self._next = start

    def show(self, item: Item) -> None:
        """Write one event or delta."""
        import msgspec

        kind = _DELTAS.get(type(item))
        if kind is not None:
            self._streams.raw(msgspec.json.encode({"type": kind, **msgspec.to_builtins(item)}))
            return
        self._streams.raw(self._session.line(self._next))
        self._next += 1


_DELTAS: dict[type, str] = {
    TextDelta: "delta/text",
    ThinkingDelta: "delta/thinking",
    ToolProgress: "delta/progress",
    StepReset: "delta/reset",
}


def silence(stream: Any) -> None:
    """Send what is buffered nowhere: it would fail once more when the interpreter ends, with exit code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
