"""Mutation testing of the core in bounded time: small changes to its code, one each in a forked child.

    python tests/faults/mutation.py --sample 40 --seed 1            # 40 mutants of each module
    python tests/faults/mutation.py --only checkrein.closing        # all of one

A mutant is one changed node of one function (a comparison, a condition, a constant, a dropped statement, a
returned value); its code object replaces the function's. It is killed if small_suite.py is red, or the module's
own tests are, or it hangs. Survivors are printed with file, line and change. POSIX only (fork).
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import io
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TESTS = {
    "checkrein_loop.loop": ["tests/agent_loop"],
    "checkrein_loop.generate": ["tests/agent_loop"],
    "checkrein_loop.tools": ["tests/agent_loop"],
    "checkrein_loop.execute": ["tests/agent_loop"],
    "checkrein_loop.inbox": ["tests/agent_loop"],
    "checkrein_loop.agent": ["tests/agent_loop"],
    "checkrein_loop.driven": ["tests/agent_loop"],
    "checkrein_loop.receipt": ["tests/agent_loop"],
    "checkrein_loop.prepare": ["tests/agent_loop"],
    "checkrein_loop.nested": ["tests/agent_loop"],
    "checkrein_loop.ends": ["tests/agent_loop"],
    "checkrein_loop.dispose": ["tests/agent_loop"],
    "checkrein_loop.rewrite": ["tests/agent_loop"],
    "checkrein.derive": ["tests/harness/session", "tests/agent_loop"],
    "checkrein.settling": ["tests/agent_loop"],
    "checkrein.wrapping": ["tests/harness/hooks", "tests/agent_loop"],
    "checkrein.requests": ["tests/harness/session", "tests/agent_loop"],
    "checkrein.hooks": ["tests/harness/hooks", "tests/agent_loop"],
    "checkrein.session": ["tests/harness/session"],
    "checkrein.closing": ["tests/harness/session"],
    "checkrein.rules": ["tests/harness/session"],
    "checkrein.around": ["tests/harness/hooks"],
    "checkrein.live": ["tests/agent_loop/test_streams.py", "tests/agent_loop/test_feeds.py", "tests/harness"],
    "checkrein.feed": ["tests/agent_loop/test_feeds.py"],
    "checkrein.output": ["tests/harness/tools"],
    "checkrein.toolbase": ["tests/harness/tools"],
    "checkrein.schema": ["tests/harness/tools"],
    "checkrein.hints": ["tests/harness/tools"],
    "checkrein.recovery": ["tests/harness/recovery", "tests/harness/session"],
    "checkrein_permissions.commands": ["tests/plugins/permissions"],
    "checkrein_permissions.paths": ["tests/plugins/permissions"],
    "checkrein_permissions.plugin": ["tests/plugins/permissions"],
    "checkrein_budget.plugin": ["tests/plugins/budget"],
    "checkrein_budget.repeats": ["tests/plugins/budget"],
    "checkrein_retry.policy": ["tests/plugins/retry"],
    "checkrein_compaction.trim": ["tests/plugins/compaction"],
    "checkrein_files.workspace": ["tests/plugins/files"],
}
SUITE_S, TESTS_S = 40, 150
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """The mutants of one node."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and len(new.ops) == 1 and type(new.ops[0]) in _SWAPS:
        new.ops = [_SWAPS[type(new.ops[0])]()]  # type: ignore[list-item]
        yield new
    elif isinstance(new, (ast.BoolOp, ast.BinOp)) and type(new.op) in _SWAPS:
        new.op = _SWAPS[type(new.op)]()  # type: ignore[assignment]
        yield new
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        yield new.operand
    elif isinstance(new, (ast.If, ast.While, ast.IfExp)):
        new.test = ast.UnaryOp(ast.Not(), new.test)
        yield new
    elif isinstance(new, ast.Constant) and type(new.value) is bool:
        yield ast.Constant(not new.value)
    elif isinstance(new, ast.Constant) and type(new.value) is int:
        yield ast.Constant(new.value + 1)
    elif (isinstance(new, ast.Expr) and isinstance(new.value, (ast.Call, ast.Await))) or (
        isinstance(new, (ast.Assign, ast.AugAssign))
        and isinstance(new.targets[0] if isinstance(new, ast.Assign) else new.target, (ast.Attribute, ast.Subscript))
    ):
        yield ast.Pass()
    elif isinstance(new, ast.Return) and new.value is not None and not isinstance(new.value, ast.Constant):
        yield ast.Return(ast.Constant(None))
    elif isinstance(new, ast.Raise):
        yield ast.Pass()


class Mutant:
    """One change: where it is, and the code that has it."""

    def __init__(self, module: str, function: str, tree: ast.Module, path: tuple[Any, ...], new: ast.AST) -> None:
        self.module, self.function, self._tree, self._path = module, function, tree, path
        old = _at(tree, path)
        self.line: int = old.lineno  # type: ignore[attr-defined]
        self._new = ast.copy_location(new, old)
        self.what = f"{_short(old)}  ->  {_short(new)}"

    def apply(self) -> bool:
        """Put the changed code in the place of the function's; False if the two do not fit."""
        tree = copy.deepcopy(self._tree)
        parent = _at(tree, self._path[:-1]) if not isinstance(self._path[-1], int) else _at(tree, self._path[:-2])
        if isinstance(self._path[-1], int):
            getattr(parent, self._path[-2])[self._path[-1]] = self._new
        else:
            setattr(parent, self._path[-1], self._new)
        module = importlib.import_module(self.module)
        code = compile(ast.fix_missing_locations(tree), module.__file__ or "", "exec", dont_inherit=True)
        function = _function(module, self.function)
        for part in self.function.split("."):
            code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part)
        if function is None or function.__code__.co_freevars != code.co_freevars:
            return False
        function.__code__ = code
        return True


