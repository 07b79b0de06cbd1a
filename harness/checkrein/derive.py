"""The derived history: what the model sees, kept up to date event by event (L8, EVENTS.md).

Total: whatever sequence of events comes, the history it derives is balanced. Results follow their
answer at once, one per call, in the model's order; what is missing is filled in honest words; what
has no call is left out. A full re-derivation gives the same list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from .events import AssistantAnswer, CompactionSummary
from .messages import (
    USER,
    AssistantMessage,
    Block,
    CallBlock,
    Content,
    MediaBlock,
    Message,
    Source,
    TextBlock,
    ThinkingBlock,
    ToolMessage,
    UserMessage,
    View,
)
from .text import decode_json

__all__ = ["History", "WORDS", "is_object"]

# What the model reads for a call that has no result of its own; the codes are EVENTS.md's.
WORDS = {
    "NOT_STARTED": "cancelled before execution: the tool was not started",
    "OUTCOME_UNKNOWN": (
        "cancelled during execution: the tool was started and its outcome is unknown;"
        " it may have run, so check before you repeat it"
    ),
}
NO_OUTPUT = "(no output)"

_object = msgspec.json.Decoder(dict[str, Any]).decode


def is_object(arguments: str) -> bool:
    """Whether a call's raw argument text is one complete JSON object, each value of which JSON can carry again."""
    try:
        _object(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    else:
        return True
    try:
        return isinstance(decode_json(arguments), dict)
    except ValueError:
        return False


class History:
    """The messages a request is made of, each with the log position it came from.

    Attributes:
        messages: the derived messages; only appended to, except when a summary replaces a range.
        seqs: the seq of the event each message came from, ascending.
        epoch: grows when messages were not only appended to.
    """

    __slots__ = (
        "messages",
        "seqs",
        "epoch",
        "_owed",
        "_names",
        "_got",
        "_begun",
        "_ended",
        "_held",
        "_ids",
        "_answer_seq",
    )

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.seqs: list[int] = []
        self.epoch = 0
        self._owed: list[str] = []  # calls of the last answer whose result is not in `messages` yet
        self._names: dict[str, str] = {}
        self._got: dict[str, ToolMessage] = {}  # results that came before an earlier sibling's
        self._begun: dict[str, None] = {}  # a dict takes a quarter of a set's memory while it is empty
        self._ended: dict[str, tuple[Content, bool]] = {}  # what a tool/end said, used if its tool/result never comes
        self._held: list[tuple[int, Content]] = []  # what plugins say while calls are open, told behind the results
        self._ids: dict[str, None] = {}
        self._answer_seq = -1

    # --- building ---------------------------------------------------------------------------------

    def user(self, seq: int, content: Sequence[Block], source: Source) -> None:
        """Add an input of any kind as a user message."""
        blocks = visible(content)
        if not blocks:
            return
        self.fill()
        if prefix := source.prefix:
            first = blocks[0]
            if type(first) is TextBlock:
                blocks = [TextBlock(prefix + first.text, first.provider_metadata), *blocks[1:]]
            else:
                blocks = [TextBlock(prefix), *blocks]
        self.messages.append(UserMessage(blocks))
        self.seqs.append(seq)

    def aside(self, seq: int, content: Sequence[Block]) -> None:
        """Add a plugin's visible message; while results are owed it waits behind them (I8)."""
        if not self._owed:
            self.user(seq, content, USER)
        elif blocks := visible(content):
            self._held.append((seq, blocks))

    def answer(
        self, event: AssistantAnswer, thinking: dict[int, tuple[str, str | None]], provider: str, model: str
    ) -> None:
        """Add an answer; its calls owe results from here on."""
        self.fill()
        blocks: Content = []
        calls: list[CallBlock] = []
        told = False
        for block in event.content:
            if type(block) is TextBlock:
                if not block.text:
                    continue
                told = True
            elif type(block) is CallBlock:
                if block.call_id in self._ids:
                    continue
                self._ids[block.call_id] = None
                if not is_object(block.arguments):
                    block = CallBlock(block.call_id, block.name, "{}", block.provider_metadata)
                calls.append(block)
                told = True
            elif type(block) is ThinkingBlock:
                text, metadata = thinking.get(block.index, ("", None))
                if not text and metadata is None:
                    continue
                block = ThinkingBlock(block.index, text, metadata)
            else:
                told = True
            blocks.append(block)
        if not told or not self.messages:
            return  # nothing left, or a leading answer: its results are orphans and left out too
        self.messages.append(AssistantMessage(blocks, provider or None, model or None, event.provider_metadata))
        self.seqs.append(event.seq)
        self._answer_seq = event.seq
        for call in calls:
            self._owed.append(call.call_id)
            self._names[call.call_id] = call.name

    def begun(self, call_id: str) -> None:
        """Note that a call began to run: without a result its outcome is unknown."""
        if call_id in self._names:
            self._begun[call_id] = None

    def ended(self, call_id: str, content: Content, is_error: bool) -> None:
        """Note a `tool/end`: it becomes the result if no `tool/result` comes."""
        if call_id in self._names:
            self._ended[call_id] = content, is_error

    def result(
        self, seq: int, call_id: str, content: Sequence[Block], is_error: bool, provider_call_id: str | None
    ) -> None:
        """Add a call's result, at its place in the model's order; one without a call is left out."""
        name = self._names.get(call_id)
        if name is None or call_id in self._got:
            return
        blocks = visible(content) or [TextBlock(NO_OUTPUT)]
        message = ToolMessage(call_id, name, blocks, is_error, provider_call_id)
        if len(self._owed) == 1 and not self._held:  # the most common case of what follows
            self.messages.append(message)
            self.seqs.append(seq)
            self._settled()
            return
        self._got[call_id] = message
        self._emit(seq)

    def _emit(self, seq: int) -> None:
        owed = self._owed
        done = 0
        for call_id in owed:
            message = self._got.get(call_id)
            if message is None:
                break
            self.messages.append(message)
            self.seqs.append(seq)
            done += 1
        if done == len(owed):
            self._settled()
            held, self._held = self._held, []
            for held_seq, blocks in held:
                self.messages.append(UserMessage(blocks))
                self.seqs.append(max(held_seq, self.seqs[-1]))
        elif done:
            del owed[:done]

    def _settled(self) -> None:
        """Forget the calls of the last answer: each has its result."""
        self._owed = []
        self._names.clear()
        self._begun.clear()
        if self._got:
            self._got.clear()
        if self._ended:
            self._ended.clear()

    def fill(self) -> None:
        """Answer what is still owed, in honest words: something else is about to follow."""
        if not self._owed:
            return
        for call_id in self._owed:
            self._got.setdefault(call_id, self._missing(call_id))
        self._emit(max(self.seqs[-1], self._answer_seq))

    def _missing(self, call_id: str) -> ToolMessage:
        if call_id in self._ended:
            content, is_error = self._ended[call_id]
            return ToolMessage(call_id, self._names[call_id], visible(content) or [TextBlock(NO_OUTPUT)], is_error)
        code = "OUTCOME_UNKNOWN" if call_id in self._begun else "NOT_STARTED"
        return ToolMessage(call_id, self._names[call_id], [TextBlock(WORDS[code])], True)

    def replace(self, event: CompactionSummary) -> None:
        """Put a summary in the place of the messages of its range."""
        content = event.message.get("content")
        text = content if isinstance(content, str) else _loose_text(content)
        first, last = event.range
        self.fill()
        pairs = list(zip(self.seqs, self.messages, strict=True))
        kept = [pair for pair in pairs if not first <= pair[0] <= last]
        if len(kept) == len(pairs):
            return
        at = next((i for i, pair in enumerate(pairs) if first <= pair[0]), len(pairs))
        summary: Message = UserMessage([TextBlock(text or NO_OUTPUT)])
        kept.insert(at, (pairs[at][0], summary))
        self._set(balanced(kept))

    def _set(self, pairs: list[tuple[int, Message]]) -> None:
        # In place: views over the old list belong to requests already sent.
        self.messages = [message for _, message in pairs]
        self.seqs = [seq for seq, _ in pairs]
        self.epoch += 1

    # --- reading ----------------------------------------------------------------------------------

    def view(self) -> View:
        """The history as a request sends it: nothing owed, the last message user or tool."""
        if self._owed:
            owed = [self._got.get(call_id) or self._missing(call_id) for call_id in self._owed]
            return View([*self.messages, *owed, *(UserMessage(blocks) for _, blocks in self._held)])
        n = len(self.messages)
        while n and type(self.messages[n - 1]) is AssistantMessage:
            n -= 1
        return View(self.messages, n)


def visible(content: Sequence[Block]) -> Content:
    """The blocks a model can read: no empty text, nothing that belongs to an answer only."""
    return [b for b in content if (type(b) is TextBlock and b.text) or type(b) is MediaBlock]


def balanced(pairs: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
    """Make a list whole again after a cut: orphan results out, missing results in, no leading answer."""
    out: list[tuple[int, Message]] = []
    owed: list[CallBlock] = []
    answer_seq = 0

    def fill() -> None:
        for call in owed:
            words = [TextBlock(WORDS["OUTCOME_UNKNOWN"])]
            out.append((answer_seq, ToolMessage(call.call_id, call.name, list[Block](words), True)))
        owed.clear()

    for seq, message in pairs:
        if type(message) is ToolMessage:
            match = next((call for call in owed if call.call_id == message.call_id), None)
            if match is not None:
                owed.remove(match)
                out.append((seq, message))
            continue
        fill()
        if type(message) is AssistantMessage:
            if not out:
                continue
            owed, answer_seq = list(message.calls), seq
        out.append((seq, message))
    fill()
    return out


def _loose_text(content: Any) -> str:
    if not isinstance(content, list):
        return ""
    return "".join(block["text"] for block in content if isinstance(block, dict) and isinstance(block.get("text"), str))
