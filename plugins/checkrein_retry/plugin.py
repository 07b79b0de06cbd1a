"""The plugin: asks the policy, for an agent with the keys it overrides."""

from __future__ import annotations

import random
from collections.abc import Callable

from checkrein.agents import AgentLike
from checkrein.decisions import Retry
from checkrein.errors import ProviderError
from checkrein.events import AssistantPartial, RequestStart
from checkrein.hookspecs import hookimpl

from .policy import RetryConfig, delay_s

__all__ = ["Plugin"]

NAME = "retry"


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

    @hookimpl
    def request_error(self, agent: AgentLike, error: ProviderError, attempt: int) -> Retry | None:
        """Send the request again if the policy says so."""
        config = self._config(agent)
        after_s = delay_s(error, attempt, config, self._chance())
        if after_s is None or (not config.after_text and _text_shown(agent)):
            return None
        return Retry(after_s)

    def _config(self, agent: AgentLike) -> RetryConfig:
        if not agent.spec.plugins.get(NAME):
            return self.config
        config: RetryConfig = agent.harness.plugins.config_for(NAME, agent.spec)
        return config


def _text_shown(agent: AgentLike) -> bool:
    """Whether the attempt that failed had begun to show the answer's text: the log says so."""
    for event in reversed(agent.session.events):
        if isinstance(event, AssistantPartial):
            return True
        if isinstance(event, RequestStart):
            break
    return False
