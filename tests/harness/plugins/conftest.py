"""Distributions made for a test, real metadata and real modules in a folder on sys.path; and the kit of these tests."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from checkrein.discovery import PLUGINS, Found, discover

sys.path.insert(0, str(Path(__file__).parent))

_serial = itertools.count()

Install = Callable[..., list[Found]]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install("acme-limit", {"limit": SOURCE})` makes a distribution and returns all plugins made so far."""
    made: list[str] = []
    modules: list[str] = []

    def make(
        distribution: str,
        plugins: dict[str, str],
        *,
        version: str = "1.2",
        group: str = PLUGINS,
        attribute: str = "Plugin",
    ) -> list[Found]:
        folder = tmp_path / f"site{next(_serial)}"
        info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        lines = [f"[{group}]"]
        for name, source in plugins.items():
            module = f"fake_{name.replace('-', '_')}_{next(_serial)}"
            (folder / f"{module}.py").write_text(dedent(source))
            lines.append(f"{name} = {module}:{attribute}" if attribute else f"{name} = {module}")
            modules.append(module)
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        made.append(str(folder))
        return [one for one in discover(group) if one.value.partition(":")[0] in modules]

    yield make
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture
def imported() -> Callable[[Found], bool]:
    """Whether the module of an entry point was imported."""
    return lambda found: found.value.partition(":")[0] in sys.modules
