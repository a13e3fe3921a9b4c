"""Commit of a group's offsets while some brokers do not answer."""

from __future__ import annotations

import pytest

from tubemq_provider.sources.commit_offsets import commit_at_brokers

PLACES = {"a:0": 1, "a:1": 2, "b:0": 3, "c:0": 4}


def tell(offsets: dict[str, int], errors: dict[str, Exception]) -> tuple[list[str], dict[str, str]]:
    """Return the partitions that were asked, and those left out."""
    asked = []

    def one(place: str, _: int) -> None:
        asked.append(place)
        if place in errors:
            raise errors[place]

    left_out = commit_at_brokers(
        offsets,
        one,
        available=PLACES.keys() - {"c:0"},
        absent="gone",
        broker_of=lambda place: place[0],
        unreachable=(ConnectionError,),
        refusals=(PermissionError,),
    )
    return asked, left_out


def test_an_unreachable_broker_is_asked_once_and_affects_only_its_partitions() -> None:
    asked, left_out = tell(PLACES, {"a:0": ConnectionError("away")})
    assert asked == ["a:0", "b:0"]
    assert left_out == {"a:0": "away", "a:1": "away", "c:0": "gone"}


def test_a_refusal_affects_its_partition_only() -> None:
    asked, left_out = tell(PLACES, {"a:0": PermissionError("no")})
    assert asked == ["a:0", "a:1", "b:0"]
    assert left_out == {"a:0": "no", "c:0": "gone"}


def test_no_commit_at_all_is_an_error_and_other_errors_raise_at_once() -> None:
    with pytest.raises(ConnectionError):
        tell({"a:0": 1, "b:0": 3}, {p: ConnectionError(p) for p in ("a:0", "b:0")})
    with pytest.raises(KeyError):
        tell(PLACES, {"a:1": KeyError("a mistake")})


def test_removed_partitions_are_no_error() -> None:
    assert tell({"c:0": 4}, {}) == ([], {"c:0": "gone"})
