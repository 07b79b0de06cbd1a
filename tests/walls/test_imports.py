"""What importing and asking for help loads: judged by sys.modules, not by time."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("harness", "agent_loop", "plugins", "invariants")
POSIX = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty", "syslog", "posix", "curses", "readline"}
HEAVY = {"httpx2", "jsonschema", "trio", "uvloop", "rich", "hypothesis", "pytest"}
REPORT = "import json; print('\\n' + json.dumps(sorted(set(sys.modules) - before)))"


def loaded_by(code: str) -> set[str]:
    """The modules a fresh interpreter loads for `code`, beyond those it starts with and the standard library."""
    program = f"import sys; before = set(sys.modules)\n{code}\n{REPORT}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names}


def test_importing_checkrein_loads_nothing_else() -> None:
    assert loaded_by("import checkrein") == {"checkrein"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["-h"]])
def test_case_H15_help_loads_click_and_no_command_or_plugin(arguments: list[str]) -> None:
    modules = loaded_by(
        f"from checkrein.cli import main\ntry: main({arguments!r})\nexcept SystemExit as exit: assert not exit.code"
    )
    ours = {name for name in modules if name.startswith("checkrein")}
    assert ours <= {"checkrein", "checkrein.cli", "checkrein.discovery", "checkrein.errors", "checkrein.nearest"}
    assert {name.partition(".")[0] for name in modules - ours} <= {"click", "colorama"}


def test_listing_plugins_imports_none(tmp_path: Path) -> None:
    modules = loaded_by(
        f"import os; os.chdir({str(tmp_path)!r}); os.environ['CHECKREIN_CONFIG_HOME'] = {str(tmp_path)!r}\n"
        "from checkrein.cli import main\ntry: main(['plugins'])\nexcept SystemExit as exit: assert not exit.code"
    )
    packages = {name.partition(".")[0] for name in modules}
    assert not [name for name in packages if name.startswith("checkrein_")]
    assert not packages & HEAVY


@pytest.mark.parametrize(
    "module", ["checkrein.config", "checkrein.plugins", "checkrein.hookspecs", "checkrein.services"]
)
def test_heavy_libraries_wait_for_their_first_use(module: str) -> None:
    assert not {name.partition(".")[0] for name in loaded_by(f"import {module}")} & HEAVY


# --- P1 ----------------------------------------------------------------------------------------------


def sources() -> Iterator[Path]:
    for root in ROOTS:
        yield from sorted((ROOT / root).rglob("*.py"))


def at_import(body: list[ast.stmt]) -> Iterator[str]:
    """The modules a file imports when it is imported itself; what is only for type checkers or one platform is not."""
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            yield (statement.module or "").partition(".")[0]
        elif isinstance(statement, ast.If):
            test = ast.unparse(statement.test)
            if "TYPE_CHECKING" not in test and "platform" not in test:
                yield from at_import(statement.body)
            yield from at_import(statement.orelse)
        elif isinstance(statement, ast.ClassDef | ast.With):
            yield from at_import(statement.body)
        elif isinstance(statement, ast.Try):
            yield from at_import([*statement.body, *statement.orelse, *statement.finalbody])


def test_P1_no_posix_module_is_imported_at_top_level() -> None:
    found = {
        str(file.relative_to(ROOT)): names
        for file in sources()
        if (names := POSIX & set(at_import(ast.parse(file.read_text(encoding="utf-8")).body)))
    }
    assert found == {}


def test_P1_the_search_finds_what_it_is_for() -> None:
    program = (
        "import fcntl\nif TYPE_CHECKING:\n    import pwd\nif sys.platform != 'win32':\n    import grp\n"
        "def later():\n    import pty\ntry:\n    from termios import x\nexcept ImportError: pass\n"
        "class A:\n    import tty"
    )
    assert set(at_import(ast.parse(program).body)) & POSIX == {"fcntl", "termios", "tty"}