def _at(tree: ast.AST, path: tuple[Any, ...]) -> ast.AST:
    node: Any = tree
    for step in path:
        node = node[step] if isinstance(step, int) else getattr(node, step)
    return node  # type: ignore[no-any-return]


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
    return text if len(text) < 90 else text[:87] + "..."


def _function(module: ModuleType, qualname: str) -> FunctionType | None:
    owner: Any = module
    for part in qualname.split("."):
        owner = vars(owner).get(part) if owner is not None else None
    owner = (
        getattr(owner, "fget", None) or getattr(owner, "__func__", None) or getattr(owner, "__wrapped__", None) or owner
    )
    return owner if isinstance(owner, FunctionType) else None


def mutants_of(name: str) -> list[Mutant]:
    """Every mutant of a module's functions and methods."""
    module = importlib.import_module(name)
    tree = ast.parse(Path(module.__file__ or "").read_text())
    out: list[Mutant] = []

    def walk(node: ast.AST, path: tuple[Any, ...], function: str) -> None:
        for field, value in ast.iter_fields(node):
            items = (
                [((*path, field, i), v) for i, v in enumerate(value)]
                if isinstance(value, list)
                else [((*path, field), value)]
            )
            for where, child in items:
                if not isinstance(child, ast.AST) or field in ("returns", "annotation", "decorator_list", "args"):
                    continue
                inside = function
                if not function or function[0] == "<":
                    if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        inside = function[1:] + child.name
                    elif isinstance(child, ast.ClassDef):
                        inside = f"<{child.name}."
                if inside and inside[0] != "<" and hasattr(child, "lineno"):
                    out.extend(Mutant(name, inside, tree, where, new) for new in changes(child))
                walk(child, where, inside)

    walk(tree, (), "")
    return out


def verdict(mutant: Mutant | None, stage: str) -> str:
    """Run one mutant in a child: killed, survived, timeout or unfit."""
    pid = os.fork()
    if pid == 0:
        _child(mutant, stage)
    deadline = time.monotonic() + (SUITE_S if stage == "suite" else TESTS_S) + 5
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return {0: "survived", 3: "unfit", -signal.SIGALRM: "timeout"}.get(code, "killed")
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "timeout"


def _child(mutant: Mutant | None, stage: str) -> None:
    signal.alarm(SUITE_S if stage == "suite" else TESTS_S)
    code = 1
    try:
        with open(os.devnull, "w") as null, redirect_stdout(null), redirect_stderr(io.StringIO()):
            if mutant is not None and not mutant.apply():
                os._exit(3)
            if stage == "suite":
                from small_suite import suite

                code = 1 if suite() else 0
            else:
                import pytest

                os.chdir(ROOT)
                args = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", *stage.split()]
                code = 0 if pytest.main(args) in (0, 5) else 1
    except BaseException:
        code = 1
    finally:
        os._exit(code)


def main() -> int:
    """Sample mutants, run them, and print the score."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=20, help="mutants of each module (20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="one module, all its mutants")
    parser.add_argument("--minutes", type=float, default=20.0, help="begin no mutant after this long (20)")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    importlib.import_module("small_suite")
    importlib.import_module("pytest")
    if verdict(None, "suite") != "survived":
        print("the suite is red without any mutant")
        return 2
    order, began = random.Random(options.seed), time.monotonic()
    chosen: list[Mutant] = []
    for name in [options.only] if options.only else list(TESTS):
        found = mutants_of(name)
        chosen += found if options.only else order.sample(found, min(options.sample, len(found)))
        print(f"{name}: {len(found)} mutants in all", flush=True)
    order.shuffle(chosen)  # so that the time's end is as far for each module
    green: dict[str, bool] = {}
    score: dict[str, list[int]] = {}
    for mutant in chosen:
        if time.monotonic() - began > options.minutes * 60:
            break
        tests = " ".join(TESTS.get(mutant.module, ["tests/agent_loop"]))
        if tests not in green:
            green[tests] = verdict(None, tests) == "survived"
            print(f"{tests} without a mutant: {'green' if green[tests] else 'red, so it kills nothing'}", flush=True)
        result = verdict(mutant, "suite")
        if result == "survived" and green[tests]:
            result = verdict(mutant, tests)
        if result == "unfit":
            continue
        here = score.setdefault(mutant.module, [0, 0])
        here[0] += result != "survived"
        here[1] += 1
        if result == "survived":
            print(f"survived: {mutant.module}:{mutant.line} {mutant.function}: {mutant.what}", flush=True)
    for name, (killed, tried) in sorted(score.items()):
        print(f"{name}: {killed} of {tried} killed")
    killed, tried = (sum(each[i] for each in score.values()) for i in (0, 1))
    print(f"score: {killed} of {tried}, {100 * killed / max(1, tried):.0f} %, in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
