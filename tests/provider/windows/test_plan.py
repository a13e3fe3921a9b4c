"""Plans and ids: one spelling, one hash, and documents that say everything that is wrong."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_provider.windows.canonical import (
    basic_instant,
    canonical_json,
    parse_instant,
    rfc3339,
)
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.plan import WindowPlan, WindowScope

SCOPE = WindowScope("c1", "orders", "g1", "parquet:/lake/orders", filters=("b", "a"), epoch="7")

keys = st.builds("{}:{}".format, st.integers(0, 5), st.sampled_from([0, 1, 2, 10000, 10002]))
offsets = st.integers(0, 2**60 // 28).map(lambda count: count * 28)
ranges = st.dictionaries(
    keys, st.tuples(offsets, offsets).map(lambda pair: (min(pair), max(pair))), min_size=1
)


@given(ranges, st.integers(1, 10**9))
def test_a_plan_survives_any_json_store(by_key: dict[str, tuple[int, int]], seq: int) -> None:
    plan = WindowPlan.cursor(SCOPE, seq, by_key, joined=(min(by_key),), has_more=True)
    text = json.dumps(plan.to_document())
    shuffled = dict(sorted(json.loads(text).items(), reverse=True))
    again = WindowPlan.from_document(shuffled)
    assert again == plan
    assert again.hash == plan.hash
    assert again.canonical() == plan.canonical()


@given(ranges)
def test_the_order_of_partitions_does_not_matter(by_key: dict[str, tuple[int, int]]) -> None:
    backwards = dict(reversed(by_key.items()))
    assert WindowPlan.explicit(SCOPE, backwards) == WindowPlan.explicit(SCOPE, by_key)


def test_window_ids_name_kind_number_or_interval_and_scope() -> None:
    one = {"1:0": (0, 28)}
    start = datetime(2026, 11, 21, 8, tzinfo=UTC)
    zone = timezone(timedelta(hours=2))
    time = WindowPlan.for_time(SCOPE, start.astimezone(zone), start + timedelta(hours=1), one)
    assert time.window_id == f"t-20261121T080000Z-20261121T090000Z-{SCOPE.scope_hash}"
    assert time.time == ("2026-11-21T08:00:00Z", "2026-11-21T09:00:00Z")
    assert WindowPlan.cursor(SCOPE, 12, one).window_id == f"c-12-{SCOPE.scope_hash}"
    explicit = WindowPlan.explicit(SCOPE, one)
    assert explicit.window_id == f"x-{explicit.hash}"
    for plan in (time, explicit):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", plan.window_id)


@pytest.mark.parametrize(
    "other",
    [
        WindowScope("c2", "orders", "g1", "parquet:/lake/orders", ("a", "b"), "7"),
        WindowScope("c1", "other", "g1", "parquet:/lake/orders", ("a", "b"), "7"),
        WindowScope("c1", "orders", "g2", "parquet:/lake/orders", ("a", "b"), "7"),
        WindowScope("c1", "orders", "g1", "parquet:/lake/x", ("a", "b"), "7"),
        WindowScope("c1", "orders", "g1", "parquet:/lake/orders", ("a",), "7"),
        WindowScope("c1", "orders", "g1", "parquet:/lake/orders", ("a", "b"), "8"),
    ],
)
def test_every_part_of_the_scope_tells_windows_apart(other: WindowScope) -> None:
    assert other.scope_hash != SCOPE.scope_hash
    one = {"1:0": (0, 28)}
    assert WindowPlan.explicit(other, one).window_id != WindowPlan.explicit(SCOPE, one).window_id


def test_filters_are_a_set() -> None:
    assert WindowScope("c1", "orders", "g1", "parquet:/lake/orders", ("a", "b", "a"), "7") == SCOPE


def test_a_text_is_one_filter() -> None:
    scope = WindowScope("c1", "orders", "g1", "parquet:/lake/orders", "paid")  # type: ignore[arg-type]
    assert scope == WindowScope("c1", "orders", "g1", "parquet:/lake/orders", ("paid",))


def test_the_hash_covers_what_is_read_and_nothing_else() -> None:
    plan = WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 56)})
    noted = WindowPlan.cursor(
        SCOPE, 1, {"1:0": (0, 56)}, gaps={"1:0": ((0, 28),)}, has_more=True, absent=("1:0",)
    )
    assert noted.hash == plan.hash
    assert WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 84)}).hash != plan.hash
    assert WindowPlan.cursor(SCOPE, 2, {"1:0": (0, 56)}).hash != plan.hash


def test_reads_leave_out_gaps_and_empty_ranges() -> None:
    plan = WindowPlan.cursor(
        SCOPE,
        1,
        {"1:10": (0, 28), "1:2": (0, 280), "1:3": (28, 28)},
        gaps={"1:2": ((56, 112), (140, 280))},
    )
    assert [(r.partition.key, r.start, r.end) for r in plan.reads()] == [
        ("1:2", 0, 56),
        ("1:2", 112, 140),
        ("1:10", 0, 28),
    ]
    assert plan.entries == 4


def test_a_plan_lists_all_its_problems() -> None:
    with pytest.raises(DocumentError) as caught:
        WindowPlan.cursor(
            SCOPE, 1, {"1:0": (1, 28), "zero": (0, 0), "1:1": (56, 28)}, resets={"9:9": 0}
        )
    assert len(caught.value.problems) == 4


def test_a_document_lists_all_its_problems() -> None:
    good = WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 28)}).to_document()
    bad = good | {"topic": 5, "seq": "one", "ranges": {"1:0": [0.0, 28]}, "filters": "a"}
    del bad["group"]
    with pytest.raises(DocumentError) as caught:
        WindowPlan.from_document(bad)
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": 3}, "version 3"),
        ({"ranges": {"1:0": [0, 56]}}, "hash"),
        ({"kind": "cursed"}, "cursed"),
        ({"id": "c-2-0000000000"}, "seq 1"),
        ({"ranges": {}}, "no partition"),
    ],
)
def test_a_changed_document_is_refused(change: dict[str, object], message: str) -> None:
    good = WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 28)}).to_document()
    with pytest.raises(DocumentError, match=message):
        WindowPlan.from_document(good | change)


@pytest.mark.parametrize("value", [1.0, True, None, {"a": [1.5]}, {1: 2}, {"a": b"x"}])
def test_canonical_json_refuses_what_has_more_than_one_spelling(value: object) -> None:
    with pytest.raises(TypeError):
        canonical_json(value)


@given(st.datetimes(timezones=st.timezones()))
def test_instants_survive_their_spelling(instant: datetime) -> None:
    try:
        utc = instant.astimezone(UTC)
    except OverflowError:
        return
    assert parse_instant(rfc3339(instant)) == utc
    assert re.fullmatch(r"\d{8}T\d{6}(\.\d{6})?Z", basic_instant(instant))


@pytest.mark.parametrize("text", ["2026-11-21", "2026-11-21T08:00:00", "now", ""])
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_instant(text)


def test_records_of_a_log_that_partitions_share_are_counted_once() -> None:
    """A store of TubeMQ: two partitions, one log. Another broker's partition has its own."""
    scope = WindowScope("test", "orders", "lake", "/lake")
    ranges = {"1:0": (0, 280), "1:1": (140, 420), "2:0": (0, 28)}
    plan = WindowPlan.cursor(scope, 1, ranges)
    assert plan.entries == 21
    assert plan.record_limit == 16
