"""Nothing leads out of the workspace: paths, links, special files, spellings, races (case A06, CVE-2025-54794)."""

import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from checkrein.errors import ToolError
from checkrein_files import Plugin, Workspace
from checkrein_files.workspace import shown

SECRET = "the secret outside"
TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("list_files", {}),
    ("list_files", {"recursive": True}),
    ("read_file", {}),
    ("search_text", {"text": "secret"}),
]
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX file system")


@pytest.fixture
def room(tools: Any) -> Any:
    """A workspace with every way out that a file system knows."""
    root: Path = tools.root
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    sibling = root.parent / "workspace-other"  # its path begins with the workspace's
    sibling.mkdir()
    (sibling / "secret.txt").write_text(SECRET)
    (root / "inside").mkdir()
    (root / "inside/file.txt").write_text("inside\n")
    (root / ".git").mkdir()
    (root / ".git/config").write_text(SECRET)
    (root / ".checkrein").mkdir()
    (root / ".checkrein/session.jsonl").write_text(SECRET)
    if os.name != "nt":
        links = {
            "link-file": outside / "secret.txt",
            "link-folder": outside,
            "link-relative": "../outside/secret.txt",
            "inside/link-up": "../..",
            "link-chain": "link-folder",
            "link-root": "/",
            "link-proc": "/proc/self",
            "link-home": Path.home(),
            "link-git": ".git",
            "link-git-file": ".git/config",
            "link-sibling": sibling,
            "link-loop": "link-loop",
            "link-gone": "not-there",
            "link-good": "inside/file.txt",
            "link-good-folder": "inside",
            "link-null": "/dev/null",
        }
        for name, target in links.items():
            (root / name).symlink_to(target)
        os.mkfifo(root / "fifo")
    return tools


OUT = [
    "..",
    "../",
    "../outside",
    "../outside/secret.txt",
    "./../outside/secret.txt",
    "inside/../../outside/secret.txt",
    "inside/../..",
    "inside/./.././../outside/secret.txt",
    "inside//..//..//outside//secret.txt",
    "not-there/../../outside/secret.txt",
    "inside/file.txt/../../../outside/secret.txt",
    "/",
    "//",
    "/etc/passwd",
    "//etc/passwd",
    "/../etc/passwd",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd",
    "/dev/fd/0",
    "/dev/stdin",
    "../workspace-other",
    "../workspace-other/secret.txt",
    "../workspace/../outside/secret.txt",
    "../../../../../../../../etc/passwd",
]
LINKS = [
    "link-file",
    "link-folder",
    "link-folder/secret.txt",
    "link-folder/../outside/secret.txt",
    "link-relative",
    "inside/link-up",
    "inside/link-up/outside/secret.txt",
    "link-chain/secret.txt",
    "link-root",
    "link-root/etc/passwd",
    "link-proc/environ",
    "link-home",
    "link-sibling/secret.txt",
    "link-null",
]
HIDDEN = [
    ".git",
    ".git/config",
    ".GIT/config",
    ".checkrein",
    ".checkrein/session.jsonl",
    "inside/../.git/config",
    "link-git",
    "link-git/config",
    "link-git-file",
    "./.git/./config",
]
WRONG = [
    "not-there",
    "inside/not-there",
    "",
    "nul\0byte",
    "\0",
    "inside/file.txt\0.png",
    "a" * 300,
    "a/" * 3_000,
    "inside/" + "b" * 256,
    "\ud800",
    "inside/\udfff",
    "~",
    "~/secret.txt",
    "$HOME",
    "%2e%2e/outside/secret.txt",
    "..%2foutside",
    "\u2024\u2024/outside",
    "\uff0e\uff0e/outside/secret.txt",
    "\u2025/outside",
    "file:///etc/passwd",
    "link-loop",
    "link-gone",
    "inside/file.txt/",
    "inside/file.txt/x",
    "C:\\Windows\\win.ini",
    "\\\\server\\share\\file",
    "..\\outside\\secret.txt",
    "inside\\file.txt",
    "INSIDE/missing.txt",
    "fifo",
    "inside/file.txt:stream",
]


