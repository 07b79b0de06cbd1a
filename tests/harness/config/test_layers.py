"""Where the configuration comes from, and in which order."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein.config import HarnessConfig, LoadedConfig, load_config, user_file
from checkrein.errors import ConfigError

Load = Callable[..., LoadedConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """`load(user=TOML, project=TOML, environ=..., overrides=...)` in a home and a project of its own."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()

    def with_files(
        *, user: str | None = None, project_text: str | None = None, environ: Any = None, overrides: Any = None
    ) -> LoadedConfig:
        for folder, text in ((home, user), (project, project_text)):
            if text is not None:
                (folder / "checkrein.toml").write_text(text, encoding="utf-8")
        return load_config(
            cwd=project, environ={"CHECKREIN_CONFIG_HOME": str(home), **(environ or {})}, overrides=overrides
        )

    return with_files


def test_without_a_file_there_is_one_agent_main(load: Load) -> None:
    loaded = load()
    assert loaded.config == HarnessConfig()
    assert [(spec.id, spec.model) for spec in loaded.config.agent_specs()] == [("main", "auto")]
    assert not loaded.found
    assert loaded.files == ()
    assert loaded.project_file is None
    assert loaded.root.name == "project"
    assert loaded.origins == {}


def test_each_layer_beats_the_one_before(load: Load) -> None:
    user = 'model = "user:m"\nloop = "user"\n[session]\nstore = "user"\n[limits]\ntool_threads = 1'
    project = 'model = "project:m"\nloop = "project"\n[session]\nstore = "project"'
    loaded = load(
        user=user,
        project_text=project,
        environ={"CHECKREIN_MODEL": "env:m", "CHECKREIN__LOOP": "env"},
        overrides={"model": "cli:m", "loop": None},
    )
    config = loaded.config
    assert (config.model, config.loop, config.session.store) == ("cli:m", "env", "project")
    assert config.limits.tool_threads == 1
    assert [file.parent.name for file in loaded.files] == ["home", "project"]
    assert loaded.project_file == loaded.files[1]
    assert loaded.root == loaded.files[1].parent
    assert loaded.origins["model"] == "the command line"
    assert loaded.origins["loop"] == "environment variable CHECKREIN__LOOP"
    assert loaded.origins["session.store"] == str(loaded.files[1])
    assert loaded.origins["limits.tool_threads"] == str(loaded.files[0])


def test_agents_are_laid_over_each_other_by_id(load: Load) -> None:
    user = '[[agents]]\nid = "a"\nmax_steps = 1\nsystem_prompt = "p"\n[agents.plugins.x]\nn = 1\nm = 2\n'
    project = '[[agents]]\nid = "b"\n[[agents]]\nid = "a"\nmax_steps = 2\n[agents.plugins.x]\nn = 3\n'
    loaded = load(
        user=user,
        project_text=project,
        environ={"CHECKREIN__AGENTS__B__MAX_STEPS": "7", "CHECKREIN__AGENTS__C__MODEL": "env:c"},
        overrides={"agents": {"a": {"tools": ("t_*",)}}},
    )
    a, b, c = loaded.config.agent_specs()
    assert (a.id, a.max_steps, a.system_prompt, tuple(a.tools or ())) == ("a", 2, "p", ("t_*",))
    assert a.plugins == {"x": {"n": 3, "m": 2}}
    assert (b.id, b.max_steps, b.model) == ("b", 7, "auto")
    assert (c.id, c.model) == ("c", "env:c")
    assert loaded.origins["agents[0].plugins.x.n"].endswith("project/checkrein.toml")
    assert loaded.origins["agents[1].max_steps"] == "environment variable CHECKREIN__AGENTS__B__MAX_STEPS"


def test_the_command_line_may_name_keys_by_dotted_path(load: Load) -> None:
    loaded = load(
        project_text='[[agents]]\nid = "a"\nmax_steps = 1',
        overrides={
            "agents.a.max_steps": 4,
            "agents.a.model": None,
            "session": {"store": "x"},
            "session.store": "memory",
        },
    )
    assert loaded.config.agents[0].max_steps == 4
    assert loaded.config.session.store == "memory"
    with pytest.raises(ConfigError, match=r"did you mean 'store'.*session\.stor in the command line"):
        load(overrides={"session.stor": "memory"})


