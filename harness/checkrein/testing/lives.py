"""Lives of an agent: one process each, killed with SIGKILL at a chosen point, and the life after it.

    python -m checkrein.testing.lives TARGET        reads one request a line (JSON), answers with one line each

A target is a config file, or `file.py:function` or `package.module:function`: a function of a folder that returns a
Harness, not opened, which keeps its sessions in this folder. `checkrein crashtest` (cli/crashtest.py) is the caller.
The point at which a life ends stands in the file that the environment variable CHECKREIN_KILL_POINT names.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from checkrein.discovery import PLUGINS, discover
from checkrein.errors import CheckreinError, ConfigError
from checkrein.hookspecs import hookimpl

if TYPE_CHECKING:
    from checkrein.calls import Call, Outcome, Proceed
    from checkrein.harness import Harness

__all__ = ["KILL_POINT", "EFFECTS", "LifeAfter", "Make", "TOLD", "load_target", "main"]

KILL_POINT = "CHECKREIN_KILL_POINT"
TOLD, EFFECTS, POINTS, AFTER = "told.jsonl", "effects.jsonl", "points.json", "after.json"
TURN_S = 60.0  # a life that waits longer for a turn is stuck

Make = Callable[[Path], "Harness"]
LifeAfter = dict[str, Any]

_call: ContextVar[Any] = ContextVar("checkrein_lives_call", default=None)


def load_target(target: str) -> Make:
    """Return the function that makes a harness for a folder.

    Raises:
        ConfigError: there is no such file, module or function.
    """
    place, _, name = target.rpartition(":") if ":" in target and not Path(target).exists() else (target, "", "")
    if not name and target.endswith(".toml"):
        return _configured(target)
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location("crashtest_target", place)
        if spec is None or spec.loader is None or not Path(place).is_file():
            raise ConfigError(f"expected a Python file, got {place!r}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(place)
        except ImportError as exc:
            raise ConfigError(f"expected a config file, a .py file or a module, got {target!r}: {exc}") from exc
    make = getattr(module, name or "harness", None)
    if not callable(make):
        raise ConfigError(f"expected a function {name or 'harness'}(folder) -> Harness in {place}, got {make!r}")
    return make  # type: ignore[no-any-return]


def _configured(path: str) -> Make:
    def make(folder: Path) -> Harness:
        from checkrein.harness import Harness

        kept = {"plugins": {"persistence": {"dir": str(folder / ".checkrein")}}}
        return Harness(path, workspace=folder, overrides=kept)

    return make


class _Life:
    """What a life leaves behind in its folder, and where it ends."""

    def __init__(self, folder: Path, kill_at: int) -> None:
        self.folder = folder
        self.kill_at = kill_at
        self.points: list[str] = []
        self._files = {
            name: os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) for name in (TOLD, EFFECTS)
        }

    def write(self, name: str, **fields: Any) -> None:
        """Note something in a file that outlives the process."""
        os.write(self._files[name], json.dumps(fields).encode() + b"\n")

    def point(self, label: str) -> None:
        """A point at which the process may be killed."""
        self.points.append(label)
        if len(self.points) == self.kill_at:
            _die()


def _die() -> None:
    if hasattr(signal, "SIGKILL"):
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(137)


class _Probe:
    """A plugin that marks the points, and knows which call a tool runs for."""

    name = "crashtest"

    def __init__(self, life: _Life) -> None:
        self._life = life

    @hookimpl(trylast=True)
    def session_event(self, event: Any) -> None:
        self._life.point(event.type)

    @hookimpl(trylast=True)
    async def tools_execute(self, call: Call, proceed: Proceed) -> Outcome:
        _call.set(call)
        return await proceed(call)


def _watch_tools(harness: Harness, life: _Life) -> None:
    """Note when each tool begins and ends, and make both points."""
    for name in harness.tools.names():
        tool = harness.tools.get(name)
        assert tool is not None
        tool.fn = _watched(tool.fn, life, name, tool.effect, tool.is_async)


def _watched(fn: Callable[..., Any], life: _Life, tool: str, effect: str, is_async: bool) -> Callable[..., Any]:
    def note(what: str) -> None:
        call = _call.get()
        life.write(EFFECTS, what=what, tool=tool, effect=effect, call_id=call.call_id if call is not None else "")
        life.point(f"{tool} {what}s")

    if is_async or iscoroutinefunction(fn):

        @wraps(fn)
        async def later(*args: Any, **kwargs: Any) -> Any:
            note("begin")
            value = await fn(*args, **kwargs)
            note("end")
            return value

        return later

    @wraps(fn)
    def now(*args: Any, **kwargs: Any) -> Any:
        note("begin")
        value = fn(*args, **kwargs)
        note("end")
        return value

    return now


async def live(make: Make, folder: Path, inputs: Sequence[str], kill_at: int) -> None:
    """Run the inputs one after another, and say what was acknowledged; ends by SIGKILL at the given point."""
    life = _Life(folder, kill_at)
    harness = make(folder)
    harness.plugins.add(_Probe(life))
    async with harness:
        if harness.store_name == "memory":
            raise ConfigError("expected a store that outlives the process, got memory; load the plugin persistence")
        _watch_tools(harness, life)
        agent = next(iter(harness.agents))
        for text in inputs:
            receipt = agent.send(text)
            await receipt.durable()
            life.write(TOLD, what="input", id=receipt.id)
            with anyio.fail_after(TURN_S):
                result = await receipt.result()
            life.write(TOLD, what="turn", turn=result.turn)
    (folder / POINTS).write_text(json.dumps(life.points))


async def live_on(make: Make, folder: Path) -> LifeAfter:
    """Resume what a life left, run one more turn, and say what is lost, what came twice, and what the oracle says."""
    from checkrein.recovery import recover

    harness = make(folder)
    after: LifeAfter = {"resumed": "", "duplicated": [], "lost": [], "oracle": []}
    told, effects = _read(folder / TOLD), _read(folder / EFFECTS)
    begun = [entry["call_id"] for entry in effects if entry["what"] == "begin" and entry["effect"] == "effectful"]
    after["duplicated"] = sorted({call_id for call_id in begun if begun.count(call_id) > 1})
    async with harness:
        store = harness.store
        kept = list(store.list())
        events = recover(store.read(kept[0].id)).events if kept else []
        after["lost"] = _lost(events, told, begun)
        if not kept:
            after["resumed"] = "nothing was begun"
            return after
        agent = await harness.resume(kept[0].id)
        with anyio.fail_after(TURN_S):
            if agent.pending:
                agent.wake()
                await agent.idle()
            result = await agent.run("go on")
        after["resumed"] = f"turn {result.turn} {result.reason.kind}"
        session_id = agent.session.id
    after["oracle"] = _judged(store.read(session_id))
    return after


def _lost(events: Sequence[Any], told: Sequence[dict[str, Any]], begun: Sequence[str]) -> list[str]:
    """What was acknowledged or done and is not in the log."""
    inputs = {event.id for event in events if event.type == "inbox/accepted"}
    ended = {event.turn for event in events if event.type == "turn/end"}
    started = {event.call_id for event in events if event.type == "tool/start"}
    lost = [f"input {entry['id']}" for entry in told if entry["what"] == "input" and entry["id"] not in inputs]
    lost += [f"turn {entry['turn']}" for entry in told if entry["what"] == "turn" and entry["turn"] not in ended]
    return lost + [f"start of {call_id}" for call_id in begun if call_id not in started]


def _judged(stored: Any) -> list[str]:
    """The oracle's findings; a line that says so if there is no oracle."""
    from checkrein.config.types import HarnessConfig, SessionConfig
    from checkrein.harness import Harness
    from checkrein.verdict import Judge

    found = [found for found in discover(PLUGINS) if found.name == "invariants"]
    judges = Harness(found=found, config=HarnessConfig(session=SessionConfig(store="memory")))
    judges.load()
    if not judges.services.has(Judge):
        return ["the oracle is not installed"]
    verdict = judges.service(Judge).judge(stored)
    return [] if verdict.balanced else list(verdict.findings)


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# --- the worker ------------------------------------------------------------------------------------------


