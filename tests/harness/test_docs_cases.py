"""docs/cases.md: the tests it names are there, and what is not yet shown says why."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| ([A-Z]\d\d) \|.*\| ([^|]*) \|$", (ROOT / "docs" / "cases.md").read_text("utf-8"), re.M)


def test_each_report_names_tests_that_are_there_or_says_why_not_yet() -> None:
    assert len(ROWS) == len({case for case, _ in ROWS}) > 140
    for case, shown in ROWS:
        if shown.startswith("not yet"):
            assert len(shown) > len("not yet: ") + 10, case
            continue
        for each in shown.split("<br>"):
            path, _, test = each.partition("::")
            assert f"def {test}(" in (ROOT / "tests" / path).read_text("utf-8"), case
