"""Writes what is generated in docs/: config.md, hooks.md and checkrein.schema.json. `--check` only compares.

    python tools/gen_docs.py            writes
    python tools/gen_docs.py --check    exits 1 and names what is not fresh

Made from the types of the configuration, the `Config` of the built-in plugins (as pyproject.toml names them),
hookspecs.SPECS and the docstrings; so it is changed there, never in the files.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from checkrein.config.convert import fields_of
from checkrein.config.environment import SHORT_NAMES
from checkrein.config.schema import field_docs, json_schema
from checkrein.config.types import AgentConfig, HarnessConfig, LimitsConfig, PluginsConfig, SessionConfig
from checkrein.hookspecs import SPECS, HookInfo, HookSpecs

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- made by tools/gen_docs.py: change the docstrings it reads, not this file -->\n"
SECTIONS: tuple[tuple[str, Any], ...] = (
    ("Top level", HarnessConfig),
    ("`[[agents]]`", AgentConfig),
    ("`[plugins]`", PluginsConfig),
    ("`[session]`", SessionConfig),
    ("`[limits]`", LimitsConfig),
)
INTRO = """# Configuration

`checkrein.toml` is optional: without it there is one agent, `main`. `checkrein config check` tells everything that is
wrong in it, `checkrein config show` what is in force and who set it, and `checkrein config schema` prints a JSON Schema
for editors ([checkrein.schema.json](checkrein.schema.json) is the one of the built-in plugins; taplo takes it from a
first line `#:schema PATH`).

```toml
model = "auto"                      # the first provider that has its credentials

[[agents]]
id = "main"
system_prompt = "You are a careful engineer."

[agents.plugins.budget]             # single keys, for this agent only
{example_key} = {example_value}

[plugins.compaction]
threshold = 0.7

[session]
store = "jsonl"
```

## Layers

A later layer wins, key by key; agents are matched by their id, `plugins.block` is the union of all layers, every other
list is replaced.

1. the defaults below
2. the user's file: `checkrein.toml` in `$CHECKREIN_CONFIG_HOME`, or in `checkrein/` below `$XDG_CONFIG_HOME`,
   `~/.config` or, on Windows, `%APPDATA%`
3. the project's file: `./checkrein.toml`, or what `--config` names
4. the environment
5. the command line

`"${{NAME}}"` in a text of layers 2, 4 and 5 is replaced by that environment variable; an unset one is an error, and
`"$${{NAME}}"` is the text itself. A project's file may come from anywhere, so it reads no environment.

## Trust

A project's file that was merely found in the folder may be a stranger's. It may not say who gets which key: until you
trust it, `base_url`, `api_key_env`, `headers` and `endpoints` of `[plugins.openai]` stop the start (exit 3), unless the
host is this machine. And what loosens guards is in force with a warning that names it: `loop`, the switches of
`[plugins]`, and

{loosens}

There are three ways to trust it:

- `checkrein config trust` remembers the file, for what it says of the loop and of plugins now; when that changes,
  you are asked for it again. `--forget` takes it back.
- `--config checkrein.toml`, or `Harness("checkrein.toml")` in a program: a file that somebody names is trusted.
- set these keys in your own file instead.

## Environment

| variable | sets |
|---|---|
{variables}
| `CHECKREIN__SECTION__KEY` | any key, in lower case; the value is TOML where it can be, else a text. Agents by id: \
`CHECKREIN__AGENTS__MAIN__MAX_STEPS=20` |
| `CHECKREIN_CONFIG_HOME` | the folder of the user's file |
| `CHECKREIN_DEBUG` | `1` shows tracebacks |

