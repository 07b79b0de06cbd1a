"""docs/oracle.md says what RULES says, and its Python works."""

from __future__ import annotations

import re
from pathlib import Path

from checkrein_invariants import RULES
from checkrein_invariants.samples import everything

DOC = Path(__file__).parents[2] / "docs" / "oracle.md"
START, END = "to checkrein_invariants.RULES -->\n", "<!-- end of rules -->"


def table() -> str:
    rows = [f"| {rule.id} | {rule.text} | {rule.needs} | {rule.severity} |\n" for rule in RULES.values()]
    return "| rule | | needs | severity |\n|---|---|---|---|\n" + "".join(rows)


def test_the_table_of_rules() -> None:
    """Written anew by `python tests/invariants/test_docs.py`."""
    text = DOC.read_text(encoding="utf-8")
    assert text[text.index(START) + len(START) : text.index(END)] == table()


def test_all_26_rules_are_there_in_order() -> None:
    assert list(RULES) == [f"O{n}" for n in range(1, 27)]
    assert all(rule.id == key and rule.needs in ("log", "live", "deep") for key, rule in RULES.items())


def test_the_python_of_the_page_works() -> None:
    (code,) = re.findall(r"## From Python\n\n```python\n(.*?)```", DOC.read_text(encoding="utf-8"), re.S)
    log = everything()

    class State:
        class history:  # noqa: N801
            @staticmethod
            def view() -> list[object]:
                return []

    class Session:
        events = log.events
        state = State

    exec(code, {"session": Session, "events": log.events})


if __name__ == "__main__":
    text = DOC.read_text(encoding="utf-8")
    DOC.write_text(text[: text.index(START) + len(START)] + table() + text[text.index(END) :], encoding="utf-8")
