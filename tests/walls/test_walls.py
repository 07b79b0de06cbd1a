"""The walls between the packages hold, and a smuggled import turns the gate red."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("harness", "agent_loop", "plugins", "invariants")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
PACKAGES = {path.parent.name: path.parent for root in ROOTS for path in sorted((ROOT / root).glob("*/__init__.py"))}
IGNORED = shutil.ignore_patterns("__pycache__")

IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path[:0] = sys.argv[2:]
package = importlib.import_module(sys.argv[1])
for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not each.name.endswith("__main__"):
        importlib.import_module(each.name)
"""


def import_alone(package: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Import every module of a package where only `folder` and the installed libraries can be imported.

    Without site (-S) no .pth file is read, so the editable installation's roots are not there.
    """
    libraries = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    return subprocess.run(
        [sys.executable, "-S", "-E", "-c", IMPORT_ALL, package, str(folder), *libraries],
        capture_output=True,
        text=True,
        timeout=120,
    )


def copies(packages: Sequence[str], folder: Path) -> Path:
    for name in packages:
        shutil.copytree(PACKAGES[name], folder / name, ignore=IGNORED)
    return folder


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter's contracts over the roots in `folder`."""
    path = os.pathsep.join(str(folder / root) for root in ROOTS)
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_every_package_is_behind_the_walls() -> None:
    linted = PROJECT["importlinter"]
    assert set(linted["root_packages"]) == set(PACKAGES)
    assert {Path(each).name for each in PROJECT["hatch"]["build"]["targets"]["wheel"]["packages"]} == set(PACKAGES)
    walls = {contract["name"]: contract for contract in linted["contracts"]}
    others = set(PACKAGES) - {"checkrein"}
    assert set(walls["the harness imports none of ours"]["forbidden_modules"]) == others
    assert set(walls["loop, oracle and plugins do not import each other"]["modules"]) == others


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_needs_no_other_than_the_harness(package: str, tmp_path: Path) -> None:
    done = import_alone(package, copies(sorted({"checkrein", package}), tmp_path))
    assert done.returncode == 0, done.stderr


def test_a_smuggled_import_fails_alone(tmp_path: Path) -> None:
    folder = copies(["checkrein"], tmp_path)
    with (folder / "checkrein" / "nearest.py").open("a", encoding="utf-8") as file:
        file.write("\nimport checkrein_loop\n")
    done = import_alone("checkrein", folder)
    assert done.returncode == 1
    assert "No module named 'checkrein_loop'" in done.stderr


def test_the_contracts_hold_and_see_a_smuggled_import(tmp_path: Path) -> None:
    assert (held := lint(ROOT)).returncode == 0, held.stdout
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for root in ROOTS:
        shutil.copytree(ROOT / root, tmp_path / root, ignore=IGNORED)
    smuggled = {
        "harness/checkrein/nearest.py": "checkrein_demo",
        "plugins/checkrein_demo/__init__.py": "checkrein_files",
    }
    for file, module in smuggled.items():
        with (tmp_path / file).open("a", encoding="utf-8") as stream:
            stream.write(f"\ndef smuggled() -> None:\n    import {module}\n")
    broken = lint(tmp_path)
    assert broken.returncode == 1
    assert "checkrein.nearest -> checkrein_demo" in broken.stdout
    assert "checkrein_demo -> checkrein_files" in broken.stdout


def test_the_folders_names_are_no_packages(tmp_path: Path) -> None:
    for name in ROOTS:
        (tmp_path / f"{name}_user.py").write_text(f'"""A file."""\n\nimport {name}\n')
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--config",
        str(ROOT / "pyproject.toml"),
        "--no-cache",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.count("TID251") == len(ROOTS)
