"""Fills the last column of docs/cases.md: the tests that name each public report.

    python tools/gen_cases.py           rewrite the page
    python tools/gen_cases.py --check   say whether it is up to date

A test names a report by its id, in its own name: `test_case_P02_...`, or `test_P21_T11_...` where the id is no
rule's. The rows (id, kind, report) are kept as they are, and so is what stands behind `not yet`: the reason, which
goes when a test names the report.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cases.md"
ROW = re.compile(r"^\| ([A-Z]\d\d) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$")
TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
RULES = {"C10", "C11", "C12"}  # rules of SEMANTICS.md that look like ids of reports
MISSING = "not yet"


def tests_by_case(files: Iterable[Path]) -> dict[str, list[str]]:
    """The tests that name each report, as `file::test`, by its id."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(files):
        for name in TEST.findall(file.read_text(encoding="utf-8")):
            words = name.split("_")
            explicit = "case" in words
            for word in dict.fromkeys(words):
                if re.fullmatch(r"[A-Z]\d\d", word) and (explicit or word not in RULES):
                    found[word].append(f"{file.relative_to(ROOT / 'tests').as_posix()}::{name}")
    return found


def page(text: str, found: dict[str, list[str]]) -> str:
    """The page with its last column filled anew."""
    lines = []
    for line in text.splitlines():
        if (row := ROW.match(line)) is not None:
            case, kind, report, shown = row.groups()
            missing = shown if shown.startswith(MISSING) else MISSING
            line = f"| {case} | {kind} | {report} | {'<br>'.join(found.get(case, [])) or missing} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Rewrite the page, or only compare it; the exit code is 1 if it was to be compared and differs."""
    before = PAGE.read_text(encoding="utf-8")
    after = page(before, tests_by_case((ROOT / "tests").rglob("test_*.py")))
    if "--check" in arguments:
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
