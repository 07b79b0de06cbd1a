"""The Python of docs/embedding.md, docs/plugins.md and examples/ runs, and prints what it says."""

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
    for page in ("embedding", "plugins")
    for n, code in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text("utf-8"), re.S)
    )
]
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
