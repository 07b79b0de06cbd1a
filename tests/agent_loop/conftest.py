"""What the loop's tests share: their kit on the path, and a run on uvloop where cancellation is concerned."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=["asyncio", "trio", "uvloop"])
def run3(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """As `run`, and on uvloop in real time; what runs here must not need a timer."""
    from checkrein.testing import run_virtual

    def go(fn: Callable[..., Any], *args: Any) -> Any:
        if request.param == "uvloop":
            pytest.importorskip("uvloop")
            return anyio.run(fn, *args, backend="asyncio", backend_options={"use_uvloop": True})
        return run_virtual(fn, *args, backend=request.param)

    return go
