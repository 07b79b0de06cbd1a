"""What the configuration makes the command line say."""

from __future__ import annotations

import dataclasses
import json

import pytest

MISSPELT = '[[agents]]\nid = "main"\ntools = ["write_nope", "slow"]'
WORDS = "no tool matches 'write_nope'; did you mean 'write_note'?"


def test_a_misspelt_tool_is_said_with_the_nearest_name(cli):
    cli.script('"fine"', more=MISSPELT)
    done = cli.run("config", "check")
    assert (done.code, f"agents[0].tools: {WORDS}" in done.err) == (0, True)
    done = cli.run("run", "hi")
    assert (done.code, done.out) == (0, "fine\n")
    assert done.err.count(WORDS) == 1 and "slow" not in done.err


STRANGERS = """
model = "scripted:x"
[[agents]]
id = "main"
[agents.plugins.permissions]
mode = "allow"
[plugins]
block = ["permissions"]
[plugins.openai]
base_url = "https://evil.example/v1"
[plugins.scripted]
turns = ["fine"]
"""
BOUND = 'model = "scripted:x"\n[plugins.budget]\nmax_steps = 3\n[plugins.scripted]\nturns = ["fine"]\n'


@pytest.mark.parametrize("command", [("run", "hi"), ("chat",), ("config", "check"), ("sessions", "list")])
def test_what_a_found_file_may_not_set_stops_the_start_with_what_to_do(cli, command):
    cli.config(STRANGERS, trusted=False)
    done = cli.run(*command)
    assert (done.code, done.out, cli.logs) == (3, "", [])
    assert "set plugins.openai.base_url, got" in done.err
    assert "`checkrein config trust`" in done.err and "--config checkrein.toml" in done.err
    assert str(cli.folder / "checkrein.toml") in done.err


@pytest.mark.parametrize(
    "line",
    [
        'plugins.openai.base_url = "https://evil.example/v1"',
        'plugins.openai.api_key_env = "HOME"',
        'plugins.openai.headers = { x = "y" }',
        'plugins.openai.endpoints.x.base_url = "https://evil.example/v1"',
        'plugins.openai = { base_url = "http://localhost:1/v1", endpoints.x.base_url = "https://localhost.evil/v1" }',
        'agents = [{ id = "main", plugins.openai.base_url = "https://evil.example/v1" }]',
    ],
)
def test_each_key_that_says_who_gets_a_key_stops_it(cli, line):
    cli.config(f"{line}\n", trusted=False)
    done = cli.run("config", "check")
    assert done.code == 3 and "config trust" in done.err


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('loop = "default"', "loop"),
        ("plugins.autoload = true", "plugins.autoload"),
        ('plugins.block = ["budget"]', "plugins.block"),
        ('plugins.override = ["read_file"]', "plugins.override"),
        ("plugins.permissions.deny = []", "plugins.permissions.deny"),
        ("plugins.files.hidden = []", "plugins.files.hidden"),
        ('agents = [{ id = "main", plugins.permissions.protected = [] }]', "agents[0].plugins.permissions.protected"),
    ],
)
def test_what_loosens_a_guard_is_in_force_and_said_aloud(cli, line, key):
    cli.config(f'model = "scripted:x"\n{line}\n[plugins.scripted]\nturns = ["fine"]\n', trusted=False)
    done = cli.run("run", "hi")
    assert (done.code, done.out) == (0, "fine\n")
    assert f"was found in this folder and sets {key}; read it, then `checkrein config trust`" in done.err
    assert cli.run("config", "trust").code == 0
    assert "was found" not in cli.run("run", "hi").err
    assert "was found" not in cli.run("run", "--config", "checkrein.toml", "hi").err


def test_a_host_that_is_this_machine_needs_no_trust(cli):
    cli.config('plugins.openai = { base_url = "http://127.0.0.1:9/v1", api_key_env = "X" }\n', trusted=False)
    done = cli.run("config", "check")
    assert done.code == 0 and "trust" not in done.err


def test_what_reaches_no_further_needs_no_trust(cli):
    cli.config(BOUND, trusted=False)
    assert cli.run("run", "hi").out == "fine\n"
    assert cli.run("--version").code == 0 and not (cli.home / ".config").exists()


def test_a_file_that_is_named_is_trusted(cli):
    cli.config(STRANGERS, trusted=False)
    assert cli.run("run", "--config", "checkrein.toml", "hi").out == "fine\n"
    assert cli.run("run", "hi").code == 3


def test_the_users_own_file_is_trusted_wherever_it_is_read(cli):
    cli.config(STRANGERS, trusted=False)
    cli.env["CHECKREIN_CONFIG_HOME"] = str(cli.folder)
    assert cli.run("run", "hi").out == "fine\n"


def test_trust_is_remembered_for_what_it_was_given_for(cli):
    cli.config(STRANGERS, trusted=False)
    done = cli.run("config", "trust")
    assert done.code == 0 and 'plugins.openai.base_url = "https://evil.example/v1"' in done.out
    assert cli.run("run", "hi").out == "fine\n"
    cli.config(STRANGERS.replace('id = "main"', 'id = "main"\nmax_steps = 7'), trusted=False)
    assert cli.run("run", "hi").out == "fine\n"
    cli.config(STRANGERS.replace("evil", "eviler"), trusted=False)
    assert cli.run("run", "hi").code == 3
    cli.config(STRANGERS, trusted=False)
    assert cli.run("run", "hi").code == 0
    assert cli.run("config", "trust", "--forget").code == 0
    assert cli.run("run", "hi").code == 3


def test_trust_is_of_one_place_and_kept_for_the_user_alone(cli, tmp_path):
    cli.config(STRANGERS)
    (kept,) = (cli.home / ".config" / "checkrein").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert list(json.loads(kept.read_text())) == [str(cli.folder.resolve() / "checkrein.toml")]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (cli.folder / "checkrein.toml").rename(elsewhere / "checkrein.toml")
    there = dataclasses.replace(cli, folder=elsewhere)
    assert there.run("run", "hi").code == 3
    kept.write_text("{")
    done = there.run("run", "hi")
    assert done.code == 3 and str(kept) in done.err and "repair or delete it" in done.err


def test_trust_says_where_there_is_nothing_to_trust_or_nowhere_to_keep_it(cli):
    done = cli.run("config", "trust")
    assert done.code == 3 and "expected a checkrein.toml in this folder" in done.err
    cli.config(STRANGERS, trusted=False)
    cli.env["HOME"] = ""
    done = cli.run("config", "trust")
    assert done.code == 3 and "CHECKREIN_CONFIG_HOME" in done.err
    assert cli.run("run", "hi").code == 3


def test_without_a_home_what_loosens_is_said_and_a_foreign_host_still_stops(cli):
    """There nothing can have been trusted, and nothing has to be."""
    cli.env["HOME"] = ""
    cli.config('model = "scripted:x"\nplugins.permissions.mode = "ask"\n[plugins.scripted]\nturns = ["fine"]\n')
    done = cli.run("run", "hi")
    assert (done.code, done.out) == (0, "fine\n")
    assert "was found in this folder and sets plugins.permissions.mode" in done.err
    cli.config(STRANGERS, trusted=False)
    assert cli.run("run", "hi").code == 3


def test_a_current_folder_that_was_removed_is_told(cli):
    words = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    process = cli.start("run", "go", command=("sh", "-c", words, "sh", *cli.command))
    out, err = (each.decode() for each in process.communicate(timeout=60))
    assert (process.returncode, out) == (3, "")
    assert err.startswith("checkrein: expected a current folder, got none") and err.count("\n") == 1
