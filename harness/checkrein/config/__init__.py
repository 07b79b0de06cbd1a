"""The configuration: `checkrein.toml` and its layers, typed and checked before anything starts.

types.py has the shape, layers.py the files, the environment and the command line, convert.py the
errors, schema.py the JSON Schema.
"""

from .types import AgentConfig, HarnessConfig, LimitsConfig, PluginsConfig, SessionConfig

__all__ = ["AgentConfig", "HarnessConfig", "LimitsConfig", "PluginsConfig", "SessionConfig"]
