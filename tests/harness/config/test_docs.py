"""The generated files of docs/ are what tools/gen_docs.py makes now, and the example in them works."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest

from checkrein.config import problems_in

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_docs", ROOT / "tools" / "gen_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gen_docs"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["config.md", "hooks.md", "checkrein.schema.json"])
def test_the_generated_docs_are_fresh(generator: ModuleType, name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert text == generator.GENERATED[name](), "run `python tools/gen_docs.py`"


def test_the_example_of_the_reference_is_a_configuration(generator: ModuleType) -> None:
    example = re.search(r"```toml\n(.*?)```", generator.config_md(), re.DOTALL)
    assert example is not None
    document = tomllib.loads(example[1])
    configs = generator.builtin_configs()
    assert problems_in(document, configs) == []
    jsonschema.validate(document, generator.json_schema(configs))


def test_the_defaults_of_the_built_in_plugins_fit_their_own_types(generator: ModuleType) -> None:
    tables = {name: {} for name in generator.builtin_configs()}
    assert problems_in({"plugins": tables}, generator.builtin_configs()) == []


def test_every_key_of_a_built_in_plugin_is_described(generator: ModuleType) -> None:
    bare: list[str] = []
    for name, config in generator.builtin_configs().items():
        _, docs = generator.field_docs(config)
        bare += [f"{name}.{key}" for key in generator.fields_of(config) or () if key not in docs]
    assert bare == []
