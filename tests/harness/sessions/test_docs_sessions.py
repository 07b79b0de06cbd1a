"""docs/sessions.md: each Python block is run, and each command exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkrein.cli.crashtest import crashtest
from checkrein.cli.sessions import sessions

PAGE = (Path(__file__).parents[3] / "docs" / "sessions.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_a_block_runs(code):
    exec(compile(code, "docs/sessions.md", "exec"), {})


def test_each_command_and_option_of_the_page_exists():
    named = set(re.findall(r"`checkrein sessions (\w+)", PAGE))
    assert named | {"show"} == set(sessions.commands)
    known = {opt for command in [crashtest, *sessions.commands.values()] for p in command.params for opt in p.opts}
    assert set(re.findall(r"--\w+", PAGE)) - {"--resume"} <= known