def attack(room: Any, path: str) -> list[str]:
    """What every tool answers; fails if one of them gives the secret away."""
    codes = []
    for name, arguments in TOOLS:
        try:
            text = room(name, path=path, **arguments)
            codes.append("ok")
        except ToolError as exc:
            text = str(exc)
            codes.append(exc.code)
            assert exc.code != "TOOL_ERROR" and len(text) < 1_500 and "\0" not in text
        assert SECRET not in text and "root:" not in text and "PATH=" not in text, (name, path)
    return codes


@posix
@pytest.mark.parametrize("path", OUT + LINKS)
def test_case_A06_what_leads_outside_is_refused(room: Any, path: str) -> None:
    if path.startswith("/proc") and not Path("/proc/self").exists():
        pytest.skip("no /proc here")
    codes = attack(room, path)
    if "file.txt/.." in path or "not-there/.." in path:
        assert "ok" not in codes  # the kernel and realpath may differ; either way it is refused
    else:
        assert set(codes) == {"OUTSIDE_WORKSPACE"}


@posix
@pytest.mark.parametrize("path", HIDDEN)
def test_hidden_names_are_refused(room: Any, path: str) -> None:
    codes = set(attack(room, path))
    assert codes == {"HIDDEN"}


@posix
@pytest.mark.parametrize("path", WRONG, ids=lambda path: ascii(path[:30]))
def test_what_is_no_path_is_refused_in_words(room: Any, path: str) -> None:
    codes = attack(room, path)
    if path == "":
        return  # the workspace itself
    if path == "inside/file.txt/":
        return  # realpath drops the slash: it is the file
    assert codes[2] != "ok" and codes[0] != "ok"


@posix
def test_nothing_secret_in_a_walk_of_everything(room: Any) -> None:
    for name, arguments in [
        ("list_files", {"recursive": True, "limit": 2_000}),
        ("search_text", {"text": "secret"}),
        ("search_text", {"text": "SECRET", "ignore_case": True}),
        ("search_text", {"text": "root:"}),
    ]:
        text = room(name, **arguments)
        assert "secret.txt" not in text and SECRET not in text and "config" not in text and "session.jsonl" not in text
    listing = room("list_files")
    assert "link  link-file  (leads outside of the workspace)" in listing
    assert "link  link-good\n" in listing and "special  fifo" in listing
    assert "0 matching" in room("search_text", text="secret")


@posix
def test_links_that_stay_inside_work(room: Any) -> None:
    assert room("read_file", path="link-good").endswith("inside\n")
    assert room("list_files", path="link-good-folder").startswith("inside: 1 file")
    assert room("read_file", path="link-good-folder/file.txt").startswith("inside/file.txt: lines 1 to 1")
    assert room("read_file", path="inside/../inside/./file.txt").endswith("inside\n")
    assert room("read_file", path=str(room.root / "inside/file.txt")).endswith("inside\n")


@posix
def test_a_workspace_behind_a_link_is_the_folder_it_names(room: Any) -> None:
    alias = room.root.parent / "alias"
    alias.symlink_to(room.root)
    other = type(room)(alias)
    assert other("read_file", path="inside/file.txt").endswith("inside\n")
    assert other("read_file", path=str(alias / "inside/file.txt")).endswith("inside\n")
    with pytest.raises(ToolError) as info:
        other("read_file", path="../outside/secret.txt")
    assert info.value.code == "OUTSIDE_WORKSPACE"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")
def test_nothing_stays_open_behind_a_refusal(room: Any) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        for path in ("inside", "fifo", "nothing", "../outside/secret.txt"):
            with pytest.raises(ToolError):
                room("read_file", path=path)
        room("list_files", path="inside")
        room("search_text", text="inside")
    assert len(os.listdir("/proc/self/fd")) == before


