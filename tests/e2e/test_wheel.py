"""The wheel, installed in a new environment beside a third-party plugin: what a user of the package gets."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HELLO = ROOT / "examples" / "checkrein-hello"
CONFIG = """
model = "scripted:script"
[plugins.hello]
never = ["Mallory"]
[plugins.scripted]
turns = [
  { calls = [{ name = "hello", arguments = { name = "Ada" } }, { name = "hello", arguments = { name = "Mallory" } }] },
  "Greeted.",
]
[[agents]]
id = "first"
tools = []
[[agents]]
id = "greeter"
"""


def sh(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of a new environment with both wheels; their dependencies are those of this one, no network."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    folder = tmp_path_factory.mktemp("wheel")
    sh(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder / "dist", ROOT, HELLO)
    venv.create(folder / "env", symlinks=True)
    (scripts,) = (folder / "env").glob("bin") if sys.platform != "win32" else (folder / "env").glob("Scripts")
    python = scripts / "python"
    sh(*pip, "--python", python, "install", "--no-deps", "--no-index", *(folder / "dist").glob("*.whl"))
    paths = json.loads(sh(python, "-c", "import json, sysconfig; print(json.dumps(sysconfig.get_paths()))"))
    # Behind the environment's own: the editable checkrein of this one is hidden by the installed one.
    Path(paths["purelib"], "zz_dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return scripts


@pytest.fixture
def project(cli, installed):
    """A user's project that holds a `plugins` folder and a `harness.py` of its own, both broken."""
    for name in ("plugins", "harness", "invariants", "agent_loop"):
        (cli.folder / name).mkdir()
        (cli.folder / name / "__init__.py").write_text("raise ImportError('the user\\'s own, and none of ours')\n")
    for name in ("harness.py", "plugins.py"):
        (cli.folder / name).write_text("raise ImportError('the user\\'s own, and none of ours')\n")
    cli.config(CONFIG)
    cli.command = (str(installed / "checkrein"),)
    return cli


def test_runs_from_a_config_file_with_two_agents_and_a_third_party_plugin(project, installed):
    done = project.run("run", "--agent", "greeter", "greet them")
    assert (done.code, done.out) == (0, "Greeted.\n"), done.err
    assert "result of hello" in done.err and "Hello, Ada!" in done.err
    assert "failed DENIED of hello" in done.err and "Mallory is not greeted here" in done.err
    assert "oracle: balanced" in done.err
    created = project.events()[0]
    assert created["agent"] == "greeter"
    assert {"name": "hello", "version": "1.0.0"} in created["plugins"]
    listed = {each["name"]: each for each in json.loads(project.run("plugins", "--json").out)["plugins"]}
    assert (listed["hello"]["distribution"], listed["hello"]["version"]) == ("checkrein-hello", "1.0.0")
    where = sh(installed / "python", "-c", "import checkrein; print(checkrein.__file__)", cwd=project.folder)
    assert Path(where).is_relative_to(installed.parent)


def test_first_agent_of_the_file_answers_and_has_no_tools(project):
    done = project.run("run", "greet them")
    assert done.code == 0, done.err
    assert project.events()[0]["agent"] == "first"
    results = [event["error"]["code"] for event in project.events() if event["type"] == "tool/result"]
    assert results == ["UNKNOWN_TOOL", "UNKNOWN_TOOL"]


def test_the_plugins_own_tests_pass_beside_the_installed_package(project, installed):
    options = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", HELLO, "-W", "ignore")
    assert "2 passed" in sh(installed / "python", "-m", "pytest", *options, HELLO / "tests", cwd=project.folder)
