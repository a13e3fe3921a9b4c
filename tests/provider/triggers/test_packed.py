"""Offsets of many partitions in a trigger's arguments."""

from __future__ import annotations

import json
import zlib
from base64 import b85encode

import pytest

from tubemq_provider.triggers import _wait

pytestmark = pytest.mark.airflow


def packed(offsets: dict[str, int], *, cut: int = 0) -> dict[str, str]:
    data = zlib.compress(json.dumps(offsets).encode(), 9)
    return {"zlib": b85encode(data[: len(data) - cut]).decode()}


def test_packed_offsets_are_unpacked_unchanged() -> None:
    offsets = {f"1:{number}": number for number in range(1_000)}
    assert _wait.unpacked(packed(offsets)) == offsets


def test_oversized_or_truncated_offsets_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_wait, "_MOST_UNPACKED", 1_000)
    for document in (packed({"x" * 2_000: 1}), packed({"a": 1}, cut=3)):
        with pytest.raises(ValueError, match="no end within 1000 bytes"):
            _wait.unpacked(document)
