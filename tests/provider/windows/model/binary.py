"""The model's binary, as `make model` builds it."""

from __future__ import annotations

import json
import subprocess
import tempfile
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
    with tempfile.TemporaryFile("w+") as lines:  # thousands of traces are hundreds of megabytes
        lines.writelines(json.dumps(_with_changes(trace)) + "\n" for trace in traces)
        lines.seek(0)
        done = subprocess.run(
            [BINARY, "accept"], stdin=lines, capture_output=True, text=True, check=True, timeout=900
        )
    return done.stdout.splitlines()


def _with_changes(trace: dict[str, Any]) -> dict[str, Any]:
    """Return `trace` with only those parts after each action that differ from the ones before it,
    as the model reads them: a part that is gone is null."""
    actions, before = [], dict[str, Any]()
    for action in trace["actions"]:
        after = action["after"]
        changes = {name: part for name, part in after.items() if part != before.get(name)}
        changes.update((name, None) for name in before.keys() - after)
        actions.append({**action, "after": changes})
        before = after
    return {**trace, "actions": actions}
