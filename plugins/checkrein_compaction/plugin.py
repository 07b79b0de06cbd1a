"""The plugin: when a request outgrows its budget, leave the oldest part of the history out, and keep it out.

A cut stays as it is, byte for byte, until the budget is passed again, so that the provider's cache
holds (O26). It lives in the log only, as `request/start.edits` of the last request, so a resumed
session goes on with it (L1). Nothing here calls a model, fails a turn, or shortens a message:
what cannot be cut is sent, and the provider's own refusal is the error.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from checkrein.events import RequestEnd, RequestStart
from checkrein.hookspecs import hookimpl
from checkrein.messages import Edit, Message, Request, TextBlock, ToolMessage, UserMessage, View

from .estimate import estimate_message_tokens, estimate_system_tokens
from .trim import MARKER_PREFIX, TrimOutcome, budget_tokens, culprit_of, plan_cut

if TYPE_CHECKING:
    from checkrein.agents import AgentLike
    from checkrein.session import Session

__all__ = ["DEFAULT_WINDOW_TOKENS", "NAME", "Plugin"]

NAME = "compaction"
# For a model whose provider does not tell its window: a limit nobody knows must not mean no limit.
DEFAULT_WINDOW_TOKENS = 128_000
OVERFLOW = "CONTEXT_WINDOW_EXCEEDED"
# What the provider counted corrects the estimates, less so for small requests, where the factor is noise.
DAMPING_TOKENS = 2_000
FACTOR = (0.5, 4.0)
_REQUESTS = frozenset((RequestStart, RequestEnd))


class Measured(Struct, frozen=True):
    """What the log says of the session's last request: how it was cut and what it came to."""

    edit: Edit | None = None
    seq: int = -1
    tokens: int | None = None
    overflow: bool = False


class _Sums(Struct):
    """Prefix sums of one session's history, kept while it only grows, so that a step costs what it adds."""

    session: Session
    sums: list[int] = field(default_factory=lambda: [0])
    first: Message | None = None
    last: Message | None = None
    fixed: tuple[Any, Any, int] = ((), (), 0)

    def update(self, request: Request) -> tuple[list[int], int]:
        """Return the prefix sums of the request's messages, and the estimate of everything else in it."""
        messages, known = request.messages, len(self.sums) - 1
        if known > len(messages) or (known and (messages[0] is not self.first or messages[known - 1] is not self.last)):
            del self.sums[1:]
            known = 0
        if known == 0:
            self.first = messages[0]
        for message in messages[known:]:
            self.sums.append(self.sums[-1] + estimate_message_tokens(message))
            self.last = message
        system, tools, tokens = self.fixed
        if system != request.system or tools != request.tools:
            tokens = estimate_system_tokens(request.system, request.tools)
            self.fixed = (request.system, request.tools, tokens)
        return self.sums, tokens


