"""JSON Schemas from type hints: what a function's parameters are to a model, and how its arguments are checked.

Hints are read in hints.py, docstrings in docstrings.py; foreign schemas (MCP) are in foreign.py, tools in tools.py.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from .codec import plain
from .docstrings import parse_docstring
from .errors import ConfigError
from .hints import is_context, limited, note_of, read_hints, schema_of, value_of

__all__ = [
    "Signature",
    "read_signature",
    "docstring_of",
    "inline_refs",
    "local_refs",
    "resolve",
    "summary",
    "depth_exceeds",
    "schema_hook",
    "MAX_DEPTH",
]

MAX_DEPTH = 100
MAX_INLINED_NODES = 5_000
MAX_REFS = 200
_DEFS = ("$defs", "definitions")


class Signature:
    """A function's parameters, read once at declaration.

    Attributes:
        description: the docstring's text before its sections.
        parameters: the JSON Schema of type object.
        model: a msgspec Struct with one field per parameter; an optional one that was not given is UNSET.
        verbatim: whether checked arguments are what the function takes, with nothing to convert.
        conversion: what `msgspec.convert` has to be told besides the model; empty for most.
        context: the parameter that takes the ToolContext, if any.
    """

    __slots__ = ("context", "conversion", "description", "model", "parameters", "verbatim")

    def __init__(
        self,
        description: str,
        parameters: dict[str, Any],
        model: type[msgspec.Struct],
        context: str | None,
    ) -> None:
        self.description = description
        self.parameters = parameters
        self.model = model
        self.verbatim, self.conversion = _traits(msgspec.inspect.type_info(model))
        self.context = context


def read_signature(fn: Callable[..., Any], context_type: type) -> Signature:
    """Read a function's hints and docstring.

    Args:
        fn: the function; every parameter needs a hint that msgspec can describe.
        context_type: the class whose parameter is filled in and is no part of the schema (X8).

    Raises:
        ConfigError: a parameter cannot become a schema; it names the function and the parameter.
    """
    where = describe_function(fn)
    description, docs = parse_docstring(docstring_of(fn))
    hints = read_hints(fn, where, context_type)
    context: str | None = None
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    defaults: dict[str, Any] = {}
    for parameter in _parameters(fn, where):
        hint = hints.get(parameter.name, parameter.annotation)
        if hint is inspect.Parameter.empty:
            hint_self = "; make a tool of a method with tool(object.method)" if parameter.name == "self" else ""
            raise ConfigError(f"{where}: parameter {parameter.name!r} has no type hint; add one{hint_self}")
        if is_context(hint, context_type):
            if context is not None:
                raise ConfigError(f"{where}: parameters {context!r} and {parameter.name!r} both take the context")
            context = parameter.name
            continue
        if text := note_of(hint):
            docs.setdefault(parameter.name, text)
        hint = limited(hint)
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, hint))
        else:
            if type(parameter.default).__name__ == "FieldInfo":  # pydantic's; the function would get it as the value
                wanted = f"{parameter.name}: Annotated[..., Field(...)] = <the default itself>"
                raise ConfigError(f"{where}: parameter {parameter.name!r} has a Field as its default; write {wanted}")
            fields.append((parameter.name, hint | UnsetType if _can_or(hint) else _union(hint), UNSET))
            defaults[parameter.name] = parameter.default
    model = _model(where, fields)
    schema = _schema(where, model, fields)
    _decorate(schema, docs, defaults)
    return Signature(description, schema, model, context)


def docstring_of(fn: Callable[..., Any]) -> str | None:
    """What the function says; a partial has functools' own docstring, an object that can be called its class's."""
    target = getattr(fn, "func", fn)
    called = type(target).__call__ if callable(target) else None
    own = called.__doc__ if inspect.isfunction(called) else None  # getdoc inherits that of every class's call
    return own or inspect.getdoc(target)


def describe_function(fn: Callable[..., Any]) -> str:
    """Name a function for an error message: its qualified name and module."""
    target = inspect.unwrap(getattr(fn, "func", fn))
    name = getattr(target, "__qualname__", None) or type(target).__qualname__
    return f"tool function {name} in {getattr(target, '__module__', '?')}"


def _parameters(fn: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{where}: its signature cannot be read ({exc}); wrap it in a function with hints") from None
    if isinstance(fn, functools.partial):  # what it binds by name is given: a signature shows it as a default
        parameters = [parameter for parameter in parameters if parameter.name not in fn.keywords]
    refused: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
        inspect.Parameter.POSITIONAL_ONLY: "positional-only ",
    }
    for parameter in parameters:
        if (kind := refused.get(parameter.kind)) is not None:
            raise ConfigError(
                f"{where}: expected parameters a model can name, got {kind}{parameter.name};"
                " give each one a name of its own and a type hint"
            )
    return parameters


def _can_or(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "__or__")


def _union(hint: Any) -> Any:
    return typing.Union[hint, UnsetType]  # noqa: UP007 - a hint may be a form that knows no `|`


def _model(where: str, fields: list[Any]) -> type[msgspec.Struct]:
    try:
        return msgspec.defstruct("arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{where}: its parameters cannot become a schema: {exc}") from exc


_VERBATIM = (
    *(msgspec.inspect.StrType, msgspec.inspect.IntType, msgspec.inspect.BoolType, msgspec.inspect.NoneType),
    *(msgspec.inspect.LiteralType, msgspec.inspect.AnyType),
)


def _traits(model: msgspec.inspect.Type) -> tuple[bool, dict[str, Any]]:
    """Whether conversion changes no value of a model's fields; and what it has to be told."""
    verbatim = True
    conversion: dict[str, Any] = {}
    stack: list[Any] = [field.type for field in model.fields]  # type: ignore[attr-defined]
    seen: set[int] = set()
    while stack:
        info = stack.pop()
        if id(info) in seen:
            continue
        seen.add(id(info))
        if isinstance(info, msgspec.inspect.DictType):
            if not isinstance(info.key_type, msgspec.inspect.StrType):
                conversion["str_keys"], verbatim = True, False
        elif isinstance(info, msgspec.inspect.CustomType):
            conversion["dec_hook"], verbatim = value_of, False
        elif not isinstance(info, (*_VERBATIM, msgspec.inspect.ListType, msgspec.inspect.UnionType)):
            verbatim = False  # a float takes 1 and becomes 1.0; everything else becomes an object of its type
        for name in getattr(info, "__struct_fields__", ()):
            stack.extend(_inner(getattr(info, name)))
    return verbatim, conversion


