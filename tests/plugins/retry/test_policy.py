"""When a failed request is sent again: the pure policy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein.errors import PluginError, ProviderError
from checkrein_retry import RetryConfig, delay_s

CONFIG = RetryConfig()
MIDDLE = 0.5  # no jitter


def failed(retryable: bool = True, after_s: float | None = None) -> ProviderError:
    return ProviderError("x", code="SERVER", retryable=retryable, retry_after_s=after_s)


def test_the_delays_double_up_to_ten_seconds_five_times():
    delays = [delay_s(failed(), attempt, CONFIG, MIDDLE) for attempt in range(1, 8)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, None, None]
    longer = RetryConfig(max_retries=20)
    assert delay_s(failed(), 7, longer, MIDDLE) == 10.0
    assert delay_s(failed(), 10_000, RetryConfig(max_retries=20_000), MIDDLE) == 10.0


def test_jitter_is_ten_percent_either_way():
    assert delay_s(failed(), 1, CONFIG, 0.0) == pytest.approx(0.45)
    assert delay_s(failed(), 1, CONFIG, 1.0) == pytest.approx(0.55)


def test_what_will_not_pass_is_not_tried_again():
    assert delay_s(failed(retryable=False), 1, CONFIG, MIDDLE) is None
    assert delay_s(failed(), 1, RetryConfig(max_retries=0), MIDDLE) is None


def test_a_wait_that_is_asked_for_is_kept_up_to_the_bound():
    assert delay_s(failed(after_s=7.0), 1, CONFIG, 0.0) == 7.0
    assert delay_s(failed(after_s=0.0), 1, CONFIG, MIDDLE) == 0.5
    assert delay_s(failed(after_s=60.0), 1, CONFIG, 0.0) == 60.0
    assert delay_s(failed(after_s=60.1), 1, CONFIG, 0.0) is None
    assert delay_s(failed(after_s=math.nan), 1, CONFIG, 0.0) is None


@given(st.integers(1, 50), st.floats(0, 1), st.none() | st.floats(0, 120), st.integers(0, 50), st.booleans())
def test_every_delay_is_bounded_and_never_sooner_than_asked(attempt, chance, asked_s, retries, retryable):
    config = RetryConfig(max_retries=retries)
    got = delay_s(failed(retryable, asked_s), attempt, config, chance)
    if got is None:
        assert not retryable or attempt > retries or (asked_s is not None and asked_s > config.max_retry_after_s)
    else:
        assert retryable
        assert (asked_s or 0.0) <= got <= max(config.max_delay_s, config.max_retry_after_s) * 1.1


@pytest.mark.parametrize("wrong", [{"max_retries": -1}, {"jitter": 1.5}, {"first_delay_s": math.inf}])
def test_a_config_that_cannot_work_is_refused(wrong):
    with pytest.raises(PluginError, match=r"plugins\.retry\."):
        RetryConfig(**wrong)
