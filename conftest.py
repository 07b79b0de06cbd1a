"""What every test of checkrein shares: options, the network ban, virtual time, scripted models.

Options (docs/testing.md):
    --slow          run the tests marked slow too
    --faults=N      faults per scenario of the sweeps, or `full` (fixture `faults`)
    --kills=N       processes that the crash tests kill, or `full` (fixture `kills`)
    --seeds=N       seeds per interleaving test (fixture `seeds`)
"""

from __future__ import annotations

import importlib.util
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from importlib import metadata
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from checkrein.testing import ScriptedModel

INSTALL = 'python -m pip install -e ".[dev]"'
BACKENDS = ("asyncio", "trio")

# A busy machine is no finding of a property test: no example has a deadline by the wall clock.
settings.register_profile("checkrein", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("checkrein")


# --- options ----------------------------------------------------------------------------------------


def limit(text: str) -> int | None:
    """A number of at least 1; None for `full`."""
    if text == "full":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"expected a number of at least 1, or full, got {text!r}")
    return int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("checkrein's own tests")
    group.addoption("--slow", action="store_true", help="run the tests marked slow too")
    group.addoption("--faults", type=limit, default=60, metavar="N|full", help="faults per scenario (60)")
    group.addoption("--kills", type=limit, default=200, metavar="N|full", help="processes killed, about (200)")
    group.addoption("--seeds", type=limit, default=20, metavar="N", help="seeds per interleaving test (20)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: heavy sweeps, run with --slow")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell leaves it to `pytest &`; tests raise it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if importlib.util.find_spec("checkrein") is None:
        raise pytest.UsageError(f"checkrein is not installed; run: {INSTALL}")


def pytest_report_header(config: pytest.Config) -> str:
    try:
        return f"checkrein: {metadata.version('checkrein')}"
    except metadata.PackageNotFoundError:
        return f"checkrein: on the path, but not installed, so its plugins are not found; run: {INSTALL}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow; run with --slow"))


@pytest.fixture(scope="session")
def faults(pytestconfig: pytest.Config) -> int | None:
    """How many faults a sweep injects per scenario; None for all."""
    return pytestconfig.getoption("--faults")


@pytest.fixture(scope="session")
def kills(pytestconfig: pytest.Config) -> int | None:
    """How many processes the crash tests kill; None for all."""
    return pytestconfig.getoption("--kills")


@pytest.fixture(scope="session")
def seeds(pytestconfig: pytest.Config) -> range:
    """The seeds of an interleaving test."""
    return range(pytestconfig.getoption("--seeds") or 1_000)


# --- the network ban --------------------------------------------------------------------------------


def local(address: Any) -> bool:
    """Whether an address is this machine's: a path, localhost, or a loopback IP."""
    if not isinstance(address, tuple):
        return True  # AF_UNIX
    host = str(address[0])
    try:
        return host == "localhost" or ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


@pytest.fixture(scope="session", autouse=True)
def banned_connections() -> Iterator[list[Any]]:
    """Refuse connections that leave the machine, and note them."""
    seen: list[Any] = []

    def guarded(plain: Callable[..., Any]) -> Callable[..., Any]:
        def guard(self: socket.socket, *args: Any) -> Any:
            if args and not local(args[-1]):
                seen.append(args[-1])
                raise PermissionError(f"a test tried to reach {args[-1]!r}; tests connect to loopback only")
            return plain(self, *args)

        return guard

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
        yield seen


@pytest.fixture(autouse=True)
def no_network(banned_connections: list[Any]) -> Iterator[None]:
    """Fail a test that tried to reach the network, also where the attempt was contained."""
    banned_connections.clear()
    yield
    assert not banned_connections, f"tried to reach {banned_connections}; tests connect to loopback only"


# --- running, and models ------------------------------------------------------------------------------


class Run:
    """Runs an async function under virtual time on one backend; `run_virtual` says the rest."""

    def __init__(self, backend: str) -> None:
        self.backend = backend

    def __call__(self, fn: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        from checkrein.testing import run_virtual

        return run_virtual(fn, *args, backend=self.backend, **options)


@pytest.fixture(params=BACKENDS)
def run(request: pytest.FixtureRequest) -> Run:
    """Run an async function under virtual time, on asyncio and on trio: `run(fn, *args, seed=None)`."""
    return Run(request.param)


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedModel]]:
    """Make scripted models; behind the test each check must have held and each stream be closed (C6)."""
    from checkrein.testing import ScriptedModel

    models: list[ScriptedModel] = []

    def make(*turns: Any, **options: Any) -> ScriptedModel:
        models.append(ScriptedModel(*turns, **options))
        return models[-1]

    yield make
    for model in models:
        if model.failures:
            raise model.failures[0]
        assert model.opened == model.closed, f"{model.opened - model.closed} streams were left open"
