"""The drill in a small size; `drill.py --windows 200` is for a run by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.timeout(1800)
def test_random_windows_are_what_the_console_consumer_reads(kafka: Any, tmp_path: Path) -> None:
    from drill import drill

    assert drill(kafka, tmp_path, windows=8, seed=7, kills=1) == []
