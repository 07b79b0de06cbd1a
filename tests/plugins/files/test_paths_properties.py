"""Property: no path whatever leads out of the workspace, or to anything but words."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein.errors import ToolError
from checkrein_files import Workspace

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX links")
pieces = st.sampled_from(
    ["..", ".", "", "a", "b", "up", "out", "loop", "secret", "/", "//", "~", "\0", ".git", "..\\", "a" * 260, "\ud800"]
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("base")
    (base / "secret").write_text("SECRET")
    inside = base / "workspace"
    (inside / "a/b").mkdir(parents=True)
    (inside / "a/secret").write_text("inside")
    (inside / "up").symlink_to("..")
    (inside / "out").symlink_to(base)
    (inside / "a/loop").symlink_to(inside)
    return inside


@given(st.lists(pieces, max_size=7).map("/".join) | st.text(st.characters(exclude_categories=[]), max_size=12))
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_path_leads_out(root: Path, path: str) -> None:
    workspace = Workspace(root, (".git",))
    try:
        parts = workspace.locate(path)
    except ToolError as exc:
        str(exc).encode()
        return
    real: Any = root.joinpath(*parts)
    assert Path(os.path.realpath(real)).is_relative_to(root) and ".git" not in parts and ".." not in parts
    try:
        with workspace.open(parts) as file:
            assert file.read() == b"inside"
    except ToolError as exc:
        assert exc.code == "IS_A_FOLDER"
