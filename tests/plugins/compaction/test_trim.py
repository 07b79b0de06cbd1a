"""Trimming: cases from public reports, properties over any history, and a naive oracle."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein.messages import (
    AssistantMessage,
    CallBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolMessage,
    UserMessage,
    content_text,
)
from checkrein_compaction import MARKER_PREFIX, TrimResult, estimate_message_tokens, trim_context
from checkrein_compaction.estimate import prefix_sums
from checkrein_compaction.trim import GOAL, MIN_GAIN, budget_tokens, plan_cut


def user(text: str) -> Message:
    return UserMessage([TextBlock(text)])


def says(text: str) -> Message:
    return AssistantMessage([TextBlock(text)])


def calls(*ids: str) -> Message:
    return AssistantMessage([CallBlock(call_id, "tool", "{}") for call_id in ids])


def result(call_id: str, text: str) -> Message:
    return ToolMessage(call_id, "tool", [TextBlock(text)])


def texts(messages: Sequence[Message]) -> list[str]:
    return [content_text(message.content) for message in messages]


def size(messages: Sequence[Message]) -> int:
    return sum(map(estimate_message_tokens, messages))


def check_pairing(messages: Sequence[Message]) -> None:
    """What strict providers ask: begin with user, each call answered at once, no result without a call."""
    assert type(messages[0]) is UserMessage
    owed: list[str] = []
    for message in messages:
        if type(message) is ToolMessage:
            assert message.call_id in owed, f"result {message.call_id} without a call"
            owed.remove(message.call_id)
        else:
            assert not owed, f"calls {owed} unanswered"
            if type(message) is AssistantMessage:
                owed = [call.call_id for call in message.calls]
    assert not owed


def trimmed(messages: Sequence[Message], window: int, keep: int = 10, system: int = 0) -> TrimResult:
    return trim_context(messages, system, window, 0.8, keep)


def loop(n: int, size_bytes: int, first: str = "the task") -> list[Message]:
    """A task followed by n steps, each a call and its result."""
    out: list[Message] = [user(first)]
    for i in range(n):
        out += [calls(f"c{i}"), result(f"c{i}", "x" * size_bytes)]
    return out


# --- the known facts --------------------------------------------------------------------------------


def test_within_budget_nothing_changes() -> None:
    messages = loop(3, 40)
    got = trimmed(messages, 10_000)
    assert got.messages is messages and got.outcome.kind == "fits"
    assert got.outcome.tokens_before == got.outcome.tokens_after == size(messages)


def test_window_0_is_off() -> None:
    messages = loop(50, 4_000)
    assert trim_context(messages, 0, 0).outcome.kind == "off"


def test_the_budget_is_exact_at_its_border() -> None:
    messages = [user("a" * 80), says("b" * 80), user("c" * 80)]  # 24 tokens each
    assert trim_context(messages, 8, 100, 0.8).outcome.kind == "fits"
    assert trim_context(messages, 9, 100, 0.8).outcome.kind != "fits"


def test_the_marker_names_count_and_tokens() -> None:
    got = trimmed(loop(40, 400), 2_500, keep=4)
    cut = got.outcome.cut
    assert cut is not None and got.outcome.kind == "trimmed"
    marker = content_text(got.messages[1].content)
    assert marker.startswith(MARKER_PREFIX)
    assert f"{cut.last - cut.first + 1} message(s)" in marker and f"~{cut.tokens_removed} tokens" in marker


def test_after_is_what_is_sent_with_marker_and_system_counted() -> None:
    got = trimmed(loop(40, 400), 2_500, system=300)
    assert got.outcome.tokens_after == 300 + size(got.messages) <= got.outcome.budget_tokens


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.5, 1.0, 7.0])
def test_threshold_is_clamped(threshold: float) -> None:
    assert budget_tokens(100, threshold) == max(1, int(100 * min(1, max(0, threshold))))


def test_case_C19_one_budget_leaves_room_for_the_answer() -> None:
    assert budget_tokens(200_000, 0.8, 64_000) == 136_000
    assert budget_tokens(200_000, 0.8, 10_000) == 160_000
    messages = loop(100, 5_600)  # about 142,000 tokens
    assert trim_context(messages, 0, 200_000).outcome.kind == "fits"
    assert trim_context(messages, 0, 200_000, output_tokens=64_000).outcome.kind == "trimmed"


# --- public reports ---------------------------------------------------------------------------------


def test_case_P07_a_result_is_never_kept_without_its_call() -> None:
    messages = [user("u" * 4_000), calls("toolu_A"), result("toolu_A", "r" * 400), says("text"), user("next")]
    for keep in range(1, 6):
        got = trimmed(messages, 1_000, keep)
        assert got.outcome.cut is not None
        check_pairing(got.messages)


def test_case_P09_a_tool_heavy_loop_is_cut_between_steps() -> None:
    messages = loop(3, 400, "Review PR")
    got = trim_context(messages, 0, 300, 0.8, 4)
    assert len(got.messages) < len(messages)
    check_pairing(got.messages)
    assert texts(got.messages)[0] == "Review PR"


def test_case_P10_never_begins_with_an_assistant_nor_ends_in_a_lone_call() -> None:
    open_end = [user("u" * 2_000), says("a" * 2_000), user("go"), calls("c1")]
    got = trimmed(open_end, 500, keep=1)
    assert type(got.messages[0]) is UserMessage
    assert texts(got.messages)[-2:] == ["go", ""], "the call alone is no history"
    only = [user("u" * 4_000), calls("c1")]
    assert trimmed(only, 100, keep=1).messages is only


def test_case_C10_the_task_is_pinned() -> None:
    got = trimmed(loop(30, 4_000), 10_000)
    assert texts(got.messages)[0] == "the task"
    huge_last = [user("the task"), calls("c1"), result("c1", "x" * 400_000)]
    assert trimmed(huge_last, 10_000).messages is huge_last


def test_case_C10_a_task_too_long_to_keep_is_quoted() -> None:
    got = trimmed(loop(30, 4_000, "find the bug " + "p" * 20_000), 10_000)
    assert got.outcome.kind == "trimmed"
    assert texts(got.messages)[0].startswith(MARKER_PREFIX) and "> find the bug ppp" in texts(got.messages)[0]


def test_case_C18_the_users_words_are_quoted() -> None:
    messages = [*loop(3, 400), user("never  commit"), *loop(30, 4_000, "go on"), user("[from cron] tick")]
    marker = texts(trimmed(messages, 10_000).messages)[1]
    assert "> never commit" in marker and "> go on" in marker and "cron" not in marker


def test_case_C01_a_floor_over_budget_is_reported_not_repeated() -> None:
    messages = [*loop(10, 100), user("x" * 40_000)]
    got = trimmed(messages, 11_000, system=1_000)
    assert got.outcome.kind == "over_budget" and got.outcome.culprit == "messages"
    assert trimmed(got.messages, 11_000, system=1_000).outcome.cut is None


def test_case_C02_overhead_alone_over_the_window_is_named() -> None:
    messages = loop(10, 400)
    got = trimmed(messages, 4_000, system=5_000)
    assert got.outcome.kind == "over_budget" and got.outcome.culprit == "system"


def test_case_C07_a_session_of_tool_output_makes_progress() -> None:
    got = trimmed(loop(35, 32_000), 100_000)
    assert got.outcome.kind == "trimmed"
    assert got.outcome.tokens_after <= GOAL * got.outcome.budget_tokens
    check_pairing(got.messages)
    one_step: list[Message] = [user("go"), calls(*map(str, range(35)))]
    one_step += [result(str(i), "x" * 32_000) for i in range(35)]
    stuck = trimmed(one_step, 100_000)
    assert stuck.messages is one_step and stuck.outcome.kind == "over_budget"


def test_case_C12_no_cut_for_a_little() -> None:
    messages = [user("task"), calls("a"), result("a", "x" * 2_000), calls("b"), result("b", "y" * 500_000)]
    got = trimmed(messages, 100_000)
    assert got.messages is messages and got.outcome.kind == "over_budget"


def test_case_R12_thinking_is_kept_whole_or_not_at_all() -> None:
    thought: Message = AssistantMessage([ThinkingBlock(0, "t" * 400, "signature"), CallBlock("z", "tool", "{}")])
    messages = [*loop(30, 400), thought, result("z", "r")]
    got = trimmed(messages, 2_500, keep=3)
    assert got.outcome.cut is not None and any(message is thought for message in got.messages)


def test_a_cut_makes_room_for_many_steps() -> None:
    messages, cuts = loop(1, 4_000), 0
    for i in range(200):
        messages += [calls(f"d{i}"), result(f"d{i}", "x" * 4_000)]
        got = trimmed(messages, 50_000, keep=1_000)
        if got.outcome.cut is not None:
            messages, cuts = list(got.messages), cuts + 1
    assert 5 <= cuts <= 12  # 200 steps of 1,000 tokens, 20,000 of room after each cut


def test_trimming_is_linear() -> None:
    def seconds(n: int) -> float:
        messages = loop(n, 40)
        start = time.perf_counter()
        trimmed(messages, 10_000)
        return time.perf_counter() - start

    small = min(seconds(1_000) for _ in range(3))
    assert min(seconds(10_000) for _ in range(3)) < 40 * small  # quadratic would be 100 times


@pytest.mark.parametrize("window", [600, 4_096, 128_000])
def test_what_the_user_asks_now_is_quoted_however_small_the_window(window: int) -> None:
    messages = [user("the task"), says("done"), user("an old wish " + "o" * 500), says("done")]
    messages += loop(100, window // 10, "what is asked now " + "n" * 500)
    got = trimmed(messages, window, keep=3)
    marker = texts(got.messages)[1]
    assert got.outcome.kind == "trimmed" and "> what is asked now nnn" in marker and "> an old wish ooo" in marker


def test_planning_a_cut_reads_no_more_of_what_is_dropped_than_it_quotes() -> None:
    read = 0

    class Content(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            nonlocal read
            read += 1
            return super().__iter__()

    messages: list[Message] = [UserMessage(Content([TextBlock(f"say {i} " + "x" * 80)])) for i in range(5_000)]
    sums, read = prefix_sums(messages), 0
    cut = plan_cut(messages, sums, 0, 2_000, 10, sums[-1])
    assert cut is not None and cut.last > 4_900 and f"> say {cut.last} " in cut.marker
    assert "> say 1 " in cut.marker and read < 50  # each step asks again while the system prompt alone is too long


# --- properties -------------------------------------------------------------------------------------

lengths = st.one_of(st.integers(0, 60), st.integers(0, 1_500))


@st.composite
def groups(draw: st.DrawFn) -> list[Message]:
    kind = draw(st.sampled_from(["user", "assistant", "calls"]))
    text = draw(st.sampled_from("ab漢")) * draw(lengths)
    if kind == "user":
        return [user(text)]
    if kind == "assistant":
        return [says(text or "x")]
    ids = [f"c{draw(st.integers(0, 10**9))}.{i}" for i in range(draw(st.integers(1, 3)))]
    return [calls(*ids), *(result(i, "r" * draw(lengths)) for i in ids)]


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    tail = draw(st.lists(groups(), max_size=25))
    return [user("task " * draw(st.integers(1, 200))), *(message for group in tail for message in group)]


def safe(messages: Sequence[Message], index: int) -> bool:
    """The oracle's own word for a boundary: nothing before it is answered behind it, or owes an answer."""
    owed: set[str] = set()
    for message in messages[:index]:
        if type(message) is AssistantMessage:
            owed |= {call.call_id for call in message.calls}
        elif type(message) is ToolMessage:
            owed.discard(message.call_id)
    return not owed and type(messages[index]) is not ToolMessage


