"""`checkrein crashtest`: kill your own agent with SIGKILL after every append and every tool start, and resume it.

Each row of the table is one killed process and the one after it: did it resume and run another turn, did an effect
come twice, is something lost that was acknowledged, and is the log balanced. What lives is testing/lives.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import click
from msgspec import Struct

from checkrein.errors import CheckreinError, ConfigError

__all__ = ["Row", "crashtest", "run_crashtest"]

DEFAULT_KILLS = 20
NO_ROOM = 200  # characters of an error that are shown in the table


class CrashtestError(CheckreinError):
    """The agent cannot be tested: it fails without being killed."""


class Row(Struct, frozen=True):
    """One killed life and the one after it.

    Attributes:
        at: which point, from 1.
        point: what had just happened: an event's type, or a tool that begins or ends.
        resumed: how the next turn ended; empty if there was none.
        duplicated: effectful calls that were begun twice.
        lost: what was acknowledged or begun and is not in the log.
        oracle: what the oracle found.
        problem: why there is no verdict.
    """

    at: int
    point: str
    resumed: str = ""
    duplicated: Sequence[str] = ()
    lost: Sequence[str] = ()
    oracle: Sequence[str] = ()
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.duplicated or self.lost or self.oracle or self.problem) and bool(self.resumed)


def kills_option(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    """A number of at least 1; None for `full`."""
    if value == "full":
        return None
    if not value.isdecimal() or int(value) < 1:
        raise click.BadParameter(f"expected a number of at least 1, or full, got {value!r}")
    return int(value)


@click.command()
@click.argument("target", metavar="CONFIG_OR_MODULE")
@click.option(
    "--say", "inputs", multiple=True, metavar="TEXT", help="An input, one a turn; may be given several times."
)
@click.option(
    "--kills",
    default=str(DEFAULT_KILLS),
    show_default=True,
    callback=kills_option,
    metavar="N|full",
    help="At how many points to kill, spread evenly.",
)
@click.option("--keep", type=click.Path(file_okay=False), help="Keep the folders of all lives here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a kill.")
def crashtest(target: str, inputs: tuple[str, ...], kills: int | None, keep: str | None, as_json: bool) -> None:
    """Kill an agent with SIGKILL at many points, resume it each time, and check its log.

    CONFIG_OR_MODULE is a config file, or FILE.py:FUNCTION or package.module:FUNCTION (`harness` if it is left out): a
    function of a folder that returns a Harness, not opened, which keeps its sessions there. Its model should be a
    scripted one, so that every run is alike. Exit code 8 if anything is lost, done twice or unbalanced.
    """
    with tempfile.TemporaryDirectory(prefix="checkrein-crashtest-") as scratch:
        folder = Path(keep) if keep else Path(scratch)
        rows: list[Row] = []
        for row in run_crashtest(target, inputs or ("go",), folder, kills):
            if not rows and not as_json:
                click.echo(_line(HEAD))
            rows.append(row)
            click.echo(json.dumps(_plain(row)) if as_json else _line(_cells(row)))
    bad = sum(not row.ok for row in rows)
    click.echo(f"{len(rows)} kills: {'all resumed, nothing lost or done twice' if not bad else f'{bad} bad'}", err=True)
    if bad:
        click.get_current_context().exit(8)


def run_crashtest(target: str, inputs: Sequence[str], folder: Path, kills: int | None = DEFAULT_KILLS) -> Iterator[Row]:
    """Live, kill and resume, once for each chosen point.

    Args:
        target: a config file or a module's function, as for the command.
        inputs: what is said to the agent, one input a turn.
        folder: each life gets a folder of its own in it.
        kills: at how many points, spread evenly; None for all.

    Yields:
        A row for each kill, as it is done.

    Raises:
        CrashtestError: the agent fails without being killed.
    """
    with _Worker(target) as worker:
        whole = _fresh(folder / "whole")
        if worker.live(whole, inputs, 0) != 0:
            raise CrashtestError(f"expected {target} to run to its end unharmed; it failed:\n{worker.errors()}")
        points: list[str] = json.loads((whole / "points.json").read_text())
        for at in _chosen(len(points), kills):
            life = _fresh(folder / f"kill-{at:04d}")
            code = worker.live(life, inputs, at)
            if code == 0:
                yield Row(at, points[at - 1], problem="the process was not killed: its runs differ")
                continue
            if worker.live_on(life) != 0:
                yield Row(at, points[at - 1], problem=worker.errors()[-NO_ROOM:])
                continue
            after = json.loads((life / "after.json").read_text())
            yield Row(at, points[at - 1], after["resumed"], after["duplicated"], after["lost"], after["oracle"])


def _chosen(total: int, kills: int | None) -> list[int]:
    """The points to kill at, from 1, spread evenly, the first and the last among them."""
    if kills is None or kills >= total:
        return list(range(1, total + 1))
    if kills == 1:
        return [max(1, total // 2)]
    return sorted({1 + round(n * (total - 1) / (kills - 1)) for n in range(kills)})


def _fresh(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True)
    except OSError as exc:
        raise CrashtestError(
            f"expected to make the folder {folder} for a life, got: {exc}; keep them elsewhere"
        ) from exc
    return folder


class _Worker:
    """The warm process from which lives are made."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._scratch = tempfile.TemporaryDirectory(prefix="checkrein-crashtest-")
        self._kill_point = Path(self._scratch.name) / "kill-point"
        self._stderr = Path(self._scratch.name) / "stderr"
        self._process: subprocess.Popen[str] | None = None
        self._file: IO[str] | None = None

    def __enter__(self) -> _Worker:
        from checkrein.testing.lives import KILL_POINT

        self._file = self._stderr.open("w")
        path = os.pathsep.join(part for part in (os.environ.get("PYTHONPATH"), str(Path.cwd())) if part)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "checkrein.testing.lives", self._target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._file,
            text=True,
            env={**os.environ, KILL_POINT: str(self._kill_point), "PYTHONPATH": path},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None and self._process.stdin is not None and self._file is not None
        self._process.stdin.close()
        if exc is not None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._file.close()
        self._scratch.cleanup()

    def live(self, folder: Path, inputs: Sequence[str], kill_at: int) -> int:
        """Live one life; returns the process's exit code, negative for a signal."""
        self._kill_point.write_text(str(kill_at))
        return self._ask({"folder": str(folder.resolve()), "inputs": list(inputs), "after": False})

    def live_on(self, folder: Path) -> int:
        """Live the life after it."""
        return self._ask({"folder": str(folder.resolve()), "inputs": [], "after": True})

    def errors(self) -> str:
        """What the lives said on standard error, its end."""
        return self._stderr.read_text(errors="replace").strip()[-2_000:]

    def _ask(self, request: dict[str, Any]) -> int:
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self._process.wait()
            raise ConfigError(f"expected {self._target} to make a harness; it failed:\n{self.errors()}")
        return int(json.loads(answer)["code"])


# --- the table -------------------------------------------------------------------------------------------

HEAD = ("point", "killed after", "resumed", "twice", "lost", "oracle")
WIDTHS = (5, 24, 22, 10, 10, 8)


def _cells(row: Row) -> tuple[str, ...]:
    if row.problem:
        return str(row.at), row.point, f"NO: {row.problem}", "", "", ""
    oracle = "balanced" if not row.oracle else f"NOT balanced: {'; '.join(row.oracle)}"
    return str(row.at), row.point, row.resumed, ", ".join(row.duplicated) or "-", ", ".join(row.lost) or "-", oracle


def _line(cells: Sequence[str]) -> str:
    from checkrein.visible import visible

    return "  ".join(visible(cell).ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def _plain(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__struct_fields__} | {"ok": row.ok}