@posix
def test_special_files_do_not_hold_the_tool_up(room: Any) -> None:
    with pytest.raises(ToolError) as info:
        room("read_file", path="fifo")  # would wait for a writer for ever
    assert info.value.code == "NOT_A_FILE"
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(room.root)  # socket paths are short
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
    with pytest.raises(ToolError) as info:
        room("read_file", path="socket")
    assert info.value.code == "NOT_A_FILE" and "special  socket" in room("list_files")
    with pytest.raises(ToolError) as info:
        room("read_file", path="inside")
    assert info.value.code == "IS_A_FOLDER"
    with pytest.raises(ToolError) as info:
        room("list_files", path="inside/file.txt")
    assert info.value.code == "NOT_A_FOLDER"


@posix
def test_a_hard_link_is_a_file_of_the_workspace_and_says_so(room: Any) -> None:
    os.link(room.root / "inside/file.txt", room.root / "hard")
    assert "2 hard links" in room("read_file", path="hard")


@posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_told(room: Any) -> None:
    (room.root / "inside/file.txt").chmod(0)
    with pytest.raises(ToolError) as info:
        room("read_file", path="inside/file.txt")
    assert info.value.code == "NO_ACCESS"


def test_hidden_names_in_other_spellings() -> None:
    workspace = Workspace(Path(), (".git", ".checkrein"))
    for name in [".git", ".GIT", ".Git", ".git.", ".git ", ".g\u200cit", "git~1", "GIT~1", ".\uff47it", ".CHECKREIN"]:
        assert workspace.hides(name), ascii(name)
    for name in ["git", ".gitignore", ".github", "checkrein", "..git"]:
        assert not workspace.hides(name), name
    assert not Workspace(Path()).hides(".git")


@posix
def test_configured_hidden_names(room: Any) -> None:
    (room.root / "inside/.env").write_text("KEY=1")
    assert ".env" in room("list_files", path="inside")
    other = type(room)(room.root, Plugin.Config(hidden=(".env",)))
    assert ".env" not in other("list_files", path="inside") and "KEY" not in other("search_text", text="KEY=")
    with pytest.raises(ToolError) as info:
        other("read_file", path="inside/.env")
    assert info.value.code == "HIDDEN"


def test_shown_is_one_plain_line() -> None:
    assert shown("a/b c.txt") == "a/b c.txt"
    for odd in ["", " a", "a\n", "a\\b", "\ud800", "\x1b[0m", "\u202e"]:
        text = shown(odd)
        assert text.startswith('"') and text.isprintable()
        text.encode()


@posix
@pytest.mark.parametrize("swap", ["folder", "file"])
def test_a_folder_that_becomes_a_link_between_check_and_use_gives_nothing_away(room: Any, swap: str) -> None:
    """What `locate` found is swapped before it is opened: the opening itself refuses."""
    root: Path = room.root
    workspace = Workspace(root, (".git",))
    (root / "victim").mkdir()
    (root / "victim/secret.txt").write_text("harmless")
    parts = workspace.locate("victim/secret.txt")
    if swap == "folder":
        (root / "victim").rename(root / "moved")
        (root / "victim").symlink_to(root.parent / "outside")
    else:
        (root / "victim/secret.txt").unlink()
        (root / "victim/secret.txt").symlink_to(root.parent / "outside/secret.txt")
    with pytest.raises(ToolError), workspace.open(parts) as file:
        assert file.read() != SECRET.encode()
    if swap == "folder":
        with pytest.raises(ToolError):
            workspace.scan(("victim",), 10)


@posix
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX")
def test_a_racing_thread_never_wins(room: Any) -> None:
    root: Path = room.root
    (root / "real").mkdir()
    (root / "real/secret.txt").write_text("harmless\n")
    (root / "race").symlink_to("real")
    stop = threading.Event()

    def racer() -> None:
        targets = ["real", "../outside"]
        for i in range(100_000):
            if stop.is_set():
                return
            os.symlink(targets[i % 2], root / "next")
            os.replace(root / "next", root / "race")

    thread = threading.Thread(target=racer)
    thread.start()
    try:
        seen = set()
        for _ in range(400):
            try:
                text = room("read_file", path="race/secret.txt")
                assert SECRET not in text
                seen.add("ok")
            except ToolError as exc:
                seen.add(exc.code)
    finally:
        stop.set()
        thread.join()
    assert seen <= {"ok", "OUTSIDE_WORKSPACE", "NOT_FOUND"}
