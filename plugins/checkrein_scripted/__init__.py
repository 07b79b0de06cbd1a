"""The plugin `scripted`: a provider that plays a script from the configuration.

    [plugins.scripted]
    script = "script.toml"              # or .json; a relative path is taken from the working directory
    # turns = ["hello", { calls = [{ name = "weather", arguments = { city = "Paris" } }] }, "sunny"]
    # repeat = false                    # start again at the end
    # window_tokens = 8000              # the context window it says it has

    [[agents]]
    id = "main"
    model = "scripted:any"

The data of a turn is described in checkrein/testing/script_data.py and docs/testing.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from checkrein.errors import ConfigError
from checkrein.hookspecs import hookimpl

if TYPE_CHECKING:
    from checkrein.harness import Harness
    from checkrein.providers import Provider

__all__ = ["Plugin"]

HERE = "plugins.scripted"


class Plugin:
    """Registers the provider `scripted`; without a script it says what to set.

    Raises:
        ConfigError: the script cannot be read, or is none.
    """

    class Config(Struct, frozen=True):
        """The table `[plugins.scripted]`.

        Attributes:
            script: a .toml or .json file with the script.
            turns: the script itself, instead of a file.
            repeat: whether it starts again at its end.
            window_tokens: the context window the provider says it has, in tokens.
        """

        script: str | None = None
        turns: list[Any] | None = None
        repeat: bool = False
        window_tokens: int | None = None

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self._provider = _provider(self.config)

    @hookimpl
    def register_providers(self, harness: Harness) -> Iterable[Provider]:
        """The scripted provider."""
        return [self._provider]


def _provider(config: Plugin.Config) -> Provider:
    if config.script is None and config.turns is None:
        return _Unset()
    if config.script is not None and config.turns is not None:
        raise ConfigError("expected script or turns, got both; remove one", path=HERE)
    from checkrein.testing.script_data import load_script, parse_script, turns_of
    from checkrein.testing.scripted import ScriptedModel

    data = parse_script(config.turns, path=HERE) if config.script is None else load_script(config.script)
    return ScriptedModel(*turns_of(data), repeat=config.repeat or data.repeat, window_tokens=config.window_tokens)


class _Unset:
    """The provider while no script is configured: found by name, chosen by nobody."""

    name = "scripted"

    def missing(self) -> str | None:
        return f"set script = FILE or turns = [...] in [{HERE}]"

    def default_model(self) -> str | None:
        return None

    def window_tokens(self, model: str) -> int | None:
        return None

    def stream(self, request: Any) -> Any:
        raise ConfigError(f"the provider 'scripted' has no script; {self.missing()}", path=HERE)
