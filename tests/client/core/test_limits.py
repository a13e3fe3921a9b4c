"""Limits of names and filters hold for direct arguments of a client, in both APIs."""

from __future__ import annotations

from typing import Any

import pytest

from tubemq_client import (
    AssignedConsumer,
    BoundStart,
    ClientSettings,
    Consumer,
    RangeReader,
    aio,
    errors,
)
from tubemq_client._core.limits import check_topic

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
def test_values_beyond_a_limit_are_refused_before_sending(
    kind: Any, group: str, topics: dict[str, list[str]], problem: str
) -> None:
    with pytest.raises(errors.ConfigError, match=problem):
        kind(SETTINGS, group, topics)


@pytest.mark.parametrize("kind", BOTH)
def test_a_session_key_has_a_limit_too(kind: Any) -> None:
    with pytest.raises(errors.ConfigError, match="session_key has 1025 characters"):
        kind(SETTINGS, "loader", {"orders": []}, bound=BoundStart("k" * 1025, 1))


@pytest.mark.parametrize("kind", ALL)
def test_values_at_the_limit_are_accepted(kind: Any) -> None:
    filters = [f"{n:0256}" for n in range(500)]
    kind(SETTINGS, "g" * 1024, {"t" * 64: filters, "__offset_history__": []})


@pytest.mark.parametrize("kind", [RangeReader, aio.RangeReader])
@pytest.mark.parametrize(
    ("group", "filters", "problem"),
    [
        (" ", [], "at most 1020"),
        ("g" * 1021, [], "at most 1020"),
        ("loader", ["f" * 257], "at most 256"),
        ("loader", [f"f{n}" for n in range(501)], "501 filters, at most 500"),
        ("loader", ["a,b"], "'a,b' is blank or contains"),
        ("loader", "paid", "give a list"),
    ],
)
def test_values_of_a_reader_that_no_broker_accepts_are_refused(
    kind: Any, group: str, filters: Any, problem: str
) -> None:
    with pytest.raises(errors.ConfigError, match=problem):
        kind(SETTINGS, group=group, filters=filters)


@pytest.mark.parametrize("kind", [RangeReader, aio.RangeReader])
@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ({"corrupt_records": "Fail"}, "'Fail' is not one of fail, drop, quarantine"),
        ({"corrupt_records": "quarantine"}, "needs a callback: quarantine=…"),
        ({"gap_policy": "Skip"}, "gap_policy: 'Skip' is not one of fail, skip"),
    ],
)
def test_a_policy_that_a_reader_cannot_follow_is_refused(
    kind: Any, policy: dict[str, str], problem: str
) -> None:
    with pytest.raises(errors.ConfigError, match=problem):
        kind(SETTINGS, group="loader", **policy)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("word", ["Fail", "quarantine"])
def test_a_policy_that_a_member_cannot_follow_is_refused(kind: Any, word: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"fail(, | or )drop"):
        kind(SETTINGS, "loader", {"orders": []}, corrupt_records=word)


@pytest.mark.parametrize("kind", [RangeReader, aio.RangeReader])
def test_a_reader_takes_names_that_no_member_may_have(kind: Any) -> None:
    """It registers separate names with brokers, which do not check them."""
    kind(SETTINGS, group="dag.task-1", filters=["f" * 256])


@pytest.mark.parametrize("name", ["", "t" * 65, "1abc-x", "a#b", "té"])
def test_an_invalid_topic_is_refused_before_a_master_is_asked(name: str) -> None:
    with pytest.raises(errors.ConfigError, match="is not a topic name"):
        check_topic(name)
