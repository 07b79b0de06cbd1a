"""The texts of rules and commands: parsing with positions, any text at all, and rules that are too open."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkrein_permissions.rules import parse_rule, risk_of


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", None, "expected a rule"),
        ("   ", None, "expected a rule"),
        ("read file", 5, "tool's name"),
        ("(x)", 1, "tool's name"),
        ("shell(git *", 12, "closing )"),
        ("shell(git) *", 13, "closing )"),
        ("shell()", 7, "shell"),
        ("write(path=)", 12, "a pattern"),
        ("write(../**)", 7, "canonical"),
        ("write(path=../x)", 12, "canonical"),
        ("write(~/x)", 7, "absolute"),
        ("effect:readonly", 8, "did you mean 'read_only'"),
        ("effects:read_only", 1, "did you mean 'effect'"),
        ("a" * 2_001, 2_001, "at most"),
    ],
)
def test_H5_a_broken_rule_says_what_and_where(text: str, position: int | None, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        parse_rule(text)
    if position is not None:
        assert f"at position {position}" in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_rule_or_a_ValueError(text: str) -> None:
    try:
        assert parse_rule(text).text == text
    except ValueError as problem:
        assert "expected" in str(problem)


@example(["then", "0"])  # shlex quotes no reserved words: it is not plain
@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4))
def test_quoted_words_are_read_as_they_are(words: list[str]) -> None:
    from checkrein_permissions.commands import parse

    command = parse(shlex.join(words))
    if command.plain:
        assert list(command.simple[0]) == words


@pytest.mark.parametrize("rule", ["shell(python *)", "shell(sudo *)", "shell(bash -c *)", "shell(command=xargs *)"])
def test_case_A05_open_rules_for_interpreters_are_pointed_out(rule: str) -> None:
    assert "runs any program" in (risk_of(parse_rule(rule)) or "")


@pytest.mark.parametrize("rule", ["shell(git *)", "shell(python setup.py)", "python", "write_file(path=python *)"])
def test_other_rules_are_not_pointed_out(rule: str) -> None:
    assert risk_of(parse_rule(rule)) is None
