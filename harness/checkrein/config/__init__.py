"""The configuration: `checkrein.toml` and its layers, typed and checked before anything starts.

types.py has the shape, layers.py the files and their order, environment.py the variables, check.py and convert.py
what is wrong, schema.py the JSON Schema.
"""

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
