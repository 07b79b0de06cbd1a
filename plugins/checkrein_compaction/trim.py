"""Cutting a history that outgrew its budget: pure functions over neutral messages, linear in their number.

A cut leaves out one run of messages and puts a marker in its place. It never splits a call from its
results, never cuts inside a message, keeps the newest messages and the first task. When to cut, and
how a cut lives on in the log, is plugin.py's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from msgspec import Struct

from checkrein.messages import AssistantMessage, Message, TextBlock, ToolMessage, UserMessage, content_text

from .estimate import estimate_tokens, prefix_sums

__all__ = ["Cut", "TrimOutcome", "TrimResult", "budget_tokens", "plan_cut", "trim_context", "MARKER_PREFIX"]

MARKER_PREFIX = "[context-trimmed]"
# A cut breaks the provider's cache, so it makes room for many steps at once: it aims at this share of the budget.
GOAL = 0.5
# A cut that still does not fit is made only if it frees at least this share of the budget.
MIN_GAIN = 0.05
# The first task is kept whole up to this share of the budget; a longer one is quoted in the marker.
PIN = 0.25
QUOTE_TOKENS = (50, 500)  # what a marker quotes of the user's own words: a twentieth of the budget within these
QUOTE_BYTES = 400  # of one message
_TEMPLATE = (
    "{prefix} To stay within the context budget, {count} message(s), ~{tokens} tokens, were left out here. "
    "Go on from what follows; ask the user to restate what is missing."
)
_QUOTE_HEAD = "\nThe user's words in them:"


class Cut(Struct, frozen=True):
    """Messages `first` to `last` (indices, both included) are left out, `marker` stands in their place.

    Attributes:
        tokens_removed: the estimate of what is left out, the marker not yet counted.
        tokens_after: the estimate of the whole request after the cut.
    """

    first: int
    last: int
    marker: str
    tokens_removed: int
    tokens_after: int


class TrimOutcome(Struct, frozen=True):
    """What trimming came to.

    Attributes:
        kind: `off` (no window), `fits`, `trimmed`, or `over_budget`: what must be kept does not fit, so the
            request goes out as small as it can be made, and the provider decides.
        budget_tokens: the budget, in tokens; 0 when off.
        tokens_before: the estimate of the request before, system prompt and schemas included.
        tokens_after: the estimate after.
        cut: what was left out, if anything.
        culprit: with `over_budget`, the largest part: `system` (prompt and schemas) or `messages` (the newest ones).
    """

    kind: str
    budget_tokens: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    cut: Cut | None = None
    culprit: str | None = None


class TrimResult(Struct, frozen=True):
    """The messages to send and what was done to them."""

    messages: Sequence[Message]
    outcome: TrimOutcome


def budget_tokens(window_tokens: int, threshold: float, output_tokens: int = 0) -> int:
    """Return the one budget everything is measured by.

    Args:
        window_tokens: the model's context window, at least 1.
        threshold: the share of it a request may take, 0 to 1; values outside are clamped.
        output_tokens: what the answer may take; the window must hold it beside the request.
    """
    share = int(window_tokens * min(1.0, max(0.0, threshold)))
    return max(1, min(share, window_tokens - output_tokens))


def trim_context(
    messages: Sequence[Message],
    system_tokens: int,
    window_tokens: int,
    threshold: float = 0.8,
    keep_recent: int = 10,
    *,
    output_tokens: int = 0,
) -> TrimResult:
    """Cut a history that is over its budget.

    Args:
        messages: the history, oldest first; never changed.
        system_tokens: the estimate of system prompt and tool schemas (estimate_system_tokens).
        window_tokens: the model's context window; 0 switches trimming off.
        threshold: the share of the window a request may take, 0 to 1.
        keep_recent: after a cut at most so many of the newest messages are kept, at least 1; rounded
            down to whole groups of calls and results, but the newest group always stays.
        output_tokens: what the answer may take.

    Returns:
        The messages to send, the same object if nothing was cut, and the outcome.
    """
    if window_tokens <= 0:
        return TrimResult(messages, TrimOutcome("off"))
    sums = prefix_sums(messages)
    budget = budget_tokens(window_tokens, threshold, output_tokens)
    before = system_tokens + sums[-1]
    if before <= budget:
        return TrimResult(messages, TrimOutcome("fits", budget, before, before))
    cut = plan_cut(messages, sums, system_tokens, budget, keep_recent, before)
    after = before if cut is None else cut.tokens_after
    kind, culprit = ("trimmed", None) if after <= budget else ("over_budget", culprit_of(system_tokens, after))
    outcome = TrimOutcome(kind, budget, before, after, cut, culprit)
    if cut is None:
        return TrimResult(messages, outcome)
    marker = UserMessage([TextBlock(cut.marker)])
    return TrimResult([*messages[: cut.first], marker, *messages[cut.last + 1 :]], outcome)


def culprit_of(system_tokens: int, total_tokens: int) -> str:
    """Name the larger part of a request that does not fit."""
    return "system" if system_tokens * 2 > total_tokens else "messages"


def plan_cut(
    messages: Sequence[Message], sums: Sequence[int], system_tokens: int, budget: int, keep_recent: int, before: int
) -> Cut | None:
    """Choose the cut for a history that is over its budget.

    Args:
        messages: the whole history.
        sums: its prefix_sums.
        system_tokens: the estimate of everything else in the request.
        budget: in tokens.
        keep_recent: messages kept at most, but for the newest group.
        before: the estimate of the request as it would go out without a new cut.

    Returns:
        The cut; None if no cut helps.
    """
    n = len(messages)
    first = 1 if n and _is_task(messages[0]) and sums[1] <= budget * PIN else 0
    quota = min(max(budget // 20, QUOTE_TOKENS[0]), QUOTE_TOKENS[1])
    largest_marker = estimate_tokens(_marker(n, sums[-1]) + _QUOTE_HEAD) + 4 + quota
    room = int(budget * GOAL) - system_tokens - sums[first] - largest_marker
    # Suffixes shrink towards the end: the first index whose suffix has room, and keeps few enough messages.
    fitting = bisect_left(sums, sums[-1] - room)
    start = _boundary(messages, max(fitting, n - max(1, keep_recent), first + 1))
    if start is None or all(_is_marker(message) for message in messages[first:start]):
        return None
    removed = sums[start] - sums[first]
    marker = _marker(start - first, removed) + _quotes(messages[first:start], quota)
    after = system_tokens + sums[-1] - removed + 4 + estimate_tokens(marker)
    gain = before - after
    if gain <= 0 or (after > budget and gain < budget * MIN_GAIN):
        return None
    return Cut(first, start - 1, marker, removed, after)


def _boundary(messages: Sequence[Message], wanted: int) -> int | None:
    """Return the first safe boundary at or after `wanted`, else the last one there is, else None."""
    n = len(messages)
    for index in range(wanted, n):
        if _is_safe(messages, index):
            return index
    for index in range(min(wanted, n) - 1, 0, -1):
        if _is_safe(messages, index):
            return index
    return None


def _is_safe(messages: Sequence[Message], index: int) -> bool:
    """Whether history may begin anew here: no call before it is open, and what follows is no lone call."""
    here, previous = messages[index], messages[index - 1]
    if type(here) is ToolMessage or (type(previous) is AssistantMessage and previous.calls):
        return False
    return index < len(messages) - 1 or not (type(here) is AssistantMessage and here.calls)


def _is_marker(message: Message) -> bool:
    return type(message) is UserMessage and content_text(message.content).startswith(MARKER_PREFIX)


def _is_task(message: Message) -> bool:
    return type(message) is UserMessage and not _is_marker(message)


def _marker(count: int, tokens: int) -> str:
    return _TEMPLATE.format(prefix=MARKER_PREFIX, count=count, tokens=tokens)


def _quotes(dropped: Sequence[Message], quota: int) -> str:
    """Quote what the user said in the dropped messages: the newest, the first, then the newest that still fit."""
    size = min(QUOTE_BYTES, (quota // 2 - 5) * 4)  # so that two have room: what is asked now, and how it began
    kept: dict[int, str] = {}
    newest = _said(dropped, newest_first=True)  # read no further than there is room: what was dropped may be long
    for index, text in chain(islice(newest, 1), islice(_said(dropped), 1), newest):
        if index in kept:
            continue
        line = _clip(text, size)
        quota -= estimate_tokens(line)
        if quota < 0:
            break
        kept[index] = line
    return "".join([_QUOTE_HEAD, *(kept[index] for index in sorted(kept))]) if kept else ""


def _said(messages: Sequence[Message], *, newest_first: bool = False) -> Iterator[tuple[int, str]]:
    """What the user said, each with its index."""
    for index in reversed(range(len(messages))) if newest_first else range(len(messages)):
        if _is_task(messages[index]):
            text = content_text(messages[index].content)
            if text and not text.startswith("[from "):
                yield index, text


def _clip(text: str, size: int) -> str:
    raw = " ".join(text.split()).encode("utf-8", "replace")
    shown = raw if len(raw) <= size else raw[:size] + " …".encode()
    return f"\n> {shown.decode('utf-8', 'ignore')}"