def once(make: Make, request: dict[str, Any]) -> None:
    """Live one life as a request says, in this process."""
    folder = Path(request["folder"])
    if request["after"]:
        (folder / AFTER).write_text(json.dumps(anyio.run(live_on, make, folder)))
        return
    kill_at = int(Path(os.environ[KILL_POINT]).read_text()) if os.environ.get(KILL_POINT) else 0
    anyio.run(live, make, folder, request["inputs"], kill_at)


def _spawn(make: Make, target: str, request: dict[str, Any]) -> int:
    """Live a life in a process of its own: forked from this warm one where that is possible."""
    if not hasattr(os, "fork"):
        command = [sys.executable, "-m", __name__, target, json.dumps(request)]
        return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(2, 1)  # answers are the parent's
            _die_with_the_caller()
            once(make, request)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _die_with_the_caller() -> None:
    """End this life when standard input ends: nothing is asked while it lasts, so whoever asked for it is gone (C9)."""

    def watch() -> None:
        select.select([0], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="checkrein-caller", daemon=True).start()


def main(arguments: Sequence[str]) -> None:
    """Serve requests from standard input, or live the one life that is given."""
    target = arguments[0]
    try:
        make = load_target(target)
    except CheckreinError as exc:  # its words are enough: none of the target's own code failed
        sys.exit(str(exc))
    if len(arguments) > 1:
        once(make, json.loads(arguments[1]))
        return
    for line in sys.stdin:
        code = _spawn(make, target, json.loads(line))
        print(json.dumps({"code": code}), flush=True)  # noqa: T201 - the answer to the request


if __name__ == "__main__":
    main(sys.argv[1:])
