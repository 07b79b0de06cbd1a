"""checkrein_retry: a model request that failed is sent again, later and later, a few times (M9)."""

from __future__ import annotations

from .plugin import Plugin
from .policy import RetryConfig, delay_s

__all__ = ["Plugin", "RetryConfig", "delay_s"]
