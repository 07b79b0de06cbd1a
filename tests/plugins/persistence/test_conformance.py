"""Both stores against the public conformance kit (R1-R5, X5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from checkrein.memory_store import MemoryStore
from checkrein.store import Store, Writer
from checkrein.testing import StoreCase, fault_sweep, store_conformance, store_machine
from checkrein.testing.store_kit import CHECKS, sample_lines
from checkrein_persistence import FileOps, JsonlStore


def _jsonl_case(**options: int) -> StoreCase:
    def set_raw(store: Store, session_id: str, data: bytes) -> None:
        Path(store.locate(session_id)).write_bytes(data)

    return StoreCase(
        make=lambda folder: JsonlStore(folder / ".checkrein", **options),
        raw=lambda store, session_id: Path(store.locate(session_id)).read_bytes(),
        set_raw=set_raw,
    )


def _memory_case() -> StoreCase:
    stores: dict[Path, MemoryStore] = {}

    def set_raw(store: Store, session_id: str, data: bytes) -> None:
        assert isinstance(store, MemoryStore)
        store.raw(session_id)[:] = data

    def raw(store: Store, session_id: str) -> bytes:
        assert isinstance(store, MemoryStore)
        return bytes(store.raw(session_id))

    return StoreCase(make=lambda folder: stores.setdefault(folder, MemoryStore()), raw=raw, set_raw=set_raw)


def _paged_case() -> StoreCase:
    return _jsonl_case(long_bytes=0, page_bytes=300)


CASES = {"jsonl": _jsonl_case, "jsonl in pages": _paged_case, "memory": _memory_case}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("check", CHECKS)
def test_R1_R3_store_check(case: str, check: str, tmp_path: Path) -> None:
    CHECKS[check](CASES[case](), tmp_path)


@pytest.mark.parametrize("case", CASES)
def test_conformance_runs_every_check(case: str, tmp_path: Path) -> None:
    assert store_conformance(CASES[case](), tmp_path) == list(CHECKS)


def test_conformance_names_what_a_bad_store_breaks(tmp_path: Path) -> None:
    class Forgetful(MemoryStore):
        def open(self, session_id: str):  # type: ignore[no-untyped-def]
            log, writer = super().open(session_id)
            self._kept(session_id).locked = False
            return log, writer

    shared: dict[Path, Forgetful] = {}
    with pytest.raises(AssertionError, match="one_writer"):
        store_conformance(StoreCase(lambda folder: shared.setdefault(folder, Forgetful())), tmp_path)


@pytest.mark.parametrize("case", CASES)
def test_D15_any_order_of_acts_agrees_with_the_model(case: str) -> None:
    run_state_machine_as_test(
        store_machine(CASES[case]()),
        settings=settings(max_examples=60, stateful_step_count=30, suppress_health_check=list(HealthCheck)),
    )


def test_stores_and_writers_fulfil_the_protocols(tmp_path: Path) -> None:
    for store in (JsonlStore(tmp_path / ".checkrein"), MemoryStore()):
        assert isinstance(store, Store)
        writer = store.create("s", sample_lines(1))
        assert isinstance(writer, Writer)
        writer.close()


class HastyOps(FileOps):
    """Syncs nothing, so that some hundred lives take seconds."""

    def fsync(self, fd: int) -> None: ...

    def fsync_dir(self, path: Path) -> None: ...


def test_R4_every_file_operation_failing_in_every_way_loses_nothing() -> None:
    result = fault_sweep(lambda folder, ops: JsonlStore(folder / ".checkrein", ops=ops), HastyOps)
    print(f"{result.runs} runs over {result.operations} operations")
    assert {"mkdir", "open", "write", "fsync", "fsync_dir", "link", "rename", "unlink", "lock", "read"} <= set(
        result.names
    )
    assert result.runs > 400
