"""The model's binary, as `make model` builds it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

BINARY = Path(__file__).parents[4] / "models" / "target" / "release" / "window-model"


def judged(traces: Iterable[dict[str, Any]]) -> list[str]:
    """Return what the model says of each trace: ``accepted``, or ``rejected: …``.

    Skip the test where the model is not built."""
    if not BINARY.exists():
        pytest.skip("the model is not built here; `make model` builds it, and needs cargo")
    text = "".join(json.dumps(trace) + "\n" for trace in traces)
    done = subprocess.run(
        [BINARY, "accept"], input=text, capture_output=True, text=True, check=True, timeout=900
    )
    return done.stdout.splitlines()
