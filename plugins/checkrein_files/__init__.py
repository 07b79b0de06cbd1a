"""The plugin `files`: tools that look at the agent's workspace and change nothing.

    list_files    what is in a folder, with sizes
    read_file     a text file, a page of lines at a time
    search_text   where a text occurs
    read_output   more of a tool's output that was too long for the conversation (X5)

    [plugins.files]
    hidden = [".git", ".checkrein"]     # names that are neither listed, searched nor read

All four are read_only and confined to the workspace (workspace.py). Writing and running are not here.
"""

from __future__ import annotations

from .plugin import Plugin
from .workspace import Workspace

__all__ = ["Plugin", "Workspace"]