def test_an_agent_without_a_model_takes_the_top_level_one(load: Load) -> None:
    loaded = load(project_text='model = "p:m"\n[[agents]]\nid = "a"\n[[agents]]\nid = "b"\nmodel = "q:n"')
    assert [spec.model for spec in loaded.config.agent_specs()] == ["p:m", "q:n"]


def test_what_one_layer_blocks_no_other_lets_in_again(load: Load) -> None:
    loaded = load(
        user='[plugins]\nblock = ["a"]\nallow = ["x"]',
        project_text='[plugins]\nblock = ["b"]\nallow = ["y"]',
        environ={"CHECKREIN_PLUGINS_BLOCK": "c, d,"},
        overrides={"plugins": {"block": ["e", "a"]}},
    )
    assert loaded.config.plugins.block == ("a", "b", "c", "d", "e")
    assert loaded.config.plugins.allow == ("y",)


@pytest.mark.parametrize(
    ("variable", "text", "read"),
    [
        ("CHECKREIN_MODEL", "123", lambda config: config.model),
        ("CHECKREIN_SESSION_STORE", "memory", lambda config: config.session.store),
        ("CHECKREIN_LOOP", "other", lambda config: config.loop),
        (
            "CHECKREIN__PLUGINS__OPENAI__BASE_URL",
            "http://x",
            lambda config: config.plugins.tables["openai"]["base_url"],
        ),
    ],
)
def test_a_variable_sets_a_text(load: Load, variable: str, text: str, read: Callable[[HarnessConfig], str]) -> None:
    assert read(load(environ={variable: text}).config) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("true", True),
        ('["a"]', ["a"]),
        ("{x = 1}", {"x": 1}),
        ('"8"', "8"),
        ("a b", "a b"),
        ("1\ny = 2", "1\ny = 2"),
    ],
)
def test_a_variable_is_toml_where_it_can_be_and_else_a_text(load: Load, text: str, value: object) -> None:
    assert load(environ={"CHECKREIN__PLUGINS__X__KEY": text}).config.plugins.tables == {"x": {"key": value}}


def test_autoload_is_a_switch_in_the_environment(load: Load) -> None:
    assert load(environ={"CHECKREIN_DISABLE_PLUGIN_AUTOLOAD": "1"}).config.plugins.autoload is False
    assert load(environ={"CHECKREIN_DISABLE_PLUGIN_AUTOLOAD": "0"}).config.plugins.autoload is True
    assert load(environ={"CHECKREIN_DISABLE_PLUGIN_AUTOLOAD": ""}).config.plugins.autoload is True
    with pytest.raises(ConfigError, match=r"expected 1 or 0, got 'maybe'.*CHECKREIN_DISABLE_PLUGIN_AUTOLOAD"):
        load(environ={"CHECKREIN_DISABLE_PLUGIN_AUTOLOAD": "maybe"})


# --- ${NAME} -----------------------------------------------------------------------------------------


def test_texts_outside_project_files_read_the_environment(load: Load) -> None:
    loaded = load(
        user='[plugins.openai]\nheaders = ["k: ${KEY}", "$${KEY}", "$KEY"]',
        environ={"KEY": "s3cret", "CHECKREIN__MODEL": "${WHO}:m", "WHO": "p"},
        overrides={"session": {"store": "${KEY}/x"}, "agents": {"a": {"settings": {"k": "${KEY}"}}}},
    )
    assert loaded.config.plugins.tables["openai"]["headers"] == ["k: s3cret", "${KEY}", "$KEY"]
    assert loaded.config.model == "p:m"
    assert loaded.config.session.store == "s3cret/x"
    assert loaded.config.agents[0].settings == {"k": "s3cret"}
    assert "s3cret" not in repr(loaded.document)
    assert loaded.document["plugins"]["openai"]["headers"] == ["k: ${KEY}", "${KEY}", "$KEY"]