An empty variable sets nothing.
"""


def config_md() -> str:
    """The reference of the configuration."""
    variables = "\n".join(f"| `{name}` | `{'.'.join(path)}` |" for name, (path, _) in SHORT_NAMES.items())
    types = builtin_configs()
    key, value = _example(types.get("budget"))
    parts = [INTRO.format(variables=variables, example_key=key, example_value=value, loosens=_loosening_rows())]
    for title, type_ in SECTIONS:
        parts.append(f"## {title}\n\n{_table(type_)}")
    parts.append(
        "## `[plugins.NAME]`: the built-in plugins\n\nAn agent overrides single keys in `[agents.plugins.NAME]`."
    )
    for name, config in sorted(types.items()):
        parts += _tables(f"plugins.{name}", config, "###", []) if config is not None else [f"### `[plugins.{name}]`"]
    return NOTE + "\n\n".join(part.strip() for part in parts) + "\n"


def _tables(path: str, type_: Any, heading: str, shown: list[Any]) -> Iterator[str]:
    """A table's keys, and those of the tables in it, each type once."""
    shown.append(type_)
    head = re.sub(r"^(The table )?`\[plugins\.[\w.]+\]`[.:;,]? *", "", field_docs(type_)[0])
    yield "\n\n".join(part for part in (f"{heading} `[{path}]`", head[:1].upper() + head[1:], _table(type_)) if part)
    for name, (hint, _) in (fields_of(type_) or {}).items():
        for inner in _objects_in(hint):
            if inner not in shown:
                place = f"{path}.{name}" if inner is hint else f"{path}.{name}.NAME"
                yield from _tables(place, inner, "####", shown)


def _objects_in(hint: Any) -> Iterator[Any]:
    if fields_of(hint) is not None:
        yield hint
    for each in get_args(hint):
        yield from _objects_in(each)


def _example(config: Any) -> tuple[str, str]:
    """A key of a built-in plugin that takes a whole number."""
    for name, (hint, _) in (fields_of(config) or {}).items():
        if int in (hint, *get_args(hint)):
            return name, "20"
    return "# key", "20"


def _table(type_: Any) -> str:
    _, docs = field_docs(type_)
    lines = ["| key | type | default | |", "|---|---|---|---|"]
    for name, (hint, required) in (fields_of(type_) or {}).items():
        if type_ is PluginsConfig and name == "tables":
            continue
        default = "required" if required else _default(type_, name)
        lines.append(f"| `{name}` | {_word(hint)} | {default} | {docs.get(name, '')} |")
    return "\n".join(lines)


def _default(type_: Any, name: str) -> str:
    schema = json_schema({"it": type_})["$defs"]["PluginsConfig"]["properties"]["it"]["properties"][name]
    if "default" in schema:
        return f"`{json.dumps(schema['default'], ensure_ascii=False)}`".replace("|", "\\|")
    return "below" if "$ref" in schema else "none"


def _word(hint: Any) -> str:
    """A type in a reader's words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if fields_of(hint) is not None:
        return "table"
    if origin is Annotated:
        return _word(arguments[0]) + _bounds(hint.__metadata__)
    if origin in (list, tuple, set, frozenset):
        return f"list of {_word(arguments[0])}"
    if origin is dict:
        return f"table of {_word(arguments[1])}"
    if origin is Literal:
        return " or ".join(f"`{word}`" for word in arguments)
    if origin is not None:
        return " or ".join(_word(each) for each in arguments if each is not type(None))
    names = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "Path": "path"}
    return names.get(getattr(hint, "__name__", str(hint)), "anything" if hint is Any else getattr(hint, "__name__", ""))


def _bounds(metas: tuple[Any, ...]) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    found = [
        f"{sign} {getattr(meta, name):,}".replace(",", " ")
        for meta in metas
        if isinstance(meta, msgspec.Meta)
        for name, sign in signs.items()
        if getattr(meta, name) is not None and getattr(meta, name) < 2**31
    ]
    return f" {', '.join(found)}" if found else ""


HOOKS_INTRO = """# Hooks

A plugin is a class whose methods carry `@hookimpl`. It may implement any of these hooks, with any of their arguments,
sync or async where the colour says *any*. Implementations run in plugin order: those marked `tryfirst`, then as
registered, then those marked `trylast`. `@hookimpl(wrapper=True)` generators wrap any hook, the first one outermost.
`checkrein plugins --hooks` prints this with the implementations that are loaded.

