"""From a plain document to a typed value, with every problem named: place, expected, got, nearest name.

msgspec does the converting and judges each value; the walk is ours, because it tells all problems, unknown
keys of dataclasses, nearest names, and what TOML holds and JSON does not. Where documents come from is layers.py.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import re
from collections import abc
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import Struct

from checkrein.errors import ConfigError, PluginError
from checkrein.hints import KINDS, value_of
from checkrein.nearest import did_you_mean

__all__ = ["Problem", "as_error", "convert", "join", "problems_of"]

T = TypeVar("T")
Steps = tuple[Any, ...]
MOST_PROBLEMS = 20
_BARE = re.compile(r"[\w-]+")
LISTS = (list, tuple, set, frozenset, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Set, abc.MutableSet)
DICTS = (dict, abc.Mapping, abc.MutableMapping)


class Problem(Struct, frozen=True):
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
    return [Problem(join(at, steps), text) for steps, text in islice(_problems(value, type_, ()), MOST_PROBLEMS)]


def as_error(problems: list[Problem], file: str | None, *, plugin: str | None = None) -> ConfigError:
    """Return the error that tells all problems, the first one's place in `path`.

    Args:
        problems: at least one.
        file: where the document came from.
        plugin: the plugin whose table it is, if it is one.
    """
    first, *rest = problems
    if plugin is None:
        error = ConfigError(first.message, file=file, path=first.path or None)
    else:
        error = PluginError(first.message, plugin=plugin, file=file, path=first.path or None)
    error.args = (str(error) + "".join(f"\n  also {problem}" for problem in rest),)
    return error


def join(at: str, steps: Steps) -> str:
    """Return a path: keys by dots, list positions in brackets, odd keys in quotes."""
    for step in steps:
        if isinstance(step, int):
            at += f"[{step}]"
        else:
            word = str(step) if _BARE.fullmatch(str(step)) else repr(str(step))
            at = f"{at}.{word}" if at else word
    return at


def _decode(type_: type, value: Any) -> Any:
    try:
        return value_of(type_, value)
    except NotImplementedError:
        name = getattr(type_, "__name__", type_)
        raise ValueError(f"Expected `{name}`, which no config file can hold") from None


def _problems(value: Any, type_: Any, steps: Steps) -> Iterator[tuple[Steps, str]]:
    """The problems of the members; where these have none, that of the value itself."""
    if (text := _foreign(value)) is not None:
        yield steps, text
        return
    sound = True
    for problem in _in_members(value, _meant(value, type_), steps):
        sound = False
        yield problem
    if sound and (text := _judge(value, type_)) is not None:
        yield steps, text


def _in_members(value: Any, type_: Any, steps: Steps) -> Iterator[tuple[Steps, str]]:
    fields = fields_of(type_)
    shape = get_origin(type_) or type_
    if isinstance(value, Mapping) and (fields is not None or shape in (*DICTS, Any)):
        for key, member in value.items():
            if fields is None:
                yield from _in_key(key, type_, (*steps, key))
                yield from _problems(member, _item(type_, key), (*steps, key))
            elif key in fields:
                yield from _problems(member, fields[key][0], (*steps, key))
            elif key != _tag_field(type_):
                yield (*steps, key), f"unknown key {key!r}{did_you_mean(str(key), fields) or _listing(fields)}"
        for key, (_, required) in (fields or {}).items():
            if required and key not in value:
                yield steps, f"missing key {key!r}; add it"
    elif isinstance(value, (list, tuple)) and shape in (*LISTS, Any):
        for index, member in enumerate(value):
            yield from _problems(member, _item(type_, index), (*steps, index))


def _in_key(key: Any, type_: Any, steps: Steps) -> Iterator[tuple[Steps, str]]:
    """A key that is none of the words a mapping takes."""
    if get_origin(type_) in DICTS and get_origin(words := get_args(type_)[0]) is Literal:
        known = [str(word) for word in get_args(words)]
        if key not in known:
            yield steps, f"unknown key {key!r}{did_you_mean(str(key), known) or _listing(known)}"


def fields_of(type_: Any) -> dict[str, tuple[Any, bool]] | None:
    """Return type and whether it must be there, by key, of a Struct, dataclass or TypedDict; None for other types."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return {each.encode_name: (each.type, each.required) for each in msgspec.structs.fields(type_)}
    if dataclasses.is_dataclass(type_) and isinstance(type_, type):
        hints = get_type_hints(type_, include_extras=True)
        return {
            each.name: (hints[each.name], each.default is each.default_factory is dataclasses.MISSING)
            for each in dataclasses.fields(type_)
            if each.init
        }
    if is_typeddict(type_):
        hints, needed = get_type_hints(type_), getattr(type_, "__required_keys__", ())
        return {name: (hint, name in needed) for name, hint in hints.items()}
    return None


