"""A workspace, and its tools called as the loop calls them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein.calls import Outcome
from checkrein.messages import content_text
from checkrein.output import to_outcome
from checkrein.tools import ToolContext
from checkrein_files import Plugin

Call = Callable[..., str]


class Tools:
    def __init__(self, root: Path, config: Plugin.Config | None = None) -> None:
        self.root = root
        self.by_name = {tool.name: tool for tool in Plugin(config).register_tools(None)}  # type: ignore[arg-type]
        self.context = ToolContext(None, None, "c1.1.1", 1, root)  # type: ignore[arg-type]

    def outcome(self, name: str, **arguments: Any) -> Outcome:
        tool = self.by_name[name]
        return to_outcome(tool.invoke(self.context, tool.validate(arguments)))

    def __call__(self, name: str, **arguments: Any) -> str:
        return content_text(self.outcome(name, **arguments).content)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    root = tmp_path / "workspace"
    root.mkdir()
    return Tools(root)