def _inner(value: Any) -> list[Any]:
    if isinstance(value, msgspec.inspect.Field):
        return [value.type]
    if isinstance(value, msgspec.inspect.Type):
        return [value]
    return [found for item in value for found in _inner(item)] if isinstance(value, tuple) else []


def _schema(where: str, model: type[msgspec.Struct], fields: list[Any]) -> dict[str, Any]:
    try:
        msgspec.json.Decoder(model)  # finds unions that could not be told apart
        schema = msgspec.json.schema(model, schema_hook=schema_hook)
    except Exception as exc:
        for name, hint, *_ in fields:
            try:
                msgspec.json.Decoder(hint)
                msgspec.json.schema(hint, schema_hook=schema_hook)
            except Exception as found:
                use = "use JSON types, dataclasses, TypedDict, Enum, Literal, paths, msgspec Structs or pydantic models"
                if str(found).startswith("Encoding objects of type"):
                    use = "a default in it is no JSON: write default_factory=lambda: ... there"
                raise ConfigError(f"{where}: parameter {name!r} cannot become a JSON Schema: {found}; {use}") from found
        raise ConfigError(f"{where}: its parameters cannot become a JSON Schema: {exc}") from exc
    root: dict[str, Any] = {**schema["$defs"].pop("arguments"), "$defs": schema["$defs"]}
    root.pop("title", None)
    return inline_refs(root)


