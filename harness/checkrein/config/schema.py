"""The JSON Schema of `checkrein.toml`, for editors, and the reference of its keys: both made from the types.

It accepts and refuses what check.py does, but for what a schema cannot say (unique ids). Of a plugin's own
checks in `__post_init__` it knows nothing.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from .convert import schema_hook
from .types import SWITCHES, AgentConfig, HarnessConfig, LimitsConfig, PluginsConfig, SessionConfig

__all__ = ["field_docs", "json_schema"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{name}"
_OURS = (HarnessConfig, AgentConfig, PluginsConfig, SessionConfig, LimitsConfig)


def json_schema(plugin_configs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a config file.

    Args:
        plugin_configs: the `Config` of each installed plugin, None for one without; no other table is accepted.
    """
    typed = {name: type_ for name, type_ in plugin_configs.items() if type_ is not None}
    types = list(dict.fromkeys((*_OURS, *typed.values())))
    refs, components = msgspec.json.schema_components(types, schema_hook=schema_hook, ref_template=_REF)
    place = {type_: ref["$ref"].rpartition("/")[2] for type_, ref in zip(types, refs, strict=True) if "$ref" in ref}
    for type_, name in place.items():
        _describe(components[name], type_)
    for component in components.values():
        _close(component)
    tables: dict[str, Any] = {}
    partial: dict[str, Any] = {}
    for name in plugin_configs:
        table = components[place[typed[name]]] if name in typed else _nothing()
        tables[name] = {"$ref": _REF.format(name=place[typed[name]])} if name in typed else table
        partial[name] = {key: copy.deepcopy(value) for key, value in table.items() if key != "required"}
    plugins = components[place[PluginsConfig]]
    plugins["properties"] = {key: plugins["properties"][key] for key in SWITCHES} | tables
    overrides = components[place[AgentConfig]]["properties"]["plugins"]
    overrides.pop("additionalProperties", None)
    overrides |= {"type": "object", "properties": partial, "additionalProperties": False}
    top = components.pop(place[HarnessConfig])
    for section in ("plugins", "session", "limits"):
        del top["properties"][section]["default"]  # the members' defaults say it, in the files' own shape
    return {"$schema": DIALECT, **top, "title": "checkrein.toml", "$defs": components}


def _nothing() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "additionalProperties": False}


def _close(component: dict[str, Any]) -> None:
    """The loader refuses unknown keys of dataclasses too."""
    if "properties" in component:
        component["additionalProperties"] = False
        if not component.get("required"):
            component.pop("required", None)


def _describe(component: dict[str, Any], type_: Any) -> None:
    head, docs = field_docs(type_)
    if head:
        component["description"] = head
    else:
        component.pop("description", None)
    for name, text in docs.items():
        if name in component.get("properties", {}):
            component["properties"][name]["description"] = text


def field_docs(type_: Any) -> tuple[str, dict[str, str]]:
    """Return a type's first paragraph and the texts of its `Attributes` section, by name.

    Args:
        type_: a class with a docstring in our style.
    """
    text = inspect.getdoc(type_) or ""
    if text.startswith(f"{getattr(type_, '__name__', '')}("):
        return "", {}  # the signature that dataclasses write where there is no docstring
    head, _, attributes = text.partition("\nAttributes:\n")
    docs: dict[str, str] = {}
    name = ""
    for line in _indented(attributes.splitlines()):
        if (start := re.match(r"    (\w+): (.*)", line)) is not None:
            name, docs[start[1]] = start[1], start[2]
        elif name and line.strip():
            docs[name] += " " + line.strip()
    return " ".join(head.partition("\n\n")[0].split()), docs


def _indented(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if line and not line.startswith(" "):
            return
        yield line