@settings(max_examples=150)
@given(histories(), st.integers(0, 400), st.integers(1, 3_000), st.floats(0, 1), st.integers(-1, 30))
def test_any_history_is_balanced_and_within_budget_or_minimal(
    messages: list[Message], system: int, window: int, threshold: float, keep: int
) -> None:
    before = list(messages)
    got = trim_context(messages, system, window, threshold, keep)
    assert messages == before
    outcome = got.outcome
    check_pairing(got.messages)
    assert got.messages[-1] is messages[-1] and outcome.tokens_after == system + size(got.messages)
    kept = [message for message in got.messages if not texts([message])[0].startswith(MARKER_PREFIX)]
    assert all(any(one is other for other in messages) for one in kept), "kept messages are the originals"
    assert (outcome.cut is None) == (got.messages is messages)
    if outcome.cut is not None:
        assert outcome.tokens_after < outcome.tokens_before
        assert got.messages[0] is messages[0] or f"> {texts(messages)[0][:4]}" in texts(got.messages)[0]
    if outcome.kind == "over_budget":
        slack = MIN_GAIN * outcome.budget_tokens + 1
        assert outcome.tokens_after <= smallest(messages, system, outcome.budget_tokens) + slack
    else:
        assert outcome.tokens_after <= outcome.budget_tokens


