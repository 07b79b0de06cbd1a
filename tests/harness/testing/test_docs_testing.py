"""docs/testing.md: each Python block is run, and each script in it is a script."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import checkrein.testing
from checkrein.testing import parse_script, turns_of
from checkrein.testing.script_data import TurnData

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python"]


@pytest.mark.parametrize("code", PYTHON, ids=[re.search(r"def (test_\w+)", code).group(1) for code in PYTHON])
def test_a_block_runs(code):
    names = {}
    exec(compile(code, str(PAGE), "exec"), names)
    for name, value in list(names.items()):
        if name.startswith("test_"):
            value()


def test_the_scripts_are_scripts():
    scripts = [tomllib.loads(code) for language, code in BLOCKS if language == "toml"]
    assert len([turns_of(parse_script(data)) for data in scripts if "turns" in data]) == 1


def test_each_member_of_a_turn_is_described():
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in TurnData.__struct_fields__ if f"`{name}`" not in page] == []


def test_each_word_of_a_script_is_described():
    page = PAGE.read_text(encoding="utf-8")
    words = checkrein.testing._HOME[".scripted"].split()[1:]
    assert [word for word in words if f"{word}(" not in page] == []


def test_all_names_of_the_kit_exist():
    for name in checkrein.testing.__all__:
        assert getattr(checkrein.testing, name) is not None
    assert set(checkrein.testing.__all__) <= set(dir(checkrein.testing))
    with pytest.raises(AttributeError, match="nothing"):
        _ = checkrein.testing.nothing
