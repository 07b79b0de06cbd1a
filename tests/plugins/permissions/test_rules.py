"""The rule language: narrow and broad matching, of paths and of commands; the rule "always" offers."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rulekit import allows, call_of, denies, exact_rule, run

from checkrein.calls import Call
from checkrein.tools import tool


@tool(read_only=True)
def reader(path: str = "") -> str:
    """Reads."""
    return path


def test_names_and_effects(tmp_path: Path) -> None:
    call = Call("c1.1.1", "read_file", {"path": "x"}, 1, 1, reader)
    for rule, answer in [("read_file", True), ("read_*", True), ("*", True), ("write_*", False), ("READ_FILE", False)]:
        assert allows(rule, call, tmp_path) is answer
    assert allows("effect:read_only", call, tmp_path) is True
    assert allows("effect:effectful", call, tmp_path) is False
    assert allows("effect:effectful", call_of("unknown"), tmp_path) is True, "what is not known is effectful"


def test_star_means_any_arguments(tmp_path: Path) -> None:
    assert allows("shell(*)", call_of("shell", command="a; b"), tmp_path) is True


# --- paths --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "path", "answer"),
    [
        ("src/**", "src/a/b.py", True),
        ("src/**", "./src/x/../a.py", True),
        ("src/**", "src2/a.py", False),
        ("src/**", "src/../secret", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "a/b/c.py", True),
        ("**", "a/b", True),
        ("**", "/etc/passwd", False),
        ("**", "../x", False),
        ("a[.]py", "a.py", True),
        ("a[!b].py", "ac.py", True),
        ("a[!b].py", "ab.py", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("SRC/a.py", "src/a.py", False),
        ("./src/**", "src/a.py", True),
        ("./src/**", "rc/a.py", False),
    ],
)
def test_paths_allow_exactly(tmp_path: Path, pattern: str, path: str, answer: bool) -> None:
    assert allows(f"write_file({pattern})", call_of("write_file", path=path), tmp_path) is answer
    assert allows(f"write_file(path={pattern})", call_of("write_file", path=path), tmp_path) is answer
    absolute = str(tmp_path / path)
    assert allows(f"write_file({pattern})", call_of("write_file", path=absolute), tmp_path) is answer


@pytest.mark.parametrize("path", [".env", ".ENV", "./.env", "a/../.env", ".Env"])
def test_deny_ignores_case_and_spelling(tmp_path: Path, path: str) -> None:
    assert denies("read_file(.env)", call_of("read_file", path=path), tmp_path) is True


def test_deny_covers_what_a_folder_holds(tmp_path: Path) -> None:
    for rule in ("write_file(secret)", "write_file(./secret)"):
        assert denies(rule, call_of("write_file", path="secret/a/b"), tmp_path) is True
    assert denies("write_file(secret)", call_of("write_file", path="secrets"), tmp_path) is False


def test_deny_matches_unicode_forms(tmp_path: Path) -> None:
    assert denies("write_file(caf\u00e9)", call_of("write_file", path="cafe\u0301"), tmp_path) is True


def test_absolute_patterns_match_outside_the_workspace(tmp_path: Path) -> None:
    call = call_of("read_file", path="/usr/share/../lib/x")
    assert allows("read_file(/usr/lib/**)", call, tmp_path) is True
    assert allows("read_file(usr/lib/**)", call, tmp_path) is False


def test_case_A06_a_link_out_of_the_workspace_is_outside(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (workspace / "outbox").symlink_to(outside)
    (workspace / "inner").symlink_to(workspace / "src")
    for path in ("outbox/f", "outbox/new/deep", "outbox"):
        call = call_of("write_file", path=path)
        assert allows("write_file(**)", call, workspace) is False
        assert denies(f"write_file({outside}/**)", call_of("write_file", path="outbox/f"), workspace) is True
    assert allows("write_file(src/**)", call_of("write_file", path="inner/f"), workspace) is True
    assert allows("write_file(inner/**)", call_of("write_file", path="inner/f"), workspace) is False


def test_a_link_to_a_denied_file_is_the_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("x")
    (tmp_path / "notes").symlink_to(".env")
    assert denies("read_file(.env)", call_of("read_file", path="notes"), tmp_path) is True


def test_what_cannot_be_resolved_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    for path in [
        "x\0y",
        "~/x",
        "~root",
        "",
        "loop",
        "loop/x",
        "a" * 5_000,
        "/proc/self/root/etc",
        "/proc/1/root/x",
        "b",
        7,
        " ",
        " /etc/passwd",
        "/etc/passwd\n",
        "file:///etc/passwd",
        "$HOME/x",
    ]:
        call = call_of("write_file", path=path)
        assert allows("write_file(**)", call, tmp_path) in (None, False), path
        assert denies("write_file(**)", call, tmp_path) in (None, True), path
    gone = tmp_path / "gone"
    assert allows("write_file(**)", call_of("write_file", path="x"), gone) is None


def test_every_path_of_a_call_counts(tmp_path: Path) -> None:
    both = call_of("move", source="src/a", destination="/etc/x")
    assert allows("move(src/**)", both, tmp_path) is False
    assert allows("move(src/**)", call_of("move", source="src/a", destination="src/b"), tmp_path) is True
    assert denies("move(/etc/**)", both, tmp_path) is True
    nested = call_of("edit", edits=[{"path": "src/a"}, {"path": "/etc/x"}])
    assert allows("edit(src/**)", nested, tmp_path) is False
    assert denies("edit(/etc/**)", nested, tmp_path) is True
    assert allows("edit(src/**)", call_of("edit"), tmp_path) is False, "nothing to match is no match"


def test_deny_finds_a_path_by_any_name(tmp_path: Path) -> None:
    assert denies("write(.env)", call_of("write", location="./a/../.ENV"), tmp_path) is True
    assert denies("write(.env)", call_of("write", location="x\0"), tmp_path) is False
    assert allows("write(src/**)", call_of("write", location="src/a.py"), tmp_path) is True
    assert allows("write(src/**)", call_of("write", location="src/../.env"), tmp_path) is None


def test_other_arguments_are_texts(tmp_path: Path) -> None:
    call = call_of("fetch", url="https://docs.python.org/3/")
    assert allows("fetch(https://docs.python.org/*)", call, tmp_path) is True
    evil = call_of("fetch", url="https://docs.python.org@evil.example/")
    assert allows("fetch(https://docs.python.org/*)", evil, tmp_path) is False
    assert denies("fetch(*EVIL*)", evil, tmp_path) is True
    assert allows("send(to=boss@*)", call_of("send", to="boss@x", body="hi"), tmp_path) is True
    assert allows("send(boss@*)", call_of("send", to="boss@x", body="hi"), tmp_path) is False, "all texts must match"


# --- what "always" offers -----------------------------------------------------------------------------------


def test_always_offers_the_narrowest_rule(tmp_path: Path) -> None:
    assert exact_rule(run("git push origin"), tmp_path) == "shell(command=git push origin)"
    assert exact_rule(run("git log | sh"), tmp_path) is None
    assert exact_rule(run("git -c x=y log"), tmp_path) == "shell(command=git -c x=y log)"
    assert exact_rule(call_of("write_file", path="./a/../b.py", content="x"), tmp_path) == "write_file(path=b.py)"
    assert exact_rule(call_of("write_file", path="~"), tmp_path) is None
    assert exact_rule(call_of("move", source="a", destination="b"), tmp_path) is None
    assert exact_rule(run("git log", cwd="sub"), tmp_path) is None
    assert exact_rule(call_of("send_mail", to="x", body="y"), tmp_path) == "send_mail"


@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=3), st.text(min_size=1, max_size=12))
def test_the_offered_rule_allows_this_and_nothing_else(words: list[str], path: str) -> None:
    for call, other in (
        (run(shlex.join(words)), run(shlex.join([*words, "x"]))),
        (call_of("w", path=path), call_of("w", path=path + "x")),
    ):
        rule = exact_rule(call, Path("/tmp"))
        if rule is not None:
            assert allows(rule, call, Path("/tmp")) is True
            assert allows(rule, other, Path("/tmp")) is not True
