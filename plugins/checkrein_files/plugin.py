"""The plugin's configuration, and its tools as the model sees them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from checkrein.calls import Outcome
from checkrein.hookspecs import hookimpl
from checkrein.tools import Tool, ToolContext, tool

from . import listing, output, reading, searching
from .bounds import Clock
from .workspace import Workspace

if TYPE_CHECKING:
    from checkrein.harness import Harness

__all__ = ["Plugin"]

TIMEOUT_S = 60.0  # the tools stop by themselves before that, and give what they have


class Plugin:
    """Brings list_files, read_file, search_text and read_output."""

    loosens = ("hidden",)

    class Config(Struct, frozen=True):
        """The table `[plugins.files]`.

        Attributes:
            hidden: names that are neither listed, searched nor read, whatever their case.
            max_seconds: how long one listing or search may take before it gives what it has, above 0.
        """

        hidden: tuple[str, ...] = (".git", ".checkrein")
        max_seconds: Annotated[float, Meta(gt=0, le=50)] = 10.0

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()

    @hookimpl
    def register_tools(self, harness: Harness) -> Iterable[Tool]:
        """Return the tools."""
        made = tool(read_only=True, timeout_s=TIMEOUT_S)
        return [made(self.list_files), made(self.read_file), made(self.search_text), made(self.read_output)]

    def _open(self, context: ToolContext) -> tuple[Workspace, Clock]:
        return Workspace(context.workspace, self.config.hidden), Clock(context, self.config.max_seconds)

    def list_files(
        self,
        context: ToolContext,
        path: str = ".",
        recursive: bool = False,
        sort: Literal["name", "size"] = "name",
        limit: Annotated[int, Meta(ge=1, le=2_000)] = 500,
    ) -> Outcome:
        """List a folder of the workspace, with the files' sizes in bytes.

        Args:
            path: the folder, relative to the workspace.
            recursive: also list what is in its sub-folders.
            sort: by name, or files by size with the largest first.
            limit: how many entries to show at most.
        """
        return listing.list_files(*self._open(context), path, recursive, sort, limit)

    def read_file(
        self,
        context: ToolContext,
        path: str,
        offset: Annotated[int, Meta(ge=1)] = 1,
        limit: Annotated[int, Meta(ge=1, le=5_000)] = 1_000,
    ) -> Outcome:
        """Read a text file of the workspace, a page of lines at a time; the first line of the result says which.

        Args:
            path: the file, relative to the workspace.
            offset: the first line to show, counted from 1.
            limit: how many lines to show at most.
        """
        return reading.read_file(*self._open(context), path, offset, limit)

    def search_text(
        self,
        context: ToolContext,
        text: Annotated[str, Meta(min_length=1, max_length=1_000)],
        path: str = ".",
        ignore_case: bool = False,
        glob: str = "*",
        limit: Annotated[int, Meta(ge=1, le=1_000)] = 100,
    ) -> Outcome:
        """Search the text files of the workspace for a text, literally; shows path:line: and the line.

        Args:
            text: what to look for, within one line.
            path: the folder or file to search, relative to the workspace.
            ignore_case: find it in any case.
            glob: only files whose name matches, as *.py.
            limit: how many matches to show at most.
        """
        return searching.search_text(*self._open(context), text, path, ignore_case, glob, limit)

    def read_output(
        self,
        context: ToolContext,
        output_id: str,
        offset: Annotated[int, Meta(ge=0)] = 0,
        limit: Annotated[int, Meta(ge=1, le=50_000)] = 20_000,
    ) -> str:
        """Read on in an earlier tool output that was too long to be shown whole.

        Args:
            output_id: the id that stands where the output was cut.
            offset: the first byte to show.
            limit: how many bytes to show at most.
        """
        return output.read_output(context, output_id, offset, limit)
