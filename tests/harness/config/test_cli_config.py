"""`checkrein config`: check, show, schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from checkrein.cli.config import config
from checkrein.discovery import PLUGINS, discover
from checkrein.errors import ConfigError


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project of its own, and the installed plugins left out."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("CHECKREIN_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CHECKREIN_PLUGINS_BLOCK", ",".join(one.name for one in discover(PLUGINS)))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(config, arguments)


def test_check_says_what_was_read(tmp_path: Path) -> None:
    assert run("check").output == "ok: no config file, the defaults; agents main; 0 plugins\n"
    (tmp_path / "checkrein.toml").write_text('[[agents]]\nid = "a"\n[[agents]]\nid = "b"\n')
    assert run("check").output == f"ok: {tmp_path / 'checkrein.toml'}; agents a, b; 0 plugins\n"
    (tmp_path / "other.toml").write_text('modle = "x"')
    done = run("check", "other.toml")
    assert isinstance(done.exception, ConfigError)
    assert "did you mean 'model'?" in str(done.exception)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('loop = "defualt"', "expected one of the loops default, got 'defualt'"),
        ('model = "demo:x"\n[[agents]]\nid = "a"\nmodel = "nowhere:x"', "got 'nowhere:x' (at agents[0].model in "),
        ('model = "nowhere:x"', "got 'nowhere:x' (at model in "),
    ],
)
def test_check_tells_of_a_loop_and_of_models_that_are_not_there(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "checkrein.toml").write_text(text)
    done = run("check")
    assert isinstance(done.exception, ConfigError) and words in str(done.exception)


def test_check_asks_for_no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CHECKREIN_PLUGINS_BLOCK", "")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "checkrein.toml").write_text('model = "openai:x"')
    assert run("check").exit_code == 0


def test_show_says_who_set_what_and_hides_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checkrein.toml").write_text('model = "p:m"\n[[agents]]\nid = "a"\n')
    (tmp_path / "home" / "checkrein.toml").write_text(
        '[plugins.x]\napi_key = "s3cret"\nother_key = "${KEY}"\ntext = "shown"\nmax_tokens = 5\nkeys = ["s3cret"]\n'
        '[plugins.x.headers]\nAuthorization = "s3cret"\n'
    )
    monkeypatch.setenv("KEY", "s3cret")
    output = run("show").output
    assert f'model = "p:m"  # {tmp_path / "checkrein.toml"}' in output
    assert 'agents[0].id = "a"' in output
    assert 'plugins.x.text = "shown"' in output
    assert 'plugins.x.other_key = "${KEY}"' in output
    assert "plugins.x.max_tokens = 5" in output
    assert "plugins.block" in output
    assert "# environment variable CHECKREIN_PLUGINS_BLOCK" in output
    assert "s3cret" not in output
    shown = json.loads(run("show", "--json").output)
    assert len(shown["files"]) == 2
    assert {row["key"]: row["value"] for row in shown["values"]}["limits.tool_threads"] == 64
    assert "s3cret" not in json.dumps(shown)


def test_schema_is_the_schema_of_what_is_installed() -> None:
    schema = json.loads(run("schema", *(f"--no-plugin={one.name}" for one in discover(PLUGINS))).output)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "max_steps" in schema["$defs"]["AgentConfig"]["properties"]
