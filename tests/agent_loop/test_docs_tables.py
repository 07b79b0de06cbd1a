"""docs/seed-tests.md, docs/traps.md and docs/cases.md name tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"([\w/]+\.py)::(test_\w+)")


def rows(page: str) -> list[list[str]]:
    """The rows of a page's tables, without their heads."""
    lines = (ROOT / "docs" / page).read_text("utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in cells if row[-1] != "shown by" and row[-1] != "shown right by"]


@pytest.mark.parametrize(("page", "at_least"), [("seed-tests.md", 80), ("traps.md", 55), ("cases.md", 145)])
def test_each_row_names_a_test_that_is_there_or_says_not_yet(page, at_least):
    found = rows(page)
    assert len(found) >= at_least
    for row in found:
        named = TEST.findall(row[-1])
        assert named or (page == "cases.md" and row[-1].startswith("not yet")), row
        for file, test in named:
            assert f"def {test}(" in (ROOT / "tests" / file).read_text("utf-8"), (row[0], file, test)


def test_each_trap_and_each_report_stands_once():
    traps = [row[0] for row in rows("traps.md") if re.fullmatch(r"X\d+", row[0])]
    assert traps == [f"X{n}" for n in range(1, 23)]
    cases = [row[0] for row in rows("cases.md")]
    assert len(cases) == len(set(cases)) == 145


def test_every_loop_case_is_shown():
    """The kinds that concern the loop: none is missing but what needs a shell tool."""
    kinds = {"pairing", "steering-queue", "loops-limits", "async-cancel", "parallel-tools"}
    missing = [row[0] for row in rows("cases.md") if row[1] in kinds and row[-1].startswith("not yet")]
    assert missing in ([], ["T12"])