def test_a_project_file_reads_no_environment(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"\$\{KEY\} is not replaced in a project's file.*plugins\.x\.key"):
        load(project_text='[plugins.x]\nkey = "${KEY}"', environ={"KEY": "s3cret"})
    loaded = load(project_text='[[agents]]\nid = "a"\nsystem_prompt = "say $${KEY} and ${1}"', environ={"KEY": "no"})
    assert loaded.config.agents[0].system_prompt == "say ${KEY} and ${1}"


def test_an_unset_variable_is_an_error(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"expected the environment variable KEY, got none.*plugins\.x\.key\[0\]"):
        load(user='[plugins.x]\nkey = ["${KEY}"]')


def test_the_hash_tells_configurations_apart_and_holds_no_secret(load: Load) -> None:
    user = '[plugins.x]\nkey = "${KEY}"'
    one = load(user=user, environ={"KEY": "1"})
    two = load(user=user, environ={"KEY": "2"})
    other = load(user=user, environ={"KEY": "1"}, overrides={"model": "p:m"})
    assert len(bytes.fromhex(one.hash)) == hashlib.sha256().digest_size
    assert one.hash == two.hash != other.hash
    assert one.config != two.config


def test_a_later_layer_takes_the_place_of_an_interpolated_text(load: Load) -> None:
    loaded = load(user='[plugins.x]\nkey = ["${KEY}"]', environ={"KEY": "1"}, overrides={"plugins": {"x": {"key": []}}})
    assert loaded.document["plugins"]["x"]["key"] == []


# --- files -------------------------------------------------------------------------------------------


def test_a_path_names_a_file_or_its_folder(tmp_path: Path) -> None:
    (tmp_path / "checkrein.toml").write_text('model = "a:b"')
    (tmp_path / "other.toml").write_text('model = "c:d"')
    for path, model in ((tmp_path, "a:b"), ("other.toml", "c:d"), (str(tmp_path / "other.toml"), "c:d")):
        assert load_config(path, cwd=tmp_path, environ={}).config.model == model


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a config file, got none.*nix\.toml"):
        load_config("nix.toml", cwd=tmp_path, environ={})
    with pytest.raises(ConfigError, match=r"expected a config file, got none.*checkrein\.toml"):
        load_config(tmp_path, cwd=tmp_path, environ={})


def test_the_users_file_in_use_as_project_file_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "checkrein.toml").write_text('model = "a:b"')
    loaded = load_config(cwd=tmp_path, environ={"CHECKREIN_CONFIG_HOME": str(tmp_path)})
    assert len(loaded.files) == 1


def test_the_users_file_is_where_the_platform_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_file({"CHECKREIN_CONFIG_HOME": "/c"}) == Path("/c/checkrein.toml")
    monkeypatch.setattr(sys, "platform", "linux")
    assert user_file({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x/checkrein/checkrein.toml")
    assert user_file({"HOME": "/h"}) == Path("/h/.config/checkrein/checkrein.toml")
    assert user_file({}) is None
    monkeypatch.setattr(sys, "platform", "win32")
    assert user_file({"APPDATA": "/a", "HOME": "/h"}) == Path("/a/checkrein/checkrein.toml")
    assert user_file({}) is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'model = "a\nloop = 1', r"syntax error: .*line 1"),
        (b"a = 1\na = 2", r"syntax error: .*overwrite"),
        (b'model = "\xff"', r"expected UTF-8, got another encoding in line 1"),
        (b"x = " + b"[" * 100_000, r"nested too deep|syntax error"),
        (b"#" * (1 << 20) + b"\n", r"at most 1048576 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_why(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "checkrein.toml"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=words) as caught:
        load_config(cwd=tmp_path, environ={})
    assert caught.value.file == str(file)


def test_agents_by_id_are_for_the_environment_and_the_command_line_only(tmp_path: Path) -> None:
    (tmp_path / "checkrein.toml").write_text("[agents.main]\nmax_steps = 1")
    with pytest.raises(ConfigError, match="expected array, got object"):
        load_config(cwd=tmp_path, environ={})


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    (tmp_path / "checkrein.toml").write_bytes(b'\xef\xbb\xbfmodel = "a:b"\r\nloop = "x"\r\n')
    assert load_config(cwd=tmp_path, environ={}).config.loop == "x"
