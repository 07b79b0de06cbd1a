"""What the README says runs, and says what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)
CONSOLE = re.findall(r"```console\n(.*?)\n```", README, re.S)


def test_the_two_commands_are_the_issue_s():
    assert CONSOLE == [
        "python3 -m venv .venv && .venv/bin/pip install -q . &&"
        ' .venv/bin/checkrein run "What is in this folder, and which files are the largest?"',
        "python3 -m venv .venv && .venv/bin/pip install -q -e '.[dev]' && .venv/bin/pytest",
    ]
    ci = (Path(__file__).parents[2] / ".ci" / "run").read_text()
    assert CONSOLE[1] in ci


def test_the_example_prints_what_its_comments_say(tmp_path):
    code = PYTHON[0]
    said = re.findall(r"print\(.*\)\s+# (.*)\n", code)
    assert len(said) == 3
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.splitlines()) == (0, said), done.stderr


def test_the_plugin_works_from_its_entry_point_line_and_table(cli):
    code = PYTHON[1]
    group, name, target = re.search(r'\[project\.entry-points\."(.*?)"\]\s+(\w+) = "(.*?)"', code).groups()
    table, setting = re.search(r"checkrein\.toml:\s+\[(.*?)\]\s+(.*)\n", code).groups()
    assert (group, target) == ("checkrein.plugins", "acme_limit:Plugin")
    cli.install(name, code, module="acme_limit")
    calls = ", ".join('{ name = "dirty" }' for _ in range(3))
    cli.script(f"{{ calls = [{calls}] }}", '"done"', more=f"[{table}]\n{setting}\n")
    done = cli.run("run", "go")
    assert (done.code, done.out) == (0, "done\n"), done.err
    assert done.err.count("too many calls in one turn") == 3


def test_every_page_it_names_is_there():
    root = Path(__file__).parents[2]
    missing = [page for page in re.findall(r"\]\((docs/[^)]*)\)", README) if not (root / page).exists()]
    assert missing == []
