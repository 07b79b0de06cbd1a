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


def loaded_by(code: str, *, standard: bool = False) -> set[str]:
    """The modules a fresh interpreter loads for `code`; those of the standard library only if asked."""
    program = f"import sys; before = set(sys.modules)\n{code}\n{REPORT}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return {name for name in modules if standard or name.partition(".")[0] not in sys.stdlib_module_names}


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


OPENED = """
import asyncio
from checkrein.agents import AgentSpec
from checkrein.config.types import HarnessConfig, SessionConfig
from checkrein.harness import Harness

class Model:
    name = "none"
    async def stream(self, request):
        yield
    def missing(self): return None
    def default_model(self): return "m"
    def window_tokens(self, model): return None

async def main():
    config = HarnessConfig(session=SessionConfig(store="memory"))
    async with Harness(config=config, providers=[Model()], found=[]) as harness:
        await harness.create_agent(AgentSpec(id="one", model="none:m"))
asyncio.run(main())
"""
LATER = {  # of the standard library, what opening an agent has no use for; asyncio and anyio bring enough
    *("secrets", "hmac", "difflib", "tomllib", "sqlite3", "multiprocessing", "xml", "unittest", "http"),
    *("shlex", "cProfile", "pdb", "zoneinfo"),
    *(("glob",) if sys.version_info < (3, 13) else ()),  # pathlib is made of it
}


def test_opening_an_agent_loads_no_more_than_it_uses() -> None:
    modules = loaded_by(OPENED, standard=True)
    packages = {name.partition(".")[0] for name in modules}
    assert not packages & (LATER | HEAVY | {"click"})
    ours = {name.removeprefix("checkrein.") for name in modules if name.startswith("checkrein.")}
    unused = {"recovery", "replay", "sessions", "memory_store", "flushing", "foreign", "sse", "reconcile", "embed"}
    assert not ours & (unused | {"testing", "transcripts", "cli", "config.layers", "config.schema", "config.check"})


@pytest.mark.parametrize(
    ("plugin", "waits"),
    [
        ("checkrein_openai", {"checkrein_openai.decode", "checkrein_openai.request", "checkrein_openai.dsml"}),
        ("checkrein_demo", {"checkrein_demo.rules", "checkrein_demo.listing"}),
        ("checkrein_scripted", {"checkrein.testing", "checkrein.testing.script"}),
    ],
)
def test_a_models_wire_waits_until_it_is_asked(plugin: str, waits: set[str]) -> None:
    assert not loaded_by(f"import {plugin}; {plugin}.Plugin") & waits


def test_a_command_looks_for_installed_commands_once(tmp_path: Path) -> None:
    program = (
        f"import os, sys; os.chdir({str(tmp_path)!r}); os.environ['CHECKREIN_CONFIG_HOME'] = {str(tmp_path)!r}\n"
        "from importlib.metadata import DistributionFinder\n"
        "class Counts(DistributionFinder):\n"
        "    looks = 0\n"
        "    def find_spec(self, *args): return None\n"
        "    def find_distributions(self, context=None):\n"
        "        Counts.looks += 1\n"
        "        return iter(())\n"
        "sys.meta_path.append(Counts())\n"
        "from checkrein.cli import main\n"
        "try: main(['plugins'])\n"
        "except SystemExit: print(Counts.looks)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout.split()[-1]) <= 2, "expected one look for commands and one for plugins"


def test_no_dataclass_is_defined_on_the_way() -> None:
    """Defining one costs as much as thirty Structs; the testing kit and foreign transcripts load on demand."""
    found = [
        f"{file.relative_to(ROOT)}:{each.lineno}: make {each.name} a msgspec Struct"
        for file in sources()
        if not {"testing", "transcripts"} & set(file.parts)
        for each in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(each, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in each.decorator_list)
    ]
    assert found == []


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
