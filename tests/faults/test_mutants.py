"""The proof notices when a protection is taken out: each kept mutant turns the small suite red."""

from __future__ import annotations

import pytest
from figures import count
from mutants import MUTANTS
from small_suite import suite

pytestmark = [
    pytest.mark.checkrein_oracle_off(reason="these agents are broken on purpose"),
    pytest.mark.filterwarnings("ignore"),  # what a broken agent leaves behind
]


def test_the_suite_is_green_without_a_mutant() -> None:
    assert suite() == []


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    found = suite()
    count("mutants: kept ones caught", bool(found))
    assert found, f"nothing noticed the mutant: {name}"
