"""The plugin `demo`: a model made of a few rules, for trying checkrein without a key.

    checkrein run --model demo:rules "What is in this folder, and which files are the largest?"

It really calls the tools of the plugin `files` and computes its answers from their results (rules.py); it
understands nothing, and says so in each answer. `model = "auto"` never takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from checkrein.hookspecs import hookimpl

from .provider import DemoProvider

if TYPE_CHECKING:
    from checkrein.harness import Harness
    from checkrein.providers import Provider

__all__ = ["DemoProvider", "Plugin"]


class Plugin:
    """Registers the provider `demo`."""

    class Config(Struct, frozen=True):
        """The table `[plugins.demo]`.

        Attributes:
            delay_s: seconds between two pieces of an answer, 0 to 1, so that streaming can be seen.
        """

        delay_s: Annotated[float, Meta(ge=0, le=1)] = 0.0

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()

    @hookimpl
    def register_providers(self, harness: Harness) -> Iterable[Provider]:
        """Return the provider."""
        return [DemoProvider(self.config.delay_s)]