def _tag_field(type_: Any) -> str | None:
    config = getattr(type_, "__struct_config__", None)
    return None if config is None else config.tag_field


def _item(type_: Any, step: Any) -> Any:
    """The type of a member of a list or mapping; Any where it is not declared."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin in DICTS:
        return arguments[1]
    if origin is tuple and Ellipsis not in arguments:
        return arguments[step] if step < len(arguments) else Any
    return arguments[0] if origin in LISTS and arguments else Any


def _meant(value: Any, type_: Any) -> Any:
    """The type a value is judged by: of a union the member of its tag, or the only one of its shape."""
    while get_origin(type_) is Annotated:
        type_ = get_args(type_)[0]
    if get_origin(type_) not in (Union, UnionType):
        return type_
    members = [_meant(value, each) for each in get_args(type_)]
    if isinstance(value, Mapping):
        members = [each for each in members if fields_of(each) is not None or (get_origin(each) or each) in DICTS]
        members = [each for each in members if _tagged(value, each)] or members
    elif isinstance(value, (list, tuple)):
        members = [each for each in members if (get_origin(each) or each) in LISTS]
    else:
        members = [each for each in members if each is not NoneType]
    return members[0] if len(members) == 1 else Any


def _tagged(value: Mapping[str, Any], type_: Any) -> bool:
    config = getattr(type_, "__struct_config__", None)
    return config is not None and config.tag_field is not None and value.get(config.tag_field) == config.tag


def _foreign(value: Any) -> str | None:
    """What TOML or Python can hold and JSON cannot."""
    if isinstance(value, (datetime.date, datetime.time)):
        return f"expected a plain value, got a {type(value).__name__}; put it in quotes"
    if isinstance(value, float) and not math.isfinite(value):
        return f"expected a finite number, got {value}"
    return None


def _judge(value: Any, type_: Any) -> str | None:
    """What msgspec has against a value, in our words."""
    try:
        convert(value, type_)
    except msgspec.ValidationError as error:
        text = str(error)
    except Exception as error:  # the type's own code, as a __post_init__ or a default, may raise anything
        return f"refused by {getattr(type_, '__name__', type_)}: {type(error).__name__}: {error}"
    else:
        return None
    if text.startswith("Invalid enum value") and (words := _words(_meant(value, type_))):
        return f"expected one of {', '.join(words)}, got {value!r}{did_you_mean(str(value), words)}"
    text = text.replace("`", "")
    text = text[:1].lower() + text[1:]
    if "matching regex" in text:
        text = f"expected str {_described(type_) or text.partition('str ')[2]}"
    if text.startswith("expected") and ", got " not in text:
        # numbers are safe to show; a text may be a secret
        text += f", got {value!r}" if isinstance(value, (int, float)) else f", got {_kind(value)}"
    return text


def _described(type_: Any) -> str | None:
    """What a pattern means, if its author said so."""
    metas = [each for each in get_args(type_)[1:] if isinstance(each, msgspec.Meta)]
    return next((each.description for each in metas if each.pattern and each.description), None)


def _words(type_: Any) -> list[str]:
    if get_origin(type_) is Literal:
        return [str(word) for word in get_args(type_)]
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        return [str(member.value) for member in type_]
    return []


def _listing(known: Iterable[str]) -> str:
    listed = ", ".join(sorted(known))
    return f"; known are {listed}" if listed else "; there is nothing to configure here"


def _kind(value: Any) -> str:
    if value == "":
        return "an empty str"
    return KINDS.get(type(value), type(value).__name__)
