"""The plugin: asks the policy, and knows whether the answer's text had begun where that matters."""

from __future__ import annotations

import random
from collections.abc import Callable

from checkrein.agents import AgentLike
from checkrein.chunks import Chunk, TextChunk
from checkrein.decisions import Retry
from checkrein.errors import ProviderError
from checkrein.hookspecs import hookimpl

from .policy import RetryConfig, delay_s

__all__ = ["Plugin"]


class Plugin:
    """The plugin `retry`.

    Args:
        config: `[plugins.retry]`.
        chance: gives random numbers of 0 to 1.
    """

    Config = RetryConfig

    def __init__(self, config: RetryConfig | None = None, chance: Callable[[], float] = random.random) -> None:
        self.config = config or RetryConfig()
        self._chance = chance
        self._spoke: dict[str, tuple[int, int]] = {}  # agent -> the last step whose text had begun
        if not self.config.after_text:
            self._watch()

    @hookimpl
    def request_error(self, agent: AgentLike, turn: int, step: int, error: ProviderError, attempt: int) -> Retry | None:
        """Send the request again if the policy says so."""
        if self._spoke.get(agent.id) == (turn, step):
            return None
        after_s = delay_s(error, attempt, self.config, self._chance())
        return None if after_s is None else Retry(after_s)

    @hookimpl
    def agent_disposed(self, agent: AgentLike) -> None:
        """Forget the agent."""
        self._spoke.pop(agent.id, None)

    def _watch(self) -> None:
        """Look at the chunks; only where the config asks for it, as each one costs time."""
        spoke = self._spoke

        @hookimpl
        def stream_chunk(agent: AgentLike, turn: int, step: int, chunk: Chunk) -> None:
            if type(chunk) is TextChunk:
                spoke[agent.id] = (turn, step)

        self.stream_chunk = stream_chunk
