"""The configuration: `checkrein.toml` and its layers, typed and checked before anything starts.

types.py has the shape, layers.py the files and their order, environment.py the variables, check.py and convert.py
what is wrong, schema.py the JSON Schema. Names are imported on first use: a program without files reads none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .check import problems_in
    from .layers import LoadedConfig, load_config, user_file
    from .types import AgentConfig, HarnessConfig, LimitsConfig, PluginsConfig, SessionConfig

__all__ = [
    "load_config",
    "LoadedConfig",
    "HarnessConfig",
    "AgentConfig",
    "PluginsConfig",
    "SessionConfig",
    "LimitsConfig",
    "problems_in",
    "user_file",
]

_HOME = {"problems_in": ".check", "load_config": ".layers", "LoadedConfig": ".layers", "user_file": ".layers"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME.get(name, ".types"), __name__), name)
