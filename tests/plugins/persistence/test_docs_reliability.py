"""docs/reliability.md: its commands name tests that exist, its Python runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from checkrein.memory_store import MemoryStore

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reliability.md").read_text()


def test_every_command_names_tests_that_exist() -> None:
    commands = re.findall(r"`pytest ([^\s`]+)(?: [^`]*-k (\w+))?[^`]*`", PAGE)
    assert len(commands) >= 8
    for path, word in commands:
        place = ROOT / path
        assert place.exists(), path
        files = place.glob("test_*.py") if place.is_dir() else [place]
        assert any(f"_{word}_" in file.read_text() for file in files) if word else True, (path, word)


def test_the_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "tests/data/transcripts/ph.jsonl", tmp_path / "session.jsonl")
    monkeypatch.chdir(tmp_path)
    kit, transcripts = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(transcripts, {})
    assert (tmp_path / "repaired.jsonl").exists()
    shared: dict[Path, MemoryStore] = {}
    names: dict[str, Any] = {"MyStore": lambda folder: shared.setdefault(folder, MemoryStore())}
    exec(kit, names)
    (tmp_path / "kit").mkdir()
    names["test_my_store"](tmp_path / "kit")
    assert names["TestAnyOrder"]
