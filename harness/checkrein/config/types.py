"""The shape of `checkrein.toml`, as types: every key, its default and its limits.

The docstrings' `Attributes` are the reference (docs/config.md is made from them). Reading files is
layers.py; what is wrong in a document is told by convert.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from checkrein.agents import AgentSpec
from checkrein.errors import ConfigError

__all__ = ["AgentConfig", "HarnessConfig", "LimitsConfig", "PluginsConfig", "SessionConfig", "check_spec"]

Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern=r"^(?!.*\s)[^/\\\x00-\x1f\x7f]+$",
        description="without blanks, slashes and control characters",
    ),
]
Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0, le=2**31)]
AtLeastOne = Annotated[int, Meta(ge=1, le=2**31)]
Seconds = Annotated[float, Meta(gt=0, le=86_400 * 365)]

DeadlineHook = Literal[
    "lifespan",
    "agent_created",
    "agent_request",
    "request_error",
    "step_result",
    "tools_execute",
    "tools_guard",
    "turn_continuation",
    "session_flush",
    "agent_disposed",
]
"""The hooks of hookspecs.SPECS that have a deadline; a test holds the two together."""


class AgentConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `[[agents]]`.

    Attributes:
        id: its name, unique, without blanks and slashes.
        model: `provider:model`, or `auto`; without it the top-level `model`.
        system_prompt: its own part of the system prompt, the last one.
        tools: names or patterns (`fs_*`) of the tools it may use; without it all.
        plugins: `[agents.plugins.NAME]`, single keys of a plugin's table, overriding for this agent.
        max_steps: steps a turn may take; 0 = unlimited.
        max_parallel_tool_calls: calls of one step that run at once, at least 1.
        max_steering_extensions: times in a row that steering may extend a final answer.
        inbox_max: pending inputs at most; a full inbox refuses.
        queue_mode: what a turn takes of the queue: `all` or `one`.
        settings: request settings that every provider understands, as `temperature`.
    """

    id: Id
    model: Name | None = None
    system_prompt: str = ""
    tools: tuple[Name, ...] | None = None
    plugins: dict[str, dict[str, Any]] = {}
    max_steps: Count = 100
    max_parallel_tool_calls: AtLeastOne = 4
    max_steering_extensions: Count = 8
    inbox_max: AtLeastOne = 1_000
    queue_mode: Literal["all", "one"] = "all"
    settings: dict[str, Any] = {}


class PluginsConfig(Struct, frozen=True, kw_only=True):
    """`[plugins]`: which plugins load, and `[plugins.NAME]`, their tables.

    Attributes:
        allow: the only plugins of others that load; empty = no restriction. Our own load unless blocked by name.
        block: plugins that do not load and are not imported.
        override: names (of tools, providers, stores, event types, prompt sections, commands, plugins) that a later
            owner may take over.
        autoload: whether installed plugins of others load although neither `allow` nor a table names them.
        tables: `[plugins.NAME]`, by plugin name; typed by the plugin's own `Config`.
    """

    allow: tuple[Name, ...] = ()
    block: tuple[Name, ...] = ()
    override: tuple[Name, ...] = ()
    autoload: bool = True
    tables: dict[str, dict[str, Any]] = {}


class SessionConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[session]`: who keeps sessions. How and where is the store's own table, as `[plugins.persistence]`.

    Attributes:
        store: the store's name; `memory` keeps nothing.
    """

    store: Name = "jsonl"


class LimitsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`: what bounds a harness.

    Attributes:
        tool_threads: threads for synchronous tools, of the whole harness.
        close_timeout_s: seconds that closing waits for what does not stop, at most.
        output_max_bytes: bytes of a tool's output that are logged; the whole goes into a blob.
        stream_idle_s: seconds a model's stream may bring nothing, before the attempt ends as a timeout; 0 = no limit.
        hook_deadlines_s: `[limits.hook_deadlines_s]`, seconds an async implementation may take, by hook name.
    """

    tool_threads: AtLeastOne = 64
    close_timeout_s: Seconds = 5.0
    output_max_bytes: Annotated[int, Meta(ge=256, le=2**31)] = 65_536
    stream_idle_s: Annotated[float, Meta(ge=0, le=86_400 * 365)] = 600.0
    hook_deadlines_s: dict[DeadlineHook, Seconds] = {}

    def deadlines(self) -> dict[str, float]:
        """The hooks' deadlines in seconds, by name."""
        return {str(hook): deadline_s for hook, deadline_s in self.hook_deadlines_s.items()}


class HarnessConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`checkrein.toml`.

    Attributes:
        model: `provider:model` of agents that name none; `auto` takes the first provider that has its credentials.
        loop: the loop that drives agents, an entry point of group `checkrein.loops`.
        agents: `[[agents]]`; without any there is one, `main`.
        plugins: `[plugins]`.
        session: `[session]`.
        limits: `[limits]`.
    """

    model: Name = "auto"
    loop: Name = "default"
    agents: tuple[AgentConfig, ...] = ()
    plugins: PluginsConfig = PluginsConfig()
    session: SessionConfig = SessionConfig()
    limits: LimitsConfig = LimitsConfig()

    def agent_specs(self) -> list[AgentSpec]:
        """The agents as the harness makes them; one `main` if the file has none."""
        agents = self.agents or (AgentConfig(id="main"),)
        return [self._spec(agent) for agent in agents]

    def _spec(self, agent: AgentConfig) -> AgentSpec:
        members = {name: getattr(agent, name) for name in agent.__struct_fields__}
        return AgentSpec(**{**members, "model": agent.model or self.model})


def check_spec(spec: AgentSpec) -> None:
    """Hold how an agent is made by hand to what a file's `[[agents]]` are held to.

    Raises:
        ConfigError: a member has another type, or is out of its range.
    """
    if not isinstance(spec, AgentSpec):
        raise ConfigError(f'expected AgentSpec(id="x", model="provider:model"), got {type(spec).__name__} {spec!r}')
    members = {name: getattr(spec, name) for name in spec.__struct_fields__}
    try:
        msgspec.convert(members, AgentConfig)
    except msgspec.ValidationError as exc:
        from .convert import as_error, problems_of

        raise as_error(problems_of(members, AgentConfig, at=f"AgentSpec({spec.id!r})"), None) from exc


SWITCHES = tuple(name for name in PluginsConfig.__struct_fields__ if name != "tables")
"""The keys of `[plugins]` that are no plugin's table."""


def shaped(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document of a file in the shape of the types: the tables of `[plugins]` in one member."""
    section = document.get("plugins")
    if not isinstance(section, dict):
        return document
    switches = {key: value for key, value in section.items() if key in SWITCHES}
    tables = {key: value for key, value in section.items() if key not in SWITCHES and isinstance(value, dict)}
    return {**document, "plugins": {**switches, "tables": tables}}


def plain(config: HarnessConfig) -> dict[str, Any]:
    """Return a config as the plain document it could be read from."""
    document: dict[str, Any] = msgspec.to_builtins(config)
    document["plugins"] |= document["plugins"].pop("tables")
    return document
