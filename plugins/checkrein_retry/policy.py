"""When a failed request is sent again: a pure function of the error, the attempt, and chance."""

from __future__ import annotations

import math

from msgspec import Struct

from checkrein.errors import PluginError, ProviderError

__all__ = ["RetryConfig", "delay_s"]

MOST_DOUBLINGS = 64


class RetryConfig(Struct, frozen=True, kw_only=True):
    """`[plugins.retry]`.

    Attributes:
        max_retries: how often one request is sent again; 0 = never.
        first_delay_s: seconds before the first time; doubled for each further one.
        max_delay_s: the longest delay of our own, in seconds.
        jitter: how far a delay may be off by chance, as a fraction of it, 0 to 1.
        max_retry_after_s: the longest wait a provider may ask for, in seconds; if it asks for more, nobody waits.
        after_text: whether a request is sent again though the answer's text had begun to be shown.
    """

    max_retries: int = 5
    first_delay_s: float = 0.5
    max_delay_s: float = 10.0
    jitter: float = 0.1
    max_retry_after_s: float = 60.0
    after_text: bool = True

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise PluginError(f"expected 0 or more, got {value}", plugin="retry", path=f"plugins.retry.{name}")
        if self.jitter > 1:
            raise PluginError(
                f"expected a fraction of 0 to 1, got {self.jitter}", plugin="retry", path="plugins.retry.jitter"
            )


def delay_s(error: ProviderError, attempt: int, config: RetryConfig, chance: float) -> float | None:
    """Return after how many seconds to send the request again; None to let it fail.

    Args:
        error: how the attempt failed; one that is not `retryable` stays failed.
        attempt: the attempt that failed, from 1.
        config: the policy.
        chance: a random number, 0 to 1; many clients that failed at once must not come back at once.
    """
    if not error.retryable or attempt > config.max_retries:
        return None
    doubled = config.first_delay_s * 2.0 ** min(attempt - 1, MOST_DOUBLINGS)
    own_s = min(doubled, config.max_delay_s) * (1 + config.jitter * (2 * chance - 1))
    asked_s = error.retry_after_s
    if asked_s is None:
        return own_s
    if not asked_s <= config.max_retry_after_s:
        return None  # too long for somebody who waits; sooner would only be refused again
    return max(own_s, asked_s * (1 + config.jitter * chance))  # never sooner than asked
