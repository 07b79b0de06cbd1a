"""The Python of docs/embedding.md, docs/plugins.md, docs/tools.md and examples/ runs, and prints what it says."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = [
    pytest.param(code, id=f"{page}-{n}")
    for page in ("embedding", "plugins", "tools")
    for n, code in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text("utf-8"), re.S)
    )
]
FEATURES = (ROOT / "docs" / "features.md").read_text("utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("code", BLOCKS)
def test_block_of_a_page(code, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "page", "exec", dont_inherit=True), {"__name__": "__main__", "folder": tmp_path})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_prints_what_its_docstring_says(example, tmp_path):
    text = example.read_text("utf-8")
    says = inspect.cleandoc(text.split("Prints:\n")[1].split('"""')[0].rstrip())
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.rstrip()) == (0, says), done.stderr


def test_each_feature_names_a_test_that_is_there_or_says_not_yet():
    rows = [line.strip("| ").split(" | ") for line in FEATURES.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if row != ["feature", "shown by"]]
    assert len(rows) > 40
    for name, shown in rows:
        if shown == "not yet":
            continue
        path, _, test = shown.partition("::")
        assert f"def {test}(" in (ROOT / "tests" / path).read_text("utf-8"), name


def test_every_exit_code_is_documented():
    from checkrein.cli import EXIT_CODES
    from checkrein.results import EXIT_CODES as BY_REASON

    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.M)}
    assert documented >= {code for _, code in EXIT_CODES} | set(BY_REASON.values()) | {6, 8}