class Plugin:
    """Keeps each agent's requests within its model's context window."""

    class Config(Struct, frozen=True):
        """`[plugins.compaction]`.

        Attributes:
            enabled: whether anything is cut at all.
            window_tokens: the context window, at least 1; None takes the provider's, or 128,000 if it has none.
            threshold: the share of the window a request may take, above 0, at most 1.
            keep_recent: how many of the newest messages a cut keeps at most, at least 1.
        """

        enabled: bool = True
        window_tokens: int | None = None
        threshold: float = 0.8
        keep_recent: int = 10

        def __post_init__(self) -> None:
            if self.window_tokens is not None and self.window_tokens < 1:
                raise ValueError(f"window_tokens: expected at least 1, got {self.window_tokens}; use enabled = false")
            if not 0 < self.threshold <= 1:
                raise ValueError(f"threshold: expected a share above 0 and at most 1, got {self.threshold}")
            if self.keep_recent < 1:
                raise ValueError(f"keep_recent: expected at least 1 message, got {self.keep_recent}")

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self._sums: dict[str, _Sums] = {}
        self._outcomes: dict[str, TrimOutcome] = {}

    def report(self, agent: AgentLike) -> TrimOutcome | None:
        """Return what became of the agent's last request, in estimates; None before the first one."""
        return self._outcomes.get(agent.id)

    @hookimpl
    def agent_request(self, agent: AgentLike, request: Request) -> Request | None:
        """Return the request within its budget; None if it fits as it is."""
        config = self._config(agent)
        if not config.enabled:
            self._outcomes[agent.id] = TrimOutcome("off")
            return None
        if not isinstance(request.messages, View) or len(request.seqs) < len(request.messages):
            return None  # another plugin has rewritten the history, and answers for its size
        outcome, edit = self._decide(agent, request, config, last_request(agent.session.events))
        self._outcomes[agent.id] = outcome
        if edit is None:
            return None
        low, high = _range(edit, request.seqs)
        return request.drop(low, high - 1, edit.marker)

    @hookimpl
    def agent_disposed(self, agent: AgentLike) -> None:
        """Forget the agent's sums."""
        self._sums.pop(agent.id, None)
        self._outcomes.pop(agent.id, None)

    def _decide(
        self, agent: AgentLike, request: Request, config: Config, last: Measured
    ) -> tuple[TrimOutcome, Edit | None]:
        """Return the outcome and the edit to make: the one in force, a new one, or none."""
        sums, fixed = self._summed(agent, request)
        kept = last.edit if last.edit is not None and _applies(last.edit, request) else None
        before = fixed + sums[-1] - (_removed(kept, request.seqs, sums) if kept else 0)
        window = config.window_tokens or self._window(agent, request)
        reserve = request.settings.get("max_tokens")
        budget = budget_tokens(window, config.threshold, reserve if isinstance(reserve, int) else 0)
        budget = max(1, int(budget / _factor(last, request.seqs, sums, fixed)))
        if last.overflow:  # the provider has just refused this very size, whatever the estimate says
            budget = min(budget, max(1, before - 1))
        if before <= budget:
            return TrimOutcome("fits", budget, fixed + sums[-1], before), kept
        cut = plan_cut(request.messages, sums, fixed, budget, config.keep_recent, before)
        after = before if cut is None else cut.tokens_after
        kind, culprit = ("trimmed", None) if after <= budget else ("over_budget", culprit_of(fixed, after))
        edit = kept if cut is None else Edit((request.seqs[cut.first], request.seqs[cut.last]), cut.marker)
        return TrimOutcome(kind, budget, fixed + sums[-1], after, cut, culprit), edit

    def _summed(self, agent: AgentLike, request: Request) -> tuple[list[int], int]:
        known = self._sums.get(agent.id)
        if known is None or known.session is not agent.session:
            known = self._sums[agent.id] = _Sums(agent.session)
        return known.update(request)

    def _config(self, agent: AgentLike) -> Config:
        if not agent.spec.plugins.get(NAME):
            return self.config
        config: Plugin.Config = agent.harness.plugins.config_for(NAME, agent.spec)
        return config

    def _window(self, agent: AgentLike, request: Request) -> int:
        provider = agent.harness.providers.get(request.provider)
        window = provider.window_tokens(request.model) if provider is not None else None
        return window or DEFAULT_WINDOW_TOKENS


def last_request(events: Sequence[Any]) -> Measured:
    """Return what the log says of the last request, found from the end (L1)."""
    end: RequestEnd | None = None
    for event in reversed(events):
        if type(event) not in _REQUESTS:
            continue
        if type(event) is RequestStart:
            return Measured(_own_edit(event.edits), event.seq, _prompt_tokens(end), _overflowed(end))
        end = end or event
    return Measured()


def _own_edit(edits: dict[str, Any] | None) -> Edit | None:
    """The cut, if it is one of ours: known by its marker, for `plugin` names the last that touched the request."""
    if edits is None:
        return None
    try:
        edit = msgspec.convert(edits, Edit)
    except msgspec.ValidationError:
        return None
    return edit if edit.marker.startswith(MARKER_PREFIX) else None


def _prompt_tokens(end: RequestEnd | None) -> int | None:
    """The provider's count of the whole prompt: its parts are disjoint (M10)."""
    usage = end.usage if end is not None else None
    if usage is None or usage.input is None:
        return None
    return usage.input + (usage.cache_read or 0) + (usage.cache_write or 0)


def _overflowed(end: RequestEnd | None) -> bool:
    return end is not None and end.error is not None and end.error.code == OVERFLOW


def _range(edit: Edit, seqs: Sequence[int]) -> tuple[int, int]:
    return bisect_left(seqs, edit.drop[0]), bisect_right(seqs, edit.drop[1])


def _applies(edit: Edit, request: Request) -> bool:
    """Whether the edit still names whole groups of this history, which a summary may have replaced."""
    low, high = _range(edit, request.seqs)
    if low >= high or high >= len(request.seqs):
        return False
    return not isinstance(request.messages[low], ToolMessage) and not isinstance(request.messages[high], ToolMessage)


def _removed(edit: Edit, seqs: Sequence[int], sums: Sequence[int]) -> int:
    low, high = _range(edit, seqs)
    return sums[high] - sums[low] - estimate_message_tokens(UserMessage([TextBlock(edit.marker)]))


def _factor(last: Measured, seqs: Sequence[int], sums: Sequence[int], fixed: int) -> float:
    """How many real tokens one estimated token was in the last request."""
    if last.tokens is None:
        return 1.0
    estimated = fixed + sums[bisect_left(seqs, last.seq)]
    if last.edit is not None:
        estimated -= _removed(last.edit, seqs, sums)
    factor = (last.tokens + DAMPING_TOKENS) / (max(0, estimated) + DAMPING_TOKENS)
    return min(FACTOR[1], max(FACTOR[0], factor))
