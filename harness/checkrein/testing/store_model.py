"""The store contract as a Hypothesis state machine: any order of acts against a model of lists.

The single checks are store_kit.py, how a store is described to the kit is store_case.py.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from checkrein.errors import SessionLocked, SessionNotFound, StoreError
from checkrein.recovery import recover, reopen
from checkrein.store import Store, Writer

from .store_case import StoreCase, sample_lines

__all__ = ["store_machine"]

NAMES = ("a", "b", "c")
LINES = sample_lines(400)


def store_machine(case: StoreCase) -> type[RuleBasedStateMachine]:
    """Return the state machine of a store; `store_machine(case).TestCase` is a test for pytest.

    Args:
        case: how to get at the store.

    Returns:
        A class for `hypothesis.stateful.run_state_machine_as_test`, or its TestCase.
    """

    class StoreMachine(_Machine):
        pass

    StoreMachine.case = case
    return StoreMachine


class _Machine(RuleBasedStateMachine):
    case: StoreCase
    sessions = st.sampled_from(NAMES)

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="checkrein-store-"))
        self.store: Store = self.case.make(self.folder)
        self.kept: dict[str, int] = {}
        self.writers: dict[str, Writer] = {}
        self.blobs: dict[str, dict[str, bytes]] = {}

    def teardown(self) -> None:
        for writer in self.writers.values():
            writer.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(name=sessions, count=st.integers(1, 4))
    def create(self, name: str, count: int) -> None:
        try:
            writer = self.store.create(name, LINES[:count])
        except StoreError:
            assert name in self.kept
            return
        assert name not in self.kept and writer.taken == count
        self.kept[name] = count
        self.writers[name] = writer

    @rule(name=sessions, count=st.integers(0, 5))
    def append(self, name: str, count: int) -> None:
        writer = self.writers.get(name)
        if writer is None:
            return
        upto = min(self.kept[name] + count, len(LINES))
        writer.append(LINES[writer.taken : upto])
        self.kept[name] = writer.taken
        assert writer.taken == upto

    @rule(name=sessions)
    def sync(self, name: str) -> None:
        if name in self.writers:
            self.writers[name].sync()

    @rule(name=sessions)
    def close(self, name: str) -> None:
        writer = self.writers.pop(name, None)
        if writer is not None:
            writer.close()

    @rule(name=sessions)
    def open(self, name: str) -> None:
        try:
            found, writer = reopen(self.store, name)
        except SessionNotFound:
            assert name not in self.kept
            return
        except SessionLocked:
            assert name in self.writers
            return
        assert name not in self.writers and tuple(found.lines) == LINES[: self.kept[name]]
        self.writers[name] = writer

    @rule()
    def another_process(self) -> None:
        self.store = self.case.make(self.folder)

    @rule(name=sessions, junk=st.binary(min_size=1, max_size=40).filter(lambda data: b"\n" not in data))
    def tear(self, name: str, junk: bytes) -> None:
        raw, set_raw = self.case.raw, self.case.set_raw
        if raw is None or set_raw is None or name in self.writers or name not in self.kept:
            return
        if raw(self.store, name).endswith(b"\n"):
            set_raw(self.store, name, raw(self.store, name) + junk)

    @rule(name=sessions, data=st.binary(max_size=30))
    def put_blob(self, name: str, data: bytes) -> None:
        if name in self.kept:
            self.blobs.setdefault(name, {})[self.store.put_blob(name, data)] = data

    @rule(name=sessions, start=st.integers(0, 8))
    def read(self, name: str, start: int) -> None:
        if name in self.kept:
            assert tuple(self.store.read(name, start).lines) == LINES[start : self.kept[name]]

    @invariant()
    def all_is_there(self) -> None:
        infos = {info.id: info for info in self.store.list()}
        assert set(infos) == set(self.kept)
        for name, count in self.kept.items():
            assert recover(self.store.read(name)).lines == list(LINES[:count])
            assert infos[name].events == count
            for sha256, data in self.blobs.get(name, {}).items():
                assert self.store.get_blob(name, sha256) == data
