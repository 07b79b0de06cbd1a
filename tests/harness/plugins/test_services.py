"""Services by type: provided once, asked for by anybody, gone with their plugin (H4, H6)."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pytest

from checkrein.config import PluginsConfig
from checkrein.errors import ConfigError
from checkrein.plugins import PluginManager
from checkrein.services import Services


class Clock(Protocol):
    def now(self) -> float: ...


@runtime_checkable
class Closer(Protocol):
    def close(self) -> None: ...


class Wall:
    def now(self) -> float:
        return 1.0


def test_H6_a_service_is_found_by_its_type() -> None:
    services = Services()
    wall = Wall()
    services.provide(Clock, wall, "clock")
    assert services.has(Clock)
    assert services.service(Clock) is wall
    assert not services.has(Wall)


def test_H4_two_providers_of_a_service_are_named() -> None:
    services = Services()
    services.provide(Clock, Wall())
    with pytest.raises(ConfigError, match="got the program and plugin 'second'"):
        services.provide(Clock, Wall(), "second")


def test_H6_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"expected a .*Closer from plugin 'x', got Wall"):
        Services().provide(Closer, Wall(), "x")  # type: ignore[arg-type]


def test_H4_services_leave_with_their_plugin() -> None:
    services = Services()
    services.provide(Clock, Wall(), "clock")
    services.provide(Wall, Wall())
    assert services.withdraw("clock") == [Clock]
    assert services.withdraw("clock") == []
    assert services.has(Wall)
    with pytest.raises(ConfigError, match="plugin 'clock' did, and has left"):
        services.service(Clock)
    services.provide(Clock, Wall(), "other")


def test_H6_a_missing_service_says_who_could_provide_it() -> None:
    class Could:
        provides = (Clock,)

    plugins = PluginManager(PluginsConfig(), found=[])
    plugins.add(Could, "could")
    plugins.load()
    services = Services(plugins)
    services.provide(Wall, Wall())
    with pytest.raises(ConfigError) as caught:
        services.service(Clock)
    text = str(caught.value)
    assert "Clock, got none" in text
    assert "provided are" in text
    assert "Wall" in text
    assert "plugin 'could'" in text
    with pytest.raises(ConfigError, match=r"call harness\.provide"):
        Services().service(Clock)
