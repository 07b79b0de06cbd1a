"""Durable sessions: the JSON Lines store and the plugin that writes to it (R1, R3, R4)."""

from .files import FileOps
from .jsonl import JsonlStore
from .plugin import Plugin
from .writer import JsonlWriter

__all__ = ["FileOps", "JsonlStore", "JsonlWriter", "Plugin"]