def schema_hook(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type that msgspec does not know, for a place inside another schema.

    Raises:
        TypeError: it has none, or one that refers to itself.
    """
    schema = inline_refs(schema_of(kind))
    if next(local_refs(schema), None) is not None:  # its references would lead astray inside of ours
        raise TypeError(f"{kind.__name__} refers to itself; pass parameters= with a schema of your own")
    return schema


def _decorate(schema: dict[str, Any], docs: dict[str, str], defaults: dict[str, Any]) -> None:
    properties = schema.setdefault("properties", {})
    for name, prop in properties.items():
        prop.pop("default", None)  # UNSET is ours; the function's own default follows
        if text := docs.get(name):
            prop["description"] = text  # its type may say something as well, the same of each such parameter
        if defaults.get(name) is not None:
            try:
                prop["default"] = plain(msgspec.to_builtins(defaults[name], str_keys=True))
            except Exception:  # noqa: S110 - a default that is no JSON, as nan, is the function's own affair
                pass


def inline_refs(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with its local `$ref`s replaced by what they name, as far as they are not recursive.

    Many models see nothing behind a `$ref`. Recursive ones stay, with their definitions; a schema that would grow
    beyond MAX_INLINED_NODES is returned as it was.

    Args:
        schema: a JSON Schema; it is not changed.
    """
    try:
        recursive = _recursive_refs(schema)
        budget = [MAX_INLINED_NODES]
        body = {key: value for key, value in schema.items() if key not in _DEFS}
        out: dict[str, Any] = _inline(body, schema, recursive, budget)
    except (RecursionError, LookupError, ValueError):
        return schema
    if recursive:
        # They keep all definitions, as they were: which of them are needed could not be told without following them.
        out.update({key: schema[key] for key in _DEFS if key in schema})
    return out


def _inline(node: Any, root: dict[str, Any], recursive: set[str], budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise RecursionError
    if isinstance(node, list):
        return [_inline(item, root, recursive, budget) for item in node]
    if not isinstance(node, dict):
        return node
    ref = node.get("$ref")
    if isinstance(ref, str) and ref.startswith("#") and ref not in recursive:
        merged = _inline(resolve(root, ref), root, recursive, budget)
        siblings = {key: _inline(value, root, recursive, budget) for key, value in node.items() if key != "$ref"}
        return {**merged, **siblings} if isinstance(merged, dict) else merged
    return {key: _inline(value, root, recursive, budget) for key, value in node.items()}


def _recursive_refs(root: dict[str, Any]) -> set[str]:
    """The local references that come back to themselves, directly or through others."""
    edges: dict[str, set[str]] = {}
    todo = set(local_refs(root))
    while todo:
        ref = todo.pop()
        edges[ref] = set(local_refs(resolve(root, ref)))
        todo |= edges[ref] - edges.keys()
        if len(edges) > MAX_REFS:
            raise RecursionError
    found = {"#"} & edges.keys()
    for start in edges:
        reached, todo = set[str](), set(edges[start])
        while todo:
            ref = todo.pop()
            reached.add(ref)
            todo |= edges[ref] - reached
        if start in reached:
            found.add(start)
    return found


def local_refs(node: Any) -> Iterator[str]:
    """Yield each `$ref` in a schema that points into it (`#...`)."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(ref := node.get("$ref"), str) and ref.startswith("#"):
                yield ref
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def resolve(root: Any, ref: str) -> Any:
    """Return what a local reference (`#/a/b`) names.

    Raises:
        LookupError: there is nothing; or it is an anchor, which is not followed.
        ValueError: a list is named by a word.
    """
    node: Any = root
    if not ref.startswith("#/"):
        if ref == "#":
            return root
        raise LookupError(ref)
    for part in ref[2:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = node[int(part)]
        elif isinstance(node, dict):
            node = node[part]
        else:
            raise LookupError(ref)
    return node


def summary(parameters: dict[str, Any]) -> str:
    """Return a schema's top level in one line for an error message, as `{"key": string, "limit"?: integer}`."""
    required = parameters.get("required", ())
    properties = parameters.get("properties")
    if not isinstance(properties, dict):
        return "{}"
    parts = [
        f'"{name}"{"" if name in required else "?"}: {_word(prop)}' for name, prop in list(properties.items())[:40]
    ]
    return "{" + ", ".join(parts) + (", ..." if len(properties) > 40 else "") + "}"


def _word(prop: Any) -> str:
    if not isinstance(prop, dict):
        return "any"
    if "enum" in prop:
        return "one of " + msgspec.json.encode(prop["enum"]).decode()[:200]
    if isinstance(options := prop.get("anyOf"), list):
        return " or ".join(_word(option) for option in options[:8])
    kind = prop.get("type", "any")
    if kind == "array":
        return f"array of {_word(prop.get('items', {}))}"
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def depth_exceeds(value: Any, depth: int) -> bool:
    """Whether a JSON value nests deeper than `depth` levels; walks it level by level, so it cannot overflow."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return False
    return True
