"""The JSON Schema of `checkrein.toml`, for editors, made from the types; and the texts of their docstrings.

It accepts and refuses what check.py does, but for what a schema cannot say: that ids are unique, and that a
plugin named only by an agent still needs its own required keys. Of a plugin's checks in `__post_init__` it knows
nothing. Single values are described by msgspec; objects are ours, because they are closed, described, and may
have defaults that only `convert` knows.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from checkrein.schema import schema_hook

from .convert import DICTS, LISTS, fields_of
from .types import SWITCHES, AgentConfig, HarnessConfig, PluginsConfig

__all__ = ["field_docs", "json_schema"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
CONSTRAINTS = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}

Schema = dict[str, Any]


def json_schema(plugin_configs: Mapping[str, Any]) -> Schema:
    """Return the JSON Schema (2020-12) of a config file.

    Args:
        plugin_configs: the `Config` of each installed plugin, None for one without; no other table is accepted.
    """
    made = _Schemas()
    tables = {name: _closed({}) if type_ is None else made.object(type_) for name, type_ in plugin_configs.items()}
    partial = {name: {key: value for key, value in each.items() if key != "required"} for name, each in tables.items()}
    top = made.object(HarnessConfig)
    plugins = made.defs[made.names[PluginsConfig]]
    plugins["properties"] = {key: plugins["properties"][key] for key in SWITCHES} | tables
    overrides = made.defs[made.names[AgentConfig]]["properties"]["plugins"]
    overrides |= {"properties": partial, "additionalProperties": False}
    return {"$schema": DIALECT, **top, "title": "checkrein.toml", "$defs": made.defs}


class _Schemas:
    """Schemas of types; those of objects inside others are named once in `defs`."""

    def __init__(self) -> None:
        self.defs: dict[str, Schema] = {}
        self.names: dict[Any, str] = {}

    def object(self, type_: Any) -> Schema:
        """The schema of a Struct, dataclass or TypedDict: closed, with its docstring's texts."""
        head, docs = field_docs(type_)
        defaults = _defaults(type_)
        properties: dict[str, Schema] = {}
        required: list[str] = []
        config = getattr(type_, "__struct_config__", None)
        if config is not None and config.tag_field is not None:
            properties[config.tag_field] = {"const": config.tag}
            required.append(config.tag_field)
        for name, (hint, needed) in (fields_of(type_) or {}).items():
            default = {"default": defaults[name]} if name in defaults else {}
            described = {"description": docs[name]} if name in docs else {}
            properties[name] = {**self.of(hint), **default, **described}
            if needed:
                required.append(name)
        return {**({"description": head} if head else {}), **_closed(properties, required)}

    def of(self, type_: Any) -> Schema:
        """The schema of any type `convert` takes."""
        origin, arguments = get_origin(type_), get_args(type_)
        if type_ is Any:
            return {}
        if fields_of(type_) is not None:
            return {"$ref": f"#/$defs/{self._named(type_)}"}
        if origin is Annotated:
            return _constrained(self.of(arguments[0]), arguments[1:])
        if origin in (Union, UnionType):
            return {"anyOf": [self.of(each) for each in arguments]}
        if origin in DICTS:
            names = self.of(arguments[0])
            keys = {} if names == {"type": "string"} else {"propertyNames": names}
            values = self.of(arguments[1])
            return {"type": "object", **keys, **({"additionalProperties": values} if values else {})}
        if origin is tuple and Ellipsis not in arguments:
            items = [self.of(each) for each in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if origin in LISTS:
            return {"type": "array", "items": self.of(arguments[0])}
        return _single(type_)

    def _named(self, type_: Any) -> str:
        if type_ not in self.names:
            name = type_.__name__
            if name in self.defs:
                name = re.sub(r"[^\w.]", "_", f"{type_.__module__}.{type_.__qualname__}")
            self.names[type_] = name
            self.defs[name] = {}  # a type may hold itself
            self.defs[name] = self.object(type_)
        return self.names[type_]


def _closed(properties: dict[str, Schema], required: Iterable[str] = ()) -> Schema:
    needed = list(required)
    return {
        "type": "object",
        "properties": properties,
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }


def _single(type_: Any) -> Schema:
    """The schema of a type without members, in one piece."""
    schema = msgspec.json.schema(type_, schema_hook=schema_hook)
    defs = schema.pop("$defs", {})
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
        schema.pop("title", None)
        schema.pop("description", None)
    return schema


def _constrained(schema: Schema, metas: Iterable[Any]) -> Schema:
    for meta in metas:
        if not isinstance(meta, msgspec.Meta):
            continue
        noun = LENGTHS.get(schema.get("type", ""), "Length")
        for name, keyword in (*CONSTRAINTS.items(), ("min_length", f"min{noun}"), ("max_length", f"max{noun}")):
            if (limit := getattr(meta, name)) is not None:
                schema = {**schema, keyword: limit}
        if meta.description is not None:
            schema = {**schema, "description": meta.description}
        schema = {**schema, **(meta.extra_json_schema or {})}
    return schema


def _defaults(type_: Any) -> dict[str, Any]:
    """The defaults worth telling, as a file would hold them; a section's are told by its members."""
    if dataclasses.is_dataclass(type_):
        values = {each.name: (each.default, each.default_factory) for each in dataclasses.fields(type_)}
    elif isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        values = {each.encode_name: (each.default, each.default_factory) for each in msgspec.structs.fields(type_)}
    else:
        return {}
    defaults: dict[str, Any] = {}
    for name, (default, factory) in values.items():
        if factory in (list, dict, tuple, set, frozenset):
            default = factory()
        if default in (dataclasses.MISSING, msgspec.NODEFAULT, None) or fields_of(type(default)) is not None:
            continue
        defaults[name] = msgspec.to_builtins(default, enc_hook=str)
    return defaults


def field_docs(type_: Any) -> tuple[str, dict[str, str]]:
    """Return a type's first paragraph and the texts of its `Attributes` section, by name, its bases' too.

    Args:
        type_: a class with docstrings in our style.
    """
    docs: dict[str, str] = {}
    for base in reversed(getattr(type_, "__mro__", ())):
        if base.__module__ not in ("builtins", "msgspec._core"):
            docs |= _own_docs(base)[1]
    return _own_docs(type_)[0], docs


def _own_docs(type_: Any) -> tuple[str, dict[str, str]]:
    text = inspect.cleandoc(type_.__doc__ or "")
    if text.startswith(f"{type_.__name__}("):
        return "", {}  # the signature that dataclasses write where there is no docstring
    head, _, attributes = text.partition("\nAttributes:\n")
    docs: dict[str, str] = {}
    name = ""
    for line in attributes.splitlines():
        if line and not line.startswith(" "):
            break
        if (start := re.match(r"    (\w+): (.*)", line)) is not None:
            name, docs[start[1]] = start[1], start[2]
        elif name and line.strip():
            docs[name] += " " + line.strip()
    return " ".join(head.partition("\n\n")[0].split()), docs
