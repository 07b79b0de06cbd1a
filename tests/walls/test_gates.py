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


@pytest.mark.slow
def test_types_as_pyright_sees_them() -> None:
    """pyright finds nothing either (it runs on Node.js)."""
    if shutil.which("node") is None:
        pytest.skip("pyright needs Node.js")
    assert not (found := gate("pyright", "--pythonpath", sys.executable)), found


def sizes(source: str) -> tuple[int, dict[str, int]]:
    """Lines of a file, and of each of its functions."""
    functions = {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    return source.count("\n"), functions


def test_size_of_files_and_functions() -> None:
    """No file of the product is over 400 lines, no function over 70."""
    over: list[str] = []
    for root in PRODUCT:
        for path in sorted((ROOT / root).rglob("*.py")):
            lines, functions = sizes(path.read_text(encoding="utf-8"))
            if lines > FILE_LINES:
                over.append(f"{path.relative_to(ROOT)}: {lines} lines")
            over += [
                f"{path.relative_to(ROOT)}: {name} has {n} lines" for name, n in functions.items() if n > FUNCTION_LINES
            ]
    assert not over, "\n".join(over)


def test_the_size_gate_sees_what_is_too_long() -> None:
    """The gate itself turns red."""
    lines, functions = sizes("def long() -> None:\n" + "    pass\n" * 400)
    assert lines > FILE_LINES
    assert functions["long"] > FUNCTION_LINES
