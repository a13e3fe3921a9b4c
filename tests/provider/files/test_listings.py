"""Listings of directories that appear and vanish."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tubemq_provider.files.objects import StoreFailed
from tubemq_provider.sinks._storage import LocalStorage


def test_a_directory_that_goes_away_while_it_is_listed_has_no_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks remove what their tries have left; a task that listed failed with that."""
    storage = LocalStorage(tmp_path)
    for name in ("tries/a/1.json", "tries/b/2.json"):
        storage.create(name, {})
    scan = os.scandir

    def scan_late(path: str) -> object:
        if str(path).endswith("a"):
            storage.remove(["tries/a/1.json"])
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_late)
    assert list(storage.names("tries")) == ["tries/b/2.json"]
    assert list(storage.names("tries/b/2.json")) == []


def test_a_directory_that_may_not_be_read_is_an_error_and_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("windows/a/1.json", {})
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("a"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoreFailed, match="Permission denied"):
        list(storage.names("windows"))
