"""`Agent(...)`: a private harness with one agent, for programs that need no config file.

It holds nothing but what it is handed: the given tools and plugins, and the plugin that brings the
model's provider. Plugins that merely happen to be installed stay out (docs/decisions/0003).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .agents import AgentLike, AgentSpec
from .config.types import AgentConfig, HarnessConfig, PluginsConfig, SessionConfig
from .discovery import PLUGINS, Found, discover
from .errors import ConfigError, PluginError
from .harness import Harness
from .messages import Block
from .nearest import did_you_mean
from .providers import Provider
from .registration import listed
from .results import TurnResult

if TYPE_CHECKING:
    import os

    from .store import Store
    from .tools import Tool

__all__ = ["Agent"]


class Agent:
    """An async context manager that gives one agent.

    Args:
        model: `provider:model`, `auto`, or a Provider object.
        tools: tools, or plain functions to make tools of.
        system_prompt: the agent's system prompt.
        plugins: plugin classes or instances, or names of installed plugins.
        workspace: the folder tools work in; the current one if not given.
        store: where the session is kept; in memory if not given.
        spec: any other member of AgentSpec, as max_steps.

    Raises:
        ConfigError: the model is neither; something else than a list was given.
        PluginError: a plugin of this name is not installed.

    Raises (on entering):
        ConfigError, PluginError, CredentialsError: nothing was started.
    """

    def __init__(
        self,
        model: str | Provider = "auto",
        *,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        system_prompt: str = "",
        plugins: Sequence[object] = (),
        workspace: str | os.PathLike[str] | None = None,
        store: Store | None = None,
        **spec: Any,
    ) -> None:
        providers: tuple[Provider, ...] = ()
        plugins = listed("plugins", plugins)
        if not isinstance(model, str):
            if not (hasattr(model, "name") and hasattr(model, "stream")):
                raise ConfigError(f"expected a model as `provider:model`, `auto` or a Provider object, got {model!r}")
            providers = (model,)
            model = f"{model.name}:{model.default_model() or model.name}"
        agent = AgentSpec(id=spec.pop("id", "main"), model=model, system_prompt=system_prompt, **spec)
        named = [plugin for plugin in plugins if isinstance(plugin, str)]
        found = _found({*named, *(() if providers else _provider_plugins(model))})
        _check_names(named, found)
        self._harness = Harness(
            tools=tools,
            plugins=[plugin for plugin in plugins if not isinstance(plugin, str)],
            providers=providers,
            workspace=workspace,
            config=HarnessConfig(
                agents=(AgentConfig(id=agent.id),),
                session=SessionConfig(store="memory"),
                plugins=PluginsConfig(tables={name: {} for name in named}),  # so each is required (H5)
            ),
            store=store,
            found=found,
        )
        self._harness.specs = [agent]

    async def __aenter__(self) -> AgentLike:
        await self._harness.__aenter__()
        return self._harness.agents[self._harness.specs[0].id]

    async def __aexit__(self, *exc: object) -> None:
        await self._harness.__aexit__(*exc)

    if not TYPE_CHECKING:  # a type checker sees the mistake itself

        def __getattr__(self, name: str) -> Any:
            """Say what to do to somebody who uses the context manager as the agent it gives."""
            told = f"an Agent has no {name!r}"
            if hasattr(AgentLike, name) or name in AgentLike.__annotations__:
                told += f" before it is entered: `async with Agent(...) as agent:`, then agent.{name}; or run_sync"
            raise AttributeError(told)

    def run_sync(self, content: str | Sequence[Block], **options: Any) -> TurnResult:
        """Open the agent, run one turn, close it: for scripts without an event loop.

        Raises:
            RuntimeError: an event loop runs here already, as in a notebook.
        """
        import asyncio

        import anyio

        async def once() -> TurnResult:
            async with self as agent:
                return await agent.run(content, **options)

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return anyio.run(once)
        raise RuntimeError(
            "run_sync starts an event loop of its own, and one runs here already;"
            " write `async with Agent(...) as agent: result = await agent.run(...)`"
        )


def _provider_plugins(model: str) -> list[str]:
    """The installed plugin a model id points to; for `auto`, ours that have providers."""
    provider = model.partition(":")[0]
    return ["openai"] if provider == "auto" else [provider]


def _found(wanted: set[str]) -> list[Found]:
    """The installed plugins of these names; metadata is read only when there are any, for it costs start-up time."""
    return [found for found in discover(PLUGINS) if found.name in wanted] if wanted else []


def _check_names(named: Sequence[str], found: Sequence[Found]) -> None:
    """Refuse the name of a plugin that is not there: a guard that is misspelt guards nothing (H5)."""
    for name in named:
        if name not in (one.name for one in found):
            installed = sorted({one.name for one in discover(PLUGINS)})
            words = f"{', '.join(installed)}; got {name!r}{did_you_mean(name, installed)}"
            raise PluginError(f"expected one of the installed plugins {words}", plugin=name)
