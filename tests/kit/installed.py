"""Plug-ins that tests install as another distribution would: by an entry point only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tubemq_provider import extensions

__all__ = ["toy_source_installed"]

_EXAMPLES = Path(__file__).parents[2] / "plugins" / "examples"


@contextmanager
def toy_source_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install `tests.kit.toy_source` under the word ``lines``, and the example of an offset store
    under ``files``."""
    installed = folder / "toy-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[tubemq_provider.sources]\nlines = tests.kit.toy_source\n"
        "[tubemq_provider.offset_stores]\nfiles = example_file_store:make\n"
    )
    monkeypatch.syspath_prepend(str(_EXAMPLES / "offset_store"))
    monkeypatch.syspath_prepend(str(folder))
    extensions._points.cache_clear()
    yield
    extensions._points.cache_clear()
