"""From a plain document to a typed value, with every problem named: place, expected, got, nearest name.

msgspec does the converting; what it leaves out is here: unknown keys of dataclasses, nearest
names, values TOML has and JSON has not, and more than one problem at a time. Where documents come
from is layers.py.
"""

from __future__ import annotations

import copy
import datetime
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as mi

from checkrein.nearest import did_you_mean

__all__ = ["Problem", "convert", "join", "problems_of", "schema_hook"]

T = TypeVar("T")
MOST_PROBLEMS = 20
_AT = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[(\.\.\.)\]")
_OBJECTS = (mi.StructType, mi.DataclassType, mi.TypedDictType)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a document.

    Attributes:
        path: where, as `agents[0].max_steps`; empty for the document itself.
        message: expected, got, what to do.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def convert(value: Any, type_: type[T] | Any) -> T:
    """Convert a plain value; only for values without problems (`problems_of`).

    Args:
        value: what was read.
        type_: a Struct, dataclass or any type msgspec converts to.

    Raises:
        msgspec.ValidationError: the value does not fit.
    """
    result: T = msgspec.convert(value, type_, dec_hook=_decode)
    return result


def problems_of(value: Any, type_: Any, *, at: str = "") -> list[Problem]:
    """Return what keeps a value from being converted, at most 20 problems; empty when it fits.

    Args:
        value: what was read.
        type_: what it should become.
        at: the place of the value in the whole document, for the problems' paths.
    """
    found = [*_foreign(value, ()), *_unknown(value, mi.type_info(type_), ())]
    rest = copy.deepcopy(value)
    for steps, _ in found:
        _drop(rest, steps)
    removed: set[tuple[Any, ...]] = {steps for steps, _ in found}
    while len(found) < MOST_PROBLEMS:
        try:
            convert(rest, type_)
            break
        except msgspec.ValidationError as error:
            steps, message = _read(error, rest)
        if any(message.startswith("missing") and gone[: len(steps)] == steps for gone in removed):
            break  # a follow-up of a problem that is told already
        found.append((steps, message))
        removed.add(steps)
        if not _drop(rest, steps):
            break
    return [Problem(join(at, steps), message) for steps, message in found[:MOST_PROBLEMS]]


def join(at: str, steps: tuple[Any, ...]) -> str:
    """Return a path: keys by dots, list positions in brackets."""
    for step in steps:
        at = f"{at}[{step}]" if isinstance(step, int) else f"{at}.{step}" if at else str(step)
    return at


def schema_hook(type_: type) -> dict[str, Any]:
    """Return the JSON Schema of the types `convert` knows beyond msgspec's own."""
    if type_ is Path:
        return {"type": "string"}
    raise NotImplementedError(f"no JSON Schema for {type_!r}")


def _decode(type_: type, value: Any) -> Any:
    if type_ is Path:
        if isinstance(value, str):
            return Path(value)
        raise ValueError(f"Expected `str`, got `{_kind(value)}`")
    raise ValueError(f"Expected `{getattr(type_, '__name__', type_)}`, which no config file can hold")


def _foreign(value: Any, steps: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Values that TOML or Python can hold and JSON cannot."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from _foreign(member, (*steps, key))
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _foreign(member, (*steps, index))
    elif isinstance(value, (datetime.date, datetime.time)):
        yield steps, f"expected a plain value, got a {type(value).__name__}; put it in quotes"
    elif isinstance(value, float) and not math.isfinite(value):
        yield steps, f"expected a finite number, got {value}"
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield steps, "expected an integer of at most 64 bits, got a longer one"


def _unknown(value: Any, info: mi.Type, steps: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Keys that no field has, all the way down."""
    if isinstance(info, mi.UnionType):
        yield from _unknown_in_union(value, info, steps)
    elif isinstance(info, mi.Metadata):
        yield from _unknown(value, info.type, steps)
    elif isinstance(info, _OBJECTS) and isinstance(value, Mapping):
        known = {field.encode_name: field.type for field in info.fields}
        tag = info.tag_field if isinstance(info, mi.StructType) else None
        for key, member in value.items():
            if key in known:
                yield from _unknown(member, known[key], (*steps, key))
            elif key != tag:
                yield (*steps, key), f"unknown key {key!r}{did_you_mean(str(key), known) or _listing(known)}"
    elif isinstance(info, mi.DictType) and isinstance(value, Mapping):
        for key, member in value.items():
            yield from _unknown(member, info.value_type, (*steps, key))
    elif isinstance(info, (mi.ListType, mi.VarTupleType, mi.SetType, mi.FrozenSetType)) and isinstance(value, list):
        for index, member in enumerate(value):
            yield from _unknown(member, info.item_type, (*steps, index))
    elif isinstance(info, mi.TupleType) and isinstance(value, list):
        for index, (member, each) in enumerate(zip(value, info.item_types, strict=False)):
            yield from _unknown(member, each, (*steps, index))


def _unknown_in_union(value: Any, info: mi.UnionType, steps: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """The member that the value means: by its tag, or the only one of its shape."""
    if not isinstance(value, (Mapping, list)):
        return
    shapes: list[mi.Type]
    if isinstance(value, Mapping):
        shapes = [each for each in info.types if isinstance(each, (*_OBJECTS, mi.DictType))]
        tagged = [
            each
            for each in shapes
            if isinstance(each, mi.StructType) and each.tag_field and each.tag == value.get(each.tag_field)
        ]
        shapes = tagged or shapes
    else:
        shapes = [each for each in info.types if not isinstance(each, (*_OBJECTS, mi.DictType))]
    if len(shapes) == 1:
        yield from _unknown(value, shapes[0], steps)


def _listing(known: Mapping[str, Any]) -> str:
    return f"; known are {', '.join(known)}" if known else "; there is nothing to configure here"


def _read(error: msgspec.ValidationError, value: Any) -> tuple[tuple[Any, ...], str]:
    """Place and message of msgspec's error, in our words."""
    text = str(error)
    steps: tuple[Any, ...] = ()
    if (at := _AT.search(text)) is not None:
        text = text[: at.start()]
        for key, index, dots in _STEP.findall(at["path"]):
            steps += (key,) if key else (int(index),) if index else (dots,)
    if (missing := re.fullmatch(r"Object missing required field `(.*)`", text)) is not None:
        return steps, f"missing key {missing[1]!r}; add it"
    text = text.replace("`", "")
    text = text[:1].lower() + text[1:]
    if text.startswith("expected") and ", got " not in text:
        # numbers are safe to show; a text may be a secret
        got = _at(value, steps)
        shown = repr(got) if isinstance(got, (int, float)) else _kind(got)
        text += f", got {shown}"
    return steps, text


def _kind(value: Any) -> str:
    names = {dict: "object", list: "array", str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}
    return names.get(type(value), type(value).__name__)


def _at(value: Any, steps: tuple[Any, ...]) -> Any:
    try:
        for step in steps:
            value = value[step]
    except (KeyError, IndexError, TypeError):
        return None
    return value


def _drop(value: Any, steps: tuple[Any, ...]) -> bool:
    """Remove a member, so that the rest can be judged; False where that would move others."""
    if not steps:
        return False
    parent = _at(value, steps[:-1])
    if isinstance(parent, dict) and steps[-1] in parent:
        del parent[steps[-1]]
        return True
    return False