def smallest(messages: Sequence[Message], system: int, budget: int) -> float:
    """The least any cut could come to, tried one by one, with the task pinned where it is short enough."""
    first = 1 if estimate_message_tokens(messages[0]) <= budget / 4 else 0
    ends = [index for index in range(first + 1, len(messages)) if safe(messages, index)]
    if not ends:
        return system + size(messages)
    marker = estimate_message_tokens(user(longest_marker(messages))) + min(500, max(50, budget // 20))
    return min(system + size(messages[:first]) + marker + size(messages[end:]) for end in ends)


@settings(max_examples=120)
@given(histories(), st.integers(0, 400), st.integers(1, 3_000), st.integers(1, 30))
def test_trimming_is_idempotent(messages: list[Message], system: int, window: int, keep: int) -> None:
    once = trim_context(messages, system, window, 0.8, keep)
    again = trim_context(once.messages, system, window, 0.8, keep)
    assert again.messages is once.messages and again.outcome.kind in ("fits", once.outcome.kind)


@settings(max_examples=120)
@given(histories(), st.integers(0, 400), st.integers(100, 3_000), st.integers(1, 30))
def test_the_cut_is_the_naive_one(messages: list[Message], system: int, window: int, keep: int) -> None:
    """Differential: the same choice by trying every boundary and summing anew, quadratically."""
    outcome = trim_context(messages, system, window, 0.8, keep).outcome
    if outcome.cut is None:
        return
    first, n = outcome.cut.first, len(messages)
    quota = min(500, max(50, outcome.budget_tokens // 20))
    marker = estimate_message_tokens(user(longest_marker(messages))) + quota
    ends = [index for index in range(first + 1, n) if safe(messages, index)]
    good = [
        end
        for end in ends
        if end >= n - keep
        and system + size(messages[:first]) + marker + size(messages[end:]) <= int(outcome.budget_tokens * GOAL)
    ]
    assert outcome.cut.last + 1 == (good[0] if good else ends[-1])


def longest_marker(messages: Sequence[Message]) -> str:
    from checkrein_compaction.trim import _QUOTE_HEAD, _marker

    return _marker(len(messages), size(messages)) + _QUOTE_HEAD
