"""JSON Schemas from elsewhere (MCP servers): refused when hostile, then checked by jsonschema, imported on first use.

Whoever wrote the schema is not trusted: no remote `$ref` is fetched, and size, nesting, the work of `$ref` chains and
of regular expressions are bounded. A pattern that cannot be bounded is left to the server that declared it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from .errors import ConfigError
from .schema import depth_exceeds, inline_refs, resolve

__all__ = ["ForeignSchema", "pattern_cost"]

MAX_SCHEMA_BYTES = 256_000
MAX_SCHEMA_DEPTH = 64
MAX_PATTERN_CHARS = 500
MAX_PATTERN_STEPS = 2_000_000  # some 50 ms
MAX_REF_STEPS = 5_000
MAX_NAME_CHARS = 200

_METADATA = frozenset(("const", "enum", "default", "examples", "description", "title", "$comment"))


class ForeignSchema:
    """A schema we did not make.

    Attributes:
        parameters: the schema as the model sees it: type object, local references replaced.
    """

    __slots__ = ("_raw", "_steps", "_validator", "parameters")

    def __init__(self, schema: dict[str, Any], *, name: str) -> None:
        """Take a schema for `name`, as `tool 'search'`.

        Raises:
            ConfigError: it is no schema of type object, too large, too deep, or refers to what is not in it.
        """
        where = f"{name}: its JSON Schema"
        try:
            encoded = b"" if depth_exceeds(schema, MAX_SCHEMA_DEPTH) else msgspec.json.encode(schema)
            schema = msgspec.json.decode(encoded) if encoded else schema  # a copy: its owner cannot change it later
        except (TypeError, ValueError, OverflowError) as exc:
            raise ConfigError(f"{where} is no plain JSON: {exc}") from None
        if not encoded:
            raise ConfigError(f"{where} nests deeper than {MAX_SCHEMA_DEPTH} levels")
        if len(encoded) > MAX_SCHEMA_BYTES:
            raise ConfigError(f"{where} is {len(encoded)} bytes, more than {MAX_SCHEMA_BYTES}")
        if not isinstance(schema, dict):
            raise ConfigError(f"{where} must be an object, got {type(schema).__name__}")
        if schema.setdefault("type", "object") != "object":
            raise ConfigError(f"{where} must have type object, got {schema['type']!r}: arguments are named")
        if not isinstance(schema.setdefault("properties", {}), dict):
            raise ConfigError(f"{where}: properties must be an object")
        for ref in _refs(schema):
            if not ref.startswith("#"):
                raise ConfigError(f"{where} refers to {ref[:200]!r}; only references into itself (#/...) are followed")
        self._raw = schema
        self.parameters = inline_refs(schema)
        self._steps = [0]
        self._validator: Any = None
        _check_schema(schema, where)

    def check(self, arguments: dict[str, Any]) -> None:
        """Check arguments.

        Raises:
            ValueError: they do not satisfy the schema; says where and why.
        """
        if self._validator is None:
            self._validator = _validator(self._raw, self._steps)
        self._steps[0] = 0
        try:
            error = next(iter(self._validator.iter_errors(arguments)), None)
        except RecursionError:
            raise ValueError("they nest too deeply for the tool's schema") from None
        except ValueError:
            raise
        except Exception as exc:  # a schema its own library stumbles over: say so, the call is not run
            raise ValueError(f"the tool's own schema is broken ({type(exc).__name__}: {str(exc)[:200]})") from None
        if error is not None:
            raise ValueError(f"{error.message[:500]} - at `{error.json_path[:200]}`")


def _refs(node: Any) -> Iterator[str]:
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            for key in ("$ref", "$dynamicRef", "$recursiveRef"):
                if isinstance(node.get(key), str):
                    yield node[key]
            stack.extend(value for key, value in node.items() if key not in _METADATA)
        elif isinstance(node, list):
            stack.extend(node)


def _check_schema(schema: dict[str, Any], where: str) -> None:
    from jsonschema.exceptions import SchemaError

    try:
        # Without format checks: a pattern of another dialect (`\p{L}`) is right where it comes from.
        _dialect(schema).check_schema(schema, format_checker=None)
    except SchemaError as exc:
        raise ConfigError(f"{where} is not valid: {exc.message[:500]} at {exc.json_path[:200]}") from None
    except Exception as exc:
        raise ConfigError(f"{where} cannot be checked: {type(exc).__name__}: {str(exc)[:200]}") from None
    for ref in _refs(schema):
        if ref.startswith("#/"):
            try:
                resolve(schema, ref)
            except (LookupError, ValueError):
                raise ConfigError(f"{where} refers to {ref[:200]!r}, which is not in it") from None


def _dialect(schema: dict[str, Any]) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, default=Draft202012Validator)


def _validator(schema: dict[str, Any], steps: list[int]) -> Any:
    """A validator that fetches nothing and whose costly keywords are bounded."""
    from jsonschema import ValidationError, validators
    from referencing import Registry

    base = _dialect(schema)
    own = base.VALIDATORS

    def pattern(validator: Any, regex: Any, instance: Any, schema: Any) -> Iterator[Any]:
        checked = isinstance(instance, str) and pattern_cost(regex, len(instance)) <= MAX_PATTERN_STEPS
        if checked and re.search(regex, instance) is None:
            yield ValidationError(f"{instance[:200]!r} does not match the pattern {regex!r}")

    def unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        several = len(instance) if wanted and isinstance(instance, list) else 0
        if several and len({msgspec.json.encode(item, order="deterministic") for item in instance}) < several:
            yield ValidationError("the items are not unique")

    def bounded(keyword: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        def follow(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            steps[0] += 1
            if steps[0] > MAX_REF_STEPS:
                raise ValueError("checking them against the tool's schema takes too long; send simpler arguments")
            yield from keyword(validator, value, instance, schema) or ()

        return follow

    def names(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if isinstance(instance, dict) and any(len(name) > MAX_NAME_CHARS for name in instance):
            yield ValidationError(f"a name of more than {MAX_NAME_CHARS} characters")
        else:
            yield from own["patternProperties"](validator, patterns, instance, schema) or ()

    changed: dict[str, Any] = {"pattern": pattern, "patternProperties": names, "uniqueItems": unique}
    for word in ("$ref", "$dynamicRef", "$recursiveRef"):
        if word in own:
            changed[word] = bounded(own[word])
    return validators.extend(base, changed)(_tamed(schema), registry=Registry())


def _tamed(node: Any) -> Any:
    """A copy without the patterns on property names that could take too long, and what depends on them."""
    if isinstance(node, list):
        return [_tamed(item) for item in node]
    if not isinstance(node, dict):
        return node
    names = node.get("patternProperties")
    drop: tuple[str, ...] = ()
    if isinstance(names, dict) and sum(pattern_cost(p, MAX_NAME_CHARS) for p in names) > MAX_PATTERN_STEPS:
        drop = ("patternProperties", "additionalProperties", "unevaluatedProperties")
    # First of all, so that overlong names are refused before another keyword searches in them.
    first = ("patternProperties",) if isinstance(names, dict) and not drop else ()
    keys = (*first, *(key for key in node if key not in (*drop, *first)))
    return {
        key: node[key] if key in _METADATA and not isinstance(node[key], dict) else _tamed(node[key]) for key in keys
    }


def pattern_cost(pattern: Any, chars: int) -> float:
    """Return an upper bound for the steps a backtracking search of a text takes; infinite if there is no good one.

    Args:
        pattern: a regular expression.
        chars: the text's length.

    Returns:
        (chars + 1) to the power of its unbounded repetitions (and one for a search that is not anchored), times every
        other choice. A repeated group with a choice in it, as `(a+)+`, or a reference back, has no bound below
        exponential.
    """
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_CHARS:
        return float("inf")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return float("inf")
    counts = _choices(pattern)
    if counts is None:
        return float("inf")
    unbounded, factor = counts
    starts = 0 if pattern.startswith("^") and "|" not in pattern else 1
    return float(chars + 1) ** min(max(unbounded + starts, 1), 50) * factor * (len(pattern) + 1)


_TOKEN = re.compile(
    r"(?P<back>\\[1-9]|\(\?P=|\(\?\()|(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<open>\((?:\?(?:P?<\w+>|<?[=!]|[a-zA-Z-]*:|>))?)|(?P<close>\))|(?P<alt>\|)"
    r"|(?P<many>[*+]|\{\d*,\}|\{\d{3,}(?:,\d*)?\}|\{\d*,\d{3,}\})|(?P<few>\?|\{\d*(?:,\d*)?\})|(?P<char>.)",
    re.S,
)


def _choices(pattern: str) -> tuple[int, float] | None:
    """How many unbounded repetitions there are, and the product of all other choices; None if they nest."""
    unbounded, factor = 0, 1.0
    open_groups: list[bool] = []  # whether a choice was seen in it
    closed = False  # whether the group just closed holds a choice
    previous = ""
    for match in _TOKEN.finditer(pattern):
        kind, text = match.lastgroup or "char", match[0]
        if kind == "back" or (closed and kind in ("many", "few")):
            return None
        lazy = kind == "few" and previous in ("many", "few")  # a mark on the repetition, no choice of its own
        ways = 0.0 if lazy else _ways(kind, text)
        if kind == "many":
            unbounded += 1
        if ways > 1 or kind == "many":
            factor = min(factor * max(ways, 1.0), 1e30)
            open_groups = [True] * len(open_groups)
        if kind == "open":
            open_groups.append(False)
        closed = kind == "close" and bool(open_groups) and open_groups.pop()
        previous = kind
    return unbounded, factor


def _ways(kind: str, text: str) -> float:
    """In how many ways a bounded token can match: 2 for `?` and `|`, 5 for `{2,6}`, 1 for `{4}` and all others."""
    if kind == "alt" or text == "?":
        return 2.0
    if kind != "few" or "," not in text:
        return 1.0
    low, _, high = text.strip("{}").partition(",")
    return max(1.0, int(high or 0) - int(low or 0) + 1.0)
