"""The shared fixtures and options of conftest.py, run on small test files of their own."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[3] / "conftest.py"
QUIET = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:hypothesispytest")


@pytest.fixture
def inner(pytester):
    """A folder with our conftest.py; the result of running a test file in it."""
    pytester.makeconftest(CONFTEST.read_text())

    def go(source, *args):
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess(*QUIET, *args)

    return go


def test_run_gives_virtual_time_on_both_backends(run):
    async def main():
        await anyio.sleep(3600)
        return anyio.current_time()

    assert run(main) >= 3600


def test_run_is_parametrised(inner):
    inner("def test_it(run):\n    assert run.backend in ('asyncio', 'trio')").assert_outcomes(passed=2)


def test_slow_tests_run_only_on_demand(inner):
    source = "import pytest\n@pytest.mark.slow\ndef test_it(): pass"
    inner(source).assert_outcomes(skipped=1)
    inner(source, "--slow").assert_outcomes(passed=1)


def test_limits_come_from_the_command_line(inner):
    source = "def test_it(faults, kills, seeds): assert (faults, kills, list(seeds)) == {}"
    inner(source.format((60, 200, list(range(20))))).assert_outcomes(passed=1)
    inner(source.format((7, None, [0, 1])), "--faults=7", "--kills=full", "--seeds=2").assert_outcomes(passed=1)


@pytest.mark.parametrize("wrong", ["0", "-1", "many"])
def test_a_wrong_limit_is_a_usage_error(inner, wrong):
    assert inner("def test_it(): pass", f"--faults={wrong}").ret == pytest.ExitCode.USAGE_ERROR


def test_a_connection_that_leaves_the_machine_fails_the_test_even_if_contained(inner):
    inner(
        """
        import socket
        import pytest

        def test_raises():
            with socket.socket() as s:
                with pytest.raises(PermissionError, match="loopback only"):
                    s.connect(("192.0.2.1", 80))

        def test_contained():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                try:
                    s.sendto(b"x", ("192.0.2.1", 53))
                except OSError:
                    pass

        def test_loopback():
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname()).close()
            left, right = socket.socketpair()
            left.close(); right.close()
        """
    ).assert_outcomes(passed=3, errors=2)


def test_a_failed_check_of_a_scripted_model_fails_the_test(inner):
    inner(
        """
        import anyio
        from checkrein.messages import Request, TextBlock, UserMessage
        from checkrein.testing import check, text

        async def drain(model):
            async for _ in model.stream(Request("m", [UserMessage([TextBlock("hi")])])):
                pass

        def test_contained(scripted):
            try:
                anyio.run(drain, scripted(check(lambda request: False)))
            except Exception:
                pass

        def test_good(scripted):
            anyio.run(drain, scripted("a"))

        def test_left_open(scripted):
            async def main():
                await anext(model.stream(Request("m", [UserMessage([TextBlock("hi")])])))

            model = scripted("a")
            stream = model.stream(Request("m", [UserMessage([TextBlock("hi")])]))
            try:
                stream.__anext__().send(None)
            except StopIteration:
                pass
            keep.append(stream)

        keep = []
        """
    ).assert_outcomes(passed=3, errors=2)


def test_without_checkrein_the_install_command_is_shown(pytester, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    pytester.makeconftest(CONFTEST.read_text())
    result = pytester.runpytest_inprocess(*QUIET)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*pip install -e*"])
