"""The gates of the house: lint, format, types, and the size of files and functions."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("harness", "agent_loop", "plugins", "invariants")
FILE_LINES, FUNCTION_LINES = 400, 70


def gate(*argv: str) -> str:
    """What a tool prints when it is not content; empty when it is."""
    done = subprocess.run(
        [sys.executable, "-m", *argv], cwd=ROOT, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL
    )
    return "" if done.returncode == 0 else done.stdout[-6_000:] + done.stderr[-2_000:]


def test_lint() -> None:
    """ruff finds nothing."""
    assert not (found := gate("ruff", "check", ".")), found


def test_format() -> None:
    """Everything is formatted."""
    assert not (found := gate("ruff", "format", "--check", ".")), found


def test_types_of_the_product() -> None:
    """mypy, strict, finds nothing in any of our packages."""
    assert not (found := gate("mypy")), found


def test_types_of_the_examples() -> None:
    """As a user's own mypy, strict, sees them: what is documented needs no comment to be quiet."""
    assert not (found := gate("mypy", *map(str, sorted(ROOT.glob("examples/*.py"))))), found


@pytest.mark.slow
def test_types_as_pyright_sees_them() -> None:
    """pyright finds nothing either (it runs on Node.js)."""
    if shutil.which("node") is None:
        pytest.skip("pyright needs Node.js")
    assert not (found := gate("pyright", "--pythonpath", sys.executable)), found


def too_long(source: str, where: str) -> list[str]:
    """What of a file is over its limit, itself or one of its functions."""
    found = []
    if (lines := source.count("\n")) > FILE_LINES:
        found.append(f"{where}: expected at most {FILE_LINES} lines, got {lines}; split the file by subject")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES:
                at = f"{where}:{node.lineno}: {node.name}"
                found.append(f"{at}: expected at most {FUNCTION_LINES} lines, got {lines}; give its parts names")
    return found


@pytest.mark.parametrize("root", [*PRODUCT, "tests"])
def test_size_of_files_and_functions(root: str) -> None:
    """No file, of the product or of its tests, is over 400 lines, and no function over 70."""
    files = sorted((ROOT / root).rglob("*.py"))
    assert files
    over = [line for path in files for line in too_long(path.read_text("utf-8"), str(path.relative_to(ROOT)))]
    assert not over, "\n".join(over)


def test_the_size_gate_sees_what_is_too_long() -> None:
    """The gate itself turns red: at a file, and at each function, also one of two with the same name."""
    long = "def long() -> None:\n" + "    pass\n" * FUNCTION_LINES
    short = "def long() -> None:\n    pass\n"
    assert not too_long(short, "a.py")
    assert [line.split(":")[:2] for line in too_long(long + short, "a.py")] == [["a.py", "1"]]
    assert too_long("x = 1\n" * (FILE_LINES + 1), "a.py")[0].startswith("a.py: expected at most 400 lines, got 401")
