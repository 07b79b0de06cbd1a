"""Type hints: read from a function, and those that msgspec does not know: paths and models that bring their own schema.

Such models are pydantic's, and what imitates them. What a tool returns of these types is output.py's.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import PurePath
from types import FunctionType, MethodType, UnionType
from typing import Any

import msgspec

from .errors import ConfigError

__all__ = ["KINDS", "is_context", "limited", "note_of", "read_hints", "schema_of", "value_of"]

KINDS = {dict: "object", list: "array", type(None): "null"}
"""What JSON calls the kinds of values that it names otherwise than Python."""
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
_FUNCTIONS = (FunctionType, MethodType)


def read_hints(fn: Callable[..., Any], where: str, context_type: type) -> dict[str, Any]:
    """Return the hints of a function's parameters; what it returns may be known to type checkers only.

    Args:
        fn: the function.
        where: names it, for the error.
        context_type: the class of the context, known even where it is imported for type checkers only.

    Raises:
        ConfigError: a hint names what cannot be found.
    """
    target: Any = getattr(fn, "func", fn)  # functools.partial
    if not isinstance(target, _FUNCTIONS):
        target = inspect.unwrap(target)  # a cache, or the object of a decorator that is a class
        if not isinstance(target, _FUNCTIONS):
            target = getattr(target, "__init__") if isinstance(target, type) else type(target).__call__  # noqa: B009

    def bare() -> None: ...

    given = getattr(target, "__annotations__", None) or {}
    bare.__annotations__ = {name: hint for name, hint in given.items() if name != "return"}
    plain = inspect.unwrap(target)
    names = getattr(plain, "__globals__", {})
    try:
        # The context is known also where it is imported for type checkers only.
        known = {context_type.__name__: context_type, **names, **_around(plain)}
        return typing.get_type_hints(bare, names, known, include_extras=True)
    except NameError as exc:
        raise ConfigError(
            f"{where}: its type hints cannot be read: {exc}; types of parameters must be importable from its module"
        ) from exc
    except Exception as exc:
        raise ConfigError(f"{where}: its type hints cannot be read: {exc}") from exc


def _around(fn: Any) -> dict[str, Any]:
    """What a function uses of the function around it, as far as that has made it yet."""
    out: dict[str, Any] = {}
    if (code := getattr(fn, "__code__", None)) is not None:
        for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
            with suppress(ValueError):
                out[name] = cell.cell_contents
    return out


def is_context(hint: Any, context_type: type) -> bool:
    """Whether a hint is the context's class, be it annotated or optional."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if hint is context_type:
        return True
    args = typing.get_args(hint)
    return context_type in args and all(arg is context_type or arg is type(None) for arg in args)


def note_of(hint: Any) -> str | None:
    """Return what `Annotated[int, "how many"]` says of a parameter; also a `Doc` (PEP 727) or a pydantic `Field`."""
    for note in getattr(hint, "__metadata__", ()):
        for text in (note, getattr(note, "documentation", None), getattr(note, "description", None)):
            if isinstance(text, str):
                return text
    return None


def limited(hint: Any) -> Any:
    """A hint whose limits (a pydantic Field's, annotated_types') are as msgspec has them, so that they count."""
    notes = [note for note in getattr(hint, "__metadata__", ()) if not isinstance(note, msgspec.Meta)]
    inner = [part for note in notes for part in getattr(note, "metadata", None) or ()]  # of a pydantic Field
    limits = {name: value for part in (*notes, *inner) for name, value in _limits_of(part)}
    if not limits:
        return hint
    meta, kind = msgspec.Meta(**limits), typing.get_args(hint)[0]
    kinds = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, UnionType) else (kind,)
    return typing.Union[tuple(each if each is type(None) else typing.Annotated[each, meta] for each in kinds)]  # noqa: UP007


def _limits_of(part: Any) -> Iterator[tuple[str, Any]]:
    for name in _LIMITS:
        value = getattr(part, name, None)
        if isinstance(value, (int, float, str)):
            yield name, value


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of such a type, its references to itself as they are.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(kind, type) and issubclass(kind, PurePath):
        return {"type": "string"}
    describe = getattr(kind, "model_json_schema", None)
    if describe is None:
        raise TypeError(f"{getattr(kind, '__name__', kind)} has no JSON form")
    return dict(describe())


def value_of(kind: Any, value: Any) -> Any:
    """Make a value of such a type from plain JSON.

    Raises:
        ValueError: it does not fit.
        NotImplementedError: the type is none of these.
    """
    if isinstance(kind, type) and issubclass(kind, PurePath):
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{KINDS.get(type(value), type(value).__name__)}`")
        return kind(value)
    if (read := getattr(kind, "model_validate_json", None)) is not None:
        return read(msgspec.json.encode(value))  # as JSON: a strict model takes a text for a date only there
    if (check := getattr(kind, "model_validate", None)) is None:
        raise NotImplementedError
    return check(value)
