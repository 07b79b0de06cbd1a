"""Entry points, read without an import."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein.discovery import discover, load_named
from checkrein.errors import ConfigError


def test_the_one_of_a_name_is_imported(install: Any) -> None:
    found = install("acme-loop", {"spin": "Plugin = 5"}, group="acme.loops")
    assert load_named("acme.loops", "spin", what="loop") == 5
    assert found[0].origin == "acme-loop 1.2"
    assert not found[0].builtin


def test_a_name_that_is_not_there_names_the_nearest(install: Any) -> None:
    install("acme-loop", {"spin": "Plugin = 5"}, group="acme.loops")
    with pytest.raises(ConfigError, match=r"loops spin, got 'spinn'; did you mean 'spin'.*at loop") as caught:
        load_named("acme.loops", "spinn", what="loop", path="loop")
    assert caught.value.path == "loop"
    with pytest.raises(ConfigError, match=r"none installed"):
        load_named("acme.nothing", "x", what="loop")


def test_two_of_a_name_and_a_broken_one_are_told(install: Any) -> None:
    install("acme-a", {"spin": "Plugin = 5", "bad": "1 / 0"}, group="acme.loops")
    install("acme-b", {"spin": "Plugin = 6"}, group="acme.loops")
    with pytest.raises(ConfigError, match=r"from acme-a 1\.2 and acme-b 1\.2"):
        load_named("acme.loops", "spin", what="loop")
    with pytest.raises(ConfigError, match=r"'bad' of acme-a 1\.2 .*ZeroDivisionError"):
        load_named("acme.loops", "bad", what="loop")


def test_the_order_of_folders_does_not_decide(install: Any) -> None:
    install("zeta", {"b": "", "a": ""}, group="acme.things")
    install("acme", {"c": ""}, group="acme.things")
    found = install("checkrein", {"z": "", "y": ""}, group="acme.things")
    assert [one.name for one in found] == [one.name for one in discover("acme.things")] == ["z", "y", "a", "b", "c"]
