"""The configuration and the plugins in a harness that runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein.errors import ConfigError
from checkrein.harness import Harness
from checkrein.hookspecs import hookimpl

BACKENDS = ["asyncio", "trio"]
FILE = """
model = "scripted:default"

[[agents]]
id = "one"
max_steps = 7

[[agents]]
id = "two"

[agents.plugins.watch]
limit = 9

[plugins]
block = ["invariants"]

[plugins.watch]
limit = 3
word = "w"

[plugins.scripted]
turns = [{ text = "hello" }]
repeat = true

[session]
store = "memory"
"""


class Watch:
    name = "watch"
    opened: list[str] = []

    @dataclass(frozen=True)
    class Config:
        limit: int = 1
        word: str = ""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.seen: list[tuple[str, int]] = []

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, harness: Any) -> AsyncIterator[None]:
        self.opened.append("opened")
        yield

    @hookimpl
    def agent_request(self, agent: Any, request: Any) -> None:
        self.seen.append((agent.id, agent.harness.plugins.config_for("watch", agent.spec).limit))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "checkrein.toml").write_text(FILE)
    monkeypatch.setenv("CHECKREIN_CONFIG_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr(Watch, "opened", [])
    return tmp_path


@pytest.mark.parametrize("backend", BACKENDS)
def test_H6_agents_and_their_overrides_come_from_the_file(project: Path, backend: str) -> None:
    async def main() -> None:
        async with Harness(project, workspace=project, plugins=[Watch]) as harness:
            assert [agent.id for agent in harness.agents] == ["one", "two"]
            assert harness.agents["one"].spec.max_steps == 7
            assert "invariants" not in harness.plugins
            for agent in harness.agents:
                assert (await agent.run("hi")).text == "hello"
            watch = harness.plugins.plugin("watch")
            assert watch.config == Watch.Config(3, "w")
            assert watch.seen == [("one", 3), ("two", 9)]
            created = next(iter(harness.agents)).session.events[0]
            assert created.config == harness.config_hash

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[plugins.wathc]\nx = 1\n", r"did you mean 'watch'"),
        ("[plugins.watch.limit]\nx = 1\n", r"syntax error"),
        ("[limits]\ntool_threads = 0\n", r"expected int >= 1, got 0"),
    ],
)
def test_H5_nothing_starts_with_a_bad_file(project: Path, backend: str, more: str, words: str) -> None:
    with (project / "checkrein.toml").open("a") as file:
        file.write(more)

    async def main() -> None:
        async with Harness(workspace=project, plugins=[Watch]):
            raise AssertionError("started")

    with pytest.raises(ConfigError, match=words):
        anyio.run(main, backend=backend)
    assert Watch.opened == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_H5_nothing_starts_with_a_bad_override(project: Path, backend: str) -> None:
    async def main() -> None:
        async with Harness(workspace=project, plugins=[Watch], overrides={"agents.two.plugins.watch.limit": "many"}):
            raise AssertionError("started")

    with pytest.raises(ConfigError, match=r"expected int, got str \(at agents\[1\]\.plugins\.watch\.limit"):
        anyio.run(main, backend=backend)
    assert Watch.opened == []


def test_a_workspace_is_a_folder(tmp_path):
    """Or nothing starts: each tool would fail, and a store would make it."""
    (tmp_path / "file").write_text("")

    async def main(name: str) -> None:
        async with Harness(workspace=tmp_path / name, found=[], overrides={"session.store": "memory"}):
            pytest.fail("it opened")

    for name in ("not there", "file"):
        with pytest.raises(ConfigError, match="expected a folder as workspace, got"):
            anyio.run(main, name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
