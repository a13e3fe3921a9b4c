"""Limits of names and filters hold for what is given to a consumer directly, on both shells."""

from __future__ import annotations

from typing import Any

import pytest

from tubemq_client import AssignedConsumer, BoundStart, ClientSettings, Consumer, aio, errors

SETTINGS = ClientSettings(masters=(("m1", 8715),))
BOTH = [Consumer, aio.Consumer]
ALL = [*BOTH, AssignedConsumer, aio.AssignedConsumer]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
@pytest.mark.parametrize(
    ("group", "topics", "problem"),
    [
        ("loader", {"t" * 65: []}, "at most 64"),
        ("loader", {"1abc-x": []}, "is not a topic name"),
        ("loader", {"té": []}, "is not a topic name"),
        ("té", {"orders": []}, "is not a group name"),
        ("g" * 1025, {"orders": []}, "at most 1024"),
        ("loader", {"orders": ["f" * 257]}, "at most 256"),
        ("loader", {"orders": [f"f{n}" for n in range(501)]}, "501 filters, at most 500"),
        ("loader", {}, "name at least one"),
    ],
)
def test_what_is_beyond_a_limit_is_refused_before_anything_is_sent(
    kind: Any, group: str, topics: dict[str, list[str]], problem: str
) -> None:
    with pytest.raises(errors.ConfigError, match=problem):
        kind(SETTINGS, group, topics)


@pytest.mark.parametrize("kind", BOTH)
def test_a_session_key_has_a_limit_too(kind: Any) -> None:
    with pytest.raises(errors.ConfigError, match="session_key has 1025 characters"):
        kind(SETTINGS, "loader", {"orders": []}, bound=BoundStart("k" * 1025, 1))


@pytest.mark.parametrize("kind", ALL)
def test_what_is_just_within_is_taken(kind: Any) -> None:
    filters = [f"{n:0256}" for n in range(500)]
    kind(SETTINGS, "g" * 1024, {"t" * 64: filters, "__offset_history__": []})
