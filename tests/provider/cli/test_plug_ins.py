"""The command that lists plug-ins."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tubemq_provider import extensions
from tubemq_provider.cli import plug_ins

pytestmark = pytest.mark.airflow


def test_words_are_listed_with_their_distribution_and_broken_ones_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = tmp_path / "bad-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[tubemq_provider.sinks]\nbad = no_such_module:make\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    extensions._points.cache_clear()
    show = inspect.unwrap(plug_ins.show_plugins)
    try:
        assert show(SimpleNamespace(output="json", kind="sink")) == 1
        rows = {row["word"]: row for row in json.loads(capsys.readouterr().out)}
        assert show(SimpleNamespace(output="json", kind="engine")) is None
    finally:
        extensions._points.cache_clear()
    assert rows["delta"] == {
        "kind": "sink",
        "word": "delta",
        "distribution": "airflow-provider-tubemq",
        "interface": 1,
        "state": "ok",
        "problem": "",
    }
    assert (rows["bad"]["distribution"], rows["bad"]["state"]) == ("bad 1.0", "failed")
    assert "uninstall bad" in rows["bad"]["problem"]
