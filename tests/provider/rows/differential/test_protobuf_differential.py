"""Protobuf bodies against an encoder that knows the values, and against protobuf's JSON."""

from __future__ import annotations

import pytest

from tests.provider.rows.differential import protobuf

pytest.importorskip("pyarrow")


def test_messages_are_read_as_they_were_encoded_or_refused() -> None:
    count, problems = protobuf.run(3_000, 1, None)
    assert problems[:3] == []
    assert count >= 3_000
