"""An example plugin: a tool that greets, and a guard that keeps it from greeting some.

[plugins.hello]
never = ["Mallory"]
"""

from __future__ import annotations

from dataclasses import dataclass

from checkrein import Deny, Tool, hookimpl, tool
from checkrein.calls import Call

__all__ = ["Plugin", "hello"]


@tool(read_only=True)
def hello(name: str) -> str:
    """Greet somebody.

    Args:
        name: whom.
    """
    return f"Hello, {name}!"


class Plugin:
    """Brings the tool `hello`, and refuses the calls the config forbids."""

    @dataclass(frozen=True)
    class Config:
        """`[plugins.hello]`.

        Attributes:
            never: names that are not greeted.
        """

        never: tuple[str, ...] = ()

    def __init__(self, config: Config) -> None:
        self.config = config

    @hookimpl
    def register_tools(self) -> list[Tool]:
        """The tool."""
        return [hello]

    @hookimpl
    def tools_guard(self, call: Call) -> Deny | None:
        """Refuse to greet those the config names."""
        if call.name == "hello" and call.arguments["name"] in self.config.never:
            return Deny(f"{call.arguments['name']} is not greeted here")
        return None