| kind | what becomes of the answers |
|---|---|
| collect | called once at start; all answers are taken |
| lifespan | an async context manager, entered in plugin order and left in reverse |
| fold | each receives what the one before returned; None leaves it |
| around | each calls `proceed`, or answers instead |
| vote | all are asked; the strictest vote counts |
| first | the first answer that is not None counts |
| observe | all are called; an answer is ignored, a failure is contained |
| gather | all are called and awaited; then the first failure counts |
"""


def hooks_md() -> str:
    """The reference of the hooks, in the order a run meets them."""
    parts = [
        HOOKS_INTRO,
        "| hook | kind | colour | deadline | a plugin raises or passes its deadline |\n|---|---|---|---|---|",
    ]
    parts[1] += "".join(
        f"\n| [`{hook}`](#{hook}) | {info.kind} | {info.colour} | {_deadline(info)} | {info.on_fault} |"
        for hook, info in SPECS.items()
    )
    parts += [_hook(hook, info) for hook, info in SPECS.items()]
    return NOTE + "\n\n".join(part.strip() for part in parts) + "\n"


def _hook(hook: str, info: HookInfo) -> str:
    function = getattr(HookSpecs, hook)
    signature = inspect.signature(function)
    arguments = ", ".join(str(each) if each.name != "self" else "self" for each in signature.parameters.values())
    line = f"def {hook}({arguments.replace(chr(39), '')}) -> {str(signature.return_annotation).strip(chr(39))}"
    value = f", the running value is `{info.value}`" if info.value else ""
    text = "\n".join(_paragraphs(inspect.getdoc(function) or ""))
    facts = f"*{info.kind}, {info.colour}, deadline {_deadline(info)}{value}; on a fault: {info.on_fault}.*"
    return f"## {hook}\n\n```python\n{line}\n```\n\n{text}\n\n{facts}"


def _paragraphs(doc: str) -> Iterator[str]:
    for line in doc.splitlines():
        yield re.sub(r"^(Called when|Owes|Pair):", r"**\1:**", line)


def _deadline(info: HookInfo) -> str:
    return "none" if info.deadline_s is None else f"{info.deadline_s:g} s"


def schema_json() -> str:
    """The JSON Schema of a config file with the built-in plugins."""
    return json.dumps(json_schema(builtin_configs()), indent=2, ensure_ascii=False) + "\n"


def builtin_configs() -> dict[str, Any]:
    """The `Config` of each built-in plugin, None for one without."""
    return {name: getattr(plugin, "Config", None) for name, plugin in builtin_plugins().items()}


def builtin_plugins() -> dict[str, Any]:
    """The built-in plugins, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    plugins: dict[str, Any] = {}
    for name, value in sorted(project["entry-points"]["checkrein.plugins"].items()):
        module, _, attribute = value.partition(":")
        plugins[name] = getattr(importlib.import_module(module), attribute)
    return plugins


def _loosening_rows() -> str:
    """The keys of the built-in plugins that loosen guards, a line for each plugin."""
    keys = {name: getattr(plugin, "loosens", ()) for name, plugin in builtin_plugins().items()}
    return "\n".join(
        f"- `[plugins.{name}]`: {', '.join('every key' if key == '*' else f'`{key}`' for key in needed)}"
        for name, needed in keys.items()
        if needed
    )


GENERATED = {"config.md": config_md, "hooks.md": hooks_md, "checkrein.schema.json": schema_json}


def main(arguments: list[str]) -> int:
    """Write or compare the generated files.

    Args:
        arguments: `--check`, or nothing.

    Returns:
        The exit code.
    """
    stale: list[str] = []
    for name, make in GENERATED.items():
        file = ROOT / "docs" / name
        text = make()
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in arguments:
                file.write_text(text, encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"docs/{name}: {'not fresh' if '--check' in arguments else 'written'}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
