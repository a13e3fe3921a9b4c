"""Offset store ``files``: progress in a directory that all workers share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tubemq_provider.offsets.file import FileOffsetStore


class SharedFiles(FileOffsetStore):
    """Files of progress; samples of ends are not among them."""

    def load_timeline(self) -> None:
        """Return None."""


def make(context: Mapping[str, Any], asset: Any) -> SharedFiles:
    """Return the store of one try of the running task, for the group of `asset`."""
    ti = context["ti"]
    task = f"{ti.dag_id}|{ti.run_id}|{ti.task_id}|{getattr(ti, 'map_index', -1)}"
    return SharedFiles(Path(os.environ["EXAMPLE_STORE"], quote(asset.name, safe="")), task=task)
