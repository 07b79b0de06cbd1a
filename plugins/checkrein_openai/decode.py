"""The body of a chat-completions answer, bytes to chunks: a stream or one JSON document, read leniently (L9, M11).

Pure, and total: whatever bytes come, the chunks obey the grammar of checkrein.chunks, and there is
exactly one ending: a FinishChunk as the last chunk, a ProviderError, or neither (the stream is torn).
Which call a delta belongs to is calls.py's, call markup dsml.py's, counts usage.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from checkrein.chunks import (
    Chunk,
    FinishChunk,
    MetadataChunk,
    OpaqueChunk,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from checkrein.errors import ProviderError
from checkrein.text import clean, clean_json, preview

from .calls import CallSlots
from .dsml import BadMarkup, MarkupReader
from .errors import from_document, from_frame, malformed
from .finish import FAILED, FINISH
from .merge import joined, merge_counts
from .quirks import DEFAULTS, Quirks
from .sse import Event, EventParser, TooLong
from .usage import read_usage
from .wirejson import dumps, loads

__all__ = ["Decoder", "MAX_BODY_BYTES"]

MAX_BODY_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"

_THINKING = ("reasoning_content", "reasoning", "reasoning_text")


class Decoder:
    """Decodes one answer.

    Args:
        quirks: the endpoint's, all of them.
        names: our names of the tools whose name had to be changed for the wire.
        request_id: the provider's id of the request, if the headers had it.

    Attributes:
        done: whether `[DONE]` came: nothing behind it counts.
        finished: whether a finish reason came: the answer is whole, whatever happens to the connection.
        begun: whether anything of the answer came.
        error: what the next call raises: it came behind the chunks that the last call returned.
    """

    def __init__(
        self, quirks: Quirks = DEFAULTS, names: Mapping[str, str] | None = None, request_id: str | None = None
    ) -> None:
        self.done = False
        self.begun = False
        self.error: ProviderError | None = None
        self.request_id = request_id
        self._quirks = quirks
        self._parser: EventParser | None = None
        self._head = b""
        self._json: list[bytes] | None = None
        self._size = 0
        self._out: list[Chunk] = []
        self._blocks = 0
        self._open: tuple[str, int] | None = None  # the text or thinking block that goes on
        self._held = ""  # a high surrogate whose other half may come with the next piece
        self._calls = CallSlots(self._new_block, names or {})
        self._markup = MarkupReader() if quirks.dsml else None
        self._echo: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._finish: str | None = None
        self._refused = False
        self._spoke = False  # text, a call or an opaque part came: more than thinking

    @property
    def finished(self) -> bool:
        """Whether a finish reason came."""
        return self._finish is not None

    # --- bytes --------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Chunk]:
        """Take the next bytes of the body and return what they bring.

        Raises:
            ProviderError: the server says that it failed, or sends what cannot be read.
        """
        return self._collect(lambda: self._feed(data))

    def end(self) -> list[Chunk]:
        """Take the end of the body; return the last chunks, the FinishChunk last unless the stream is torn.

        Raises:
            ProviderError: as feed; or the answer is empty, or says that it calls tools and calls none.
        """
        return self._collect(self._finish_body)

    def _collect(self, act: Callable[[], None]) -> list[Chunk]:
        """What an act brings. Chunks that came before an error come out first, however the bytes were cut."""
        if self.error is not None:
            raise self.error
        self._out = []
        try:
            act()
        except ProviderError as exc:
            self.error = exc
            if not self._out:
                raise
        return self._out

    def _feed(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_BODY_BYTES:
            raise self._malformed(f"expected an answer of at most {MAX_BODY_BYTES} bytes, got a longer one")
        if self._parser is not None:
            self._events(self._parser, data)
        elif self._json is not None:
            self._json.append(data)
        else:
            self._sniff(data)

    def _finish_body(self) -> None:
        if self._json is not None:
            try:
                document = loads(b"".join(self._json))
            except ValueError as exc:
                raise self._malformed(f"expected a whole JSON answer, got one that cannot be read: {exc}") from None
            document = document[0] if isinstance(document, list) and document else document
            self._frame(document)
            if isinstance(document, dict) and not document.get("choices"):
                raise from_document(document, request_id=self.request_id)
        elif self._parser is not None:
            for event in self._parser.end():
                self._event(event)
        self._close()

    def _sniff(self, data: bytes) -> None:
        """Tell a stream from a document by its first byte: content types are often wrong."""
        self._head = (self._head + data).lstrip().removeprefix(_BOM).lstrip()
        if not self._head or _BOM.startswith(self._head):
            return
        data, self._head = self._head, b""
        if data[:1] in (b"{", b"["):
            self._json = [data]
        elif data[:1] == b"<":
            said = preview(clean(data.decode("utf-8", "replace"))[0], 200)
            raise self._malformed(f"expected a stream of events or JSON, got a page: {said}; is base_url right?")
        else:
            self._parser = EventParser()
            self._events(self._parser, data)

    def _events(self, parser: EventParser, data: bytes) -> None:
        try:
            events = parser.feed(data)
        except TooLong as exc:
            raise self._malformed(f"the stream cannot be read: {exc}") from None
        for event in events:
            self._event(event)

    def _event(self, event: Event) -> None:
        data = event.data.strip()
        if self.done or not data:
            return
        if data == b"[DONE]":
            self.done = True
            return
        try:
            frame = loads(data)
        except ValueError as exc:
            if event.name == "error":
                raise from_frame(
                    data.decode("utf-8", "replace"), begun=self.begun, request_id=self.request_id
                ) from None
            if not event.whole or self.finished or event.name in ("ping", "keepalive", "heartbeat"):
                return  # a frame that was cut, or noise behind a whole answer: the stream is torn without a finish
            raise self._malformed(f"expected JSON in each event, got one that cannot be read: {exc}") from None
        if event.name == "error":
            raise from_frame(frame, begun=self.begun, request_id=self.request_id)
        if isinstance(frame, dict):
            self._frame(frame)
        elif not event.name and not self.finished:
            raise self._malformed(f"expected an object in each event, got {preview(repr(frame), 100)}")

    # --- frames -------------------------------------------------------------------------------------

    def _frame(self, frame: Any) -> None:
        if not isinstance(frame, dict):
            raise self._malformed(f"expected an answer object, got {preview(repr(frame), 100)}")
        if frame.get("error") or frame.get("type") == "error" or frame.get("object") == "error":
            raise from_frame(frame, begun=self.begun, request_id=self.request_id)
        if self.request_id is None and isinstance(id_ := frame.get("id"), str):
            self.request_id = clean(id_)[0] or None
        groq = frame.get("x_groq")
        self._count(groq.get("usage") if isinstance(groq, dict) else None)
        choices = frame.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (0, None, "0"):
                self._choice(choice)
        self._count(frame.get("usage"))

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage = merge_counts(self._usage, usage)

    def _choice(self, choice: dict[str, Any]) -> None:
        if choice.get("error"):
            raise from_frame(choice, begun=self.begun, request_id=self.request_id)
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict):
            self._delta(delta, whole=False)
        elif isinstance(message, dict) and not self.begun:  # some repeat the whole answer at the end of a stream
            self._delta(message, whole=True)
        self._count(choice.get("usage"))
        reason = choice.get("finish_reason")
        if not reason or reason == "null" or self._finish is not None:
            return
        self._finish = reason.lower() if isinstance(reason, str) else "other"
        if self._finish in FAILED:
            failed = {
                "error": {"code": self._finish, "message": f"the answer ended with finish reason {self._finish!r}"}
            }
            raise from_frame(failed, begun=self.begun, request_id=self.request_id)

    def _delta(self, delta: dict[str, Any], *, whole: bool) -> None:
        """Take what one frame adds to the answer: thinking before text, text before calls."""
        for member in _THINKING:
            if said := _plain(delta.get(member)):
                self._say("thinking", said, member)
                break
        content = delta.get("content")
        if isinstance(content, str):
            self._content(content)
        elif isinstance(content, list):
            for part in content:
                self._part(part)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            self._say("text", refusal)
        calls = delta.get("tool_calls")
        if isinstance(calls, dict):
            calls = [calls]
        for n, entry in enumerate(calls if isinstance(calls, list) else ()):
            self._call(entry, fresh=whole or (n > 0 and isinstance(entry, dict) and entry.get("index") is None))
        if isinstance(legacy := delta.get("function_call"), dict):
            self._call({"function": legacy}, fresh=whole)
        for member in self._quirks.echo:
            if (value := delta.get(member)) is not None:
                self._echo[member] = joined(self._echo.get(member), value)

    def _part(self, part: Any) -> None:
        """Take one part of a content list."""
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, str):
            self._content(part)
        elif kind in ("text", "output_text") and isinstance(part.get("text"), str):
            self._content(part["text"])
        elif kind == "thinking" and (said := _plain(part.get("thinking"))):
            self._say("thinking", said, "thinking")
        elif kind == "refusal" and (said := _plain(part.get("refusal"))):
            self._refused = True
            self._say("text", said)
        elif isinstance(part, dict) and kind is not None and kind not in ("text", "thinking"):
            self._end_block()
            self._spoke = True
            self._emit(OpaqueChunk(self._new_block(), clean_json(part)[0]))

    # --- chunks -------------------------------------------------------------------------------------

    def _emit(self, chunk: Chunk) -> None:
        self.begun = True
        self._out.append(chunk)

    def _new_block(self) -> int:
        self._blocks += 1
        return self._blocks - 1

    def _content(self, text: str) -> None:
        if self._markup is None:
            self._say("text", text)
            return
        try:
            for piece in self._markup.push(text):
                if isinstance(piece, str):
                    self._say("text", piece)
                else:
                    self._call({"name": piece.name, "arguments": piece.arguments}, fresh=True)
        except BadMarkup as exc:
            raise self._malformed(str(exc)) from None

    def _say(self, kind: str, text: str, member: str | None = None) -> None:
        """Add to the open block of this kind, or open one; the halves of a surrogate pair stay together."""
        if not text:
            return
        if self._open is None or self._open[0] != kind:
            self._end_block()
            self._open = (kind, self._new_block())
        elif self._held:
            text, self._held = _paired(self._held + text), ""
        else:
            member = None
        index = self._open[1]
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        if kind == "text":
            self._spoke = True
        if text:
            self._emit(TextChunk(index, text) if kind == "text" else ThinkingChunk(index, text))
            if member is not None:
                self._emit(MetadataChunk(member, index))  # the member it came in, so that it goes back there

    def _end_block(self) -> None:
        if self._held and self._open is not None:
            kind, index = self._open
            self._emit(TextChunk(index, self._held) if kind == "text" else ThinkingChunk(index, self._held))
        self._held, self._open = "", None

    def _call(self, entry: Any, *, fresh: bool) -> None:
        self._end_block()
        try:
            chunk = self._calls.push(entry, fresh=fresh)
        except ValueError as exc:
            raise self._malformed(str(exc)) from None
        if chunk is not None:
            self._spoke = True
            self._emit(chunk)

    # --- the ending ---------------------------------------------------------------------------------

    def _close(self) -> None:
        reason = FINISH.get(self._finish, "other") if self._finish is not None else None
        lenient = reason is None and self._quirks.lenient_finish and self._spoke
        if reason is None and not lenient:
            return  # torn (M6); half a character or half a mark is shown to nobody
        if self._markup is not None:
            if not self._markup.inside:
                self._say("text", self._markup.end())
            elif reason != "max_tokens":
                raise self._malformed("the answer ended inside DSML call markup")
        self._end_block()
        reason = self._judged(reason or "stop")
        for slot in self._calls.slots:
            if slot.extra:
                self._emit(MetadataChunk(dumps(slot.extra), slot.block))
        if self._echo:
            self._emit(MetadataChunk(dumps(self._echo)))
        if (usage := read_usage(self._usage)) is not None:
            self._emit(UsageChunk(usage))
        self._emit(FinishChunk(reason, self.request_id, lenient))

    def _judged(self, reason: str) -> str:
        """The reason in the light of what came: servers say stop where they mean other things."""
        if self._calls.slots:
            return "tool_calls" if reason in ("stop", "other") else reason
        if reason == "tool_calls":
            raise self._malformed("the answer says that it calls tools, and calls none")
        if reason == "stop" and self._refused:
            return "refusal"
        if reason == "stop" and not self._spoke:
            raise malformed(
                "the answer is empty: neither text nor a call",
                begun=self.begun,
                request_id=self.request_id,
                code="EMPTY_RESPONSE",
            )
        return reason

    def _malformed(self, what: str) -> ProviderError:
        return malformed(what, begun=self.begun, request_id=self.request_id)


def _plain(value: Any) -> str:
    """The text of a member that is a text, an object around one, or a list of those."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _plain(value.get("text") or value.get("content"))
    if isinstance(value, list):
        return "".join(_plain(item) for item in value if isinstance(item, (str, dict)))
    return ""


def _paired(text: str) -> str:
    """Join surrogate pairs; lone halves stay, to be counted where the text is cleaned (L9)."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
