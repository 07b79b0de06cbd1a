"""The pytest plugin: every agent of every test is watched by the oracle, and its violations fail the test.

On by default; `checkrein_oracle = "off"` or `"deep"` in the ini file changes it for all tests, the marker
`@pytest.mark.checkrein_oracle_off(reason="...")` for one. This module imports the standard library
and pytest only: the oracle and checkrein come with the first test that imports checkrein itself (P3).
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pytest

if TYPE_CHECKING:
    from .rules import Violation
    from .watch import Watch

__all__ = ["OracleFixture", "checkrein_oracle"]

_MARKER = "checkrein_oracle_off"
_SESSION = "checkrein.session"
_MAX_HELD = 200
_MODES = ("on", "off", "deep")


class OracleFixture:
    """What the oracle saw in this test.

    Attributes:
        watches: one per session, in the order they were made; the last 200 of them.
        deep: whether they derive the history at each step.
    """

    def __init__(self, deep: bool) -> None:
        self.watches: list[Watch] = []
        self.deep = deep
        self._earlier: WeakSet[Watch] = WeakSet()
        self._found: list[str] = []  # in sessions that are no longer held
        self._told: set[str] = set()

    @property
    def violations(self) -> list[Violation]:
        """The violations so far, warnings included."""
        return [violation for watch in self.watches for violation in watch.violations]

    def watch(self, session: Any) -> Watch:
        """Watch a session; the plugin does it for every one that is made."""
        from .watch import Watch

        if len(self.watches) >= _MAX_HELD:
            # A sweep makes thousands: the oldest is judged now, and again at the end if it is still alive.
            oldest = self.watches.pop(0)
            self._found += _problems(oldest, ended=False, last=True)
            self._earlier.add(oldest)
        watch = Watch(session, deep=self.deep)
        self.watches.append(watch)
        return watch

    def problems(self, *, ended: bool) -> list[str]:
        """What fails the test, each once.

        Args:
            ended: the test and its fixtures are over: agents have to be closed.
        """
        watches = [*self.watches, *(self._earlier if ended else ())]
        found = [*self._found, *(problem for watch in watches for problem in _problems(watch, ended, last=ended))]
        new = [problem for problem in dict.fromkeys(found) if problem not in self._told]
        self._told.update(new)
        return new


class _Lasting:
    """The oracles of fixtures that outlast a test (of a class, module or session): their agents are watched on."""

    def __init__(self) -> None:
        self._made: dict[object, OracleFixture] = {}
        self._over: list[OracleFixture] = []

    def begin(self, fixture: object, deep: bool) -> OracleFixture:
        """A fixture is set up."""
        oracle = self._made[fixture] = OracleFixture(deep)
        return oracle

    def end(self, fixture: object) -> None:
        """A fixture is closed; it is judged when all that are closed with it are."""
        if (oracle := self._made.pop(fixture, None)) is not None:
            self._over.append(oracle)

    def problems(self) -> list[str]:
        """What is new, each once."""
        over, self._over = self._over, []
        found = [problem for oracle in over for problem in oracle.problems(ended=True)]
        return found + [problem for oracle in self._made.values() for problem in oracle.problems(ended=False)]


def _is_agents(watch: Watch) -> bool:
    """Whether an agent lives on the session; logs that a test writes by hand are its own affair."""
    session = watch.session
    return session.on_fault is not None


def _problems(watch: Watch, ended: bool, last: bool) -> list[str]:
    """What is wrong in a session: so far, or (`last`) with the checks that look at the whole."""
    from .contained import contained

    if not _is_agents(watch):
        return []
    found = watch.finish(open_ok=not ended) if last else watch.violations
    out = [str(violation) for violation in found if violation.severity == "error"]
    out += contained(watch.own_events)
    if watch.failure is not None:
        out.append(f"the oracle itself failed: {watch.failure!r}")
    return [f"session {watch.session.id}: {problem}" for problem in out]


# --- the hooks of pytest -----------------------------------------------------------------------------

_KEY = pytest.StashKey[OracleFixture]()
_LASTING = pytest.StashKey[_Lasting]()
# The test that runs, None while it is not watched; below it the one that runs it, in the same process (pytester).
_current: list[OracleFixture | None] = []
_runs: list[pytest.Config] = []  # the runs that watch, an inner one last


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option."""
    parser.addini("checkrein_oracle", "whether the oracle watches every agent: on (default), off or deep", default="on")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and wait for checkrein to be imported."""
    config.addinivalue_line("markers", f"{_MARKER}(reason): this test breaks the rules on purpose; say why")
    config.stash[_LASTING] = _Lasting()
    mode = config.getini("checkrein_oracle")
    if mode not in _MODES:
        raise pytest.UsageError(f"checkrein_oracle: expected on, off or deep, got {mode!r}")
    if mode == "off":
        return
    _runs.append(config)
    if (module := sys.modules.get(_SESSION)) is not None:
        _attach(module)
    else:
        sys.meta_path.insert(0, _Waiting())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop waiting and watching, unless a run around this one goes on."""
    if config in _runs:
        _runs.remove(config)
    if _runs:
        return
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Waiting)]
    module = sys.modules.get(_SESSION)
    if module is not None and _watch in module.WATCHERS:
        module.WATCHERS.remove(_watch)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, Any, Any]:
    """A test's place in the pile, however it is left."""
    _current.append(None)
    try:
        return (yield)
    finally:
        _current.pop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin to watch: fixtures may make agents."""
    marker = item.get_closest_marker(_MARKER)
    mode = item.config.getini("checkrein_oracle")
    item.stash[_KEY] = oracle = OracleFixture(mode == "deep")
    if marker is not None:
        if not (marker.kwargs.get("reason") or marker.args):
            pytest.fail(f"the marker {_MARKER} needs a reason: say what the test breaks, and why", pytrace=False)
    elif mode != "off":
        _current[-1] = oracle


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """An agent of a fixture that outlasts the test is none of the test's."""
    oracle = _current[-1] if _current else None
    if oracle is None or fixturedef.scope == "function":
        return (yield)
    _current[-1] = request.config.stash[_LASTING].begin(fixturedef, oracle.deep)
    try:
        return (yield)
    finally:
        _current[-1] = oracle


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """A fixture is closed."""
    request.config.stash[_LASTING].end(fixturedef)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that passed although a rule was broken."""
    result = yield
    if (oracle := _current[-1]) is not None:
        _raise([*oracle.problems(ended=False), *item.config.stash[_LASTING].problems()])
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Check the ends, after all fixtures are closed."""
    result = yield
    oracle, _current[-1] = _current[-1], None
    lasting = item.config.stash[_LASTING].problems()  # of a test that is not watched they are told to nobody
    if oracle is not None:
        problems = [*oracle.problems(ended=True), *lasting]
        item.stash[_KEY] = OracleFixture(False)
        _raise(problems)
    return result


def _raise(problems: Sequence[str]) -> None:
    if problems:
        text = "\n  ".join(problems)
        pytest.fail(f"the oracle found that the log breaks its rules:\n  {text}", pytrace=False)


@pytest.fixture
def checkrein_oracle(request: pytest.FixtureRequest) -> OracleFixture:
    """The oracle of this test: its watches and what they found so far."""
    oracle: OracleFixture = request.node.stash[_KEY]
    return oracle


# --- waiting for checkrein ---------------------------------------------------------------------------


def _watch(session: Any) -> Any:
    oracle = _current[-1] if _current else None
    return None if oracle is None else oracle.watch(session)


def _attach(module: ModuleType) -> None:
    if _watch not in module.WATCHERS:
        module.WATCHERS.append(_watch)


class _Waiting(MetaPathFinder):
    """Lets everything be imported as ever, and attaches the watcher when the session module comes."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _SESSION:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Attaching(spec.loader)
        return spec


class _Attaching(Loader):
    """The module's own loader, and the watcher behind it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _attach(module)
