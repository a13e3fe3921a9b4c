"""Flow-control rules, exact to the minute, the byte and the millisecond."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import _pb, errors
from tubemq_client._core.flow_control import (
    MIB,
    Allowance,
    DataLimit,
    EmptyPause,
    Fetched,
    FetchPauses,
    FlowControl,
    FlowRules,
    Pace,
    reply_delay_ms,
)

EXAMPLE = (
    '[{"type":0,"rule":[{"start":"08:00","end":"17:59","dltInM":1024,"limitInM":20,'
    '"freqInMs":1000}]},'
    '{"type":1,"rule":[{"zeroCnt":3,"freqInMs":300},{"zeroCnt":8,"freqInMs":1000}]},'
    '{"type":3,"rule":[{"normFreqInMs":0,"filterFreqInMs":100,"minDataFilterFreqInMs":400}]}]'
)

MIDNIGHT_UTC = 1_700_006_400_000
"""2023-11-15T00:00:00Z, which is 08:00 in Beijing."""

MINUTE, HOUR = 60_000, 3_600_000


def data_rules(*, limit_mib: int = 12, lag: int = 21, wait_ms: int = 700) -> FlowRules:
    item = {
        "start": "00:00",
        "end": "24:00",
        "dltInM": lag,
        "limitInM": limit_mib,
        "freqInMs": wait_ms,
    }
    return FlowRules.parse(json.dumps([{"type": 0, "rule": [item]}]))


# -- the format ------------------------------------------------------------------------------------


def test_the_example_of_the_documentation() -> None:
    rules = FlowRules.parse(EXAMPLE)
    assert rules.limits == (DataLimit(800, 1759, 1024, 20 * MIB, 1000),)
    assert rules.empty_pauses == (EmptyPause(8, 1000), EmptyPause(3, 300))
    assert rules.fetch_pauses == FetchPauses(0, 100, 400)


def test_no_rules_and_types_of_other_versions() -> None:
    assert FlowRules.parse("[]") == FlowRules()
    assert FlowRules.parse('[{"type":2,"rule":[]},{"type":7}]') == FlowRules()


def test_a_later_entry_of_a_type_replaces_the_earlier() -> None:
    text = (
        '[{"type":1,"rule":[{"zeroCnt":1,"freqInMs":10}]},'
        '{"type":1,"rule":[{"zeroCnt":2,"freqInMs":20}]}]'
    )
    assert FlowRules.parse(text).empty_pauses == (EmptyPause(2, 20),)


def test_every_mistake_is_listed_with_its_location() -> None:
    text = json.dumps(
        [
            {"type": 0, "rule": [{"start": "18:00", "end": "9:61", "dltInM": 20}]},
            {"type": 1, "rule": [{"zeroCnt": 0, "freqInMs": -1}, 5]},
            {"type": 3, "rule": [{"filterFreqInMs": 500_000}]},
            {"rule": []},
            {"type": 1, "rule": []},
        ]
    )
    with pytest.raises(errors.ConfigError) as caught:
        FlowRules.parse(text)
    assert caught.value.problems == [
        "[0].rule[0]: end '9:61' is no time of day HH:MM",
        "[0].rule[0]: dltInM 20 is not at least 21",
        "[0].rule[0]: no limitInM",
        "[0].rule[0]: no freqInMs",
        "[1].rule[0]: zeroCnt 0 is not at least 1",
        "[1].rule[0]: freqInMs -1 is not at least 0",
        "[1].rule[1]: not an object",
        "[2].rule[0]: filterFreqInMs and minDataFilterFreqInMs must be given together",
        "[2].rule[0]: filterFreqInMs 500000 is not within 0 to 300000",
        '[3]: needs an integer "type"',
        '[4]: needs a list "rule" with at least one item',
    ]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "rule", "start", "end", "dltInM", "limitInM", "freqInMs", "zeroCnt"]
            )
            | st.text(max_size=4),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(JSON_VALUES.map(json.dumps) | st.text(max_size=40))
def test_any_text_is_rules_or_a_configuration_error(text: str) -> None:
    with contextlib.suppress(errors.ConfigError):
        FlowRules.parse(text)


# -- when a rule holds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after_midnight_utc", "holds"),
    [
        (-1, False),
        (0, True),  # 08:00 in Beijing
        (9 * HOUR + 59 * MINUTE + 59_999, True),  # the last moment of 17:59
        (10 * HOUR, False),
        (-24 * HOUR, True),
    ],
)
def test_hours_are_beijing_time_and_include_their_last_minute(
    after_midnight_utc: int, holds: bool
) -> None:
    limit = FlowRules.parse(EXAMPLE).limit(2000 * MIB, MIDNIGHT_UTC + after_midnight_utc)
    assert (limit is not None) is holds


def test_lag_is_counted_in_mebibytes_and_must_exceed_the_threshold() -> None:
    rules = FlowRules.parse(EXAMPLE)
    assert rules.limit(1024 * MIB, MIDNIGHT_UTC) is None
    assert rules.limit(1024 * MIB + 1, MIDNIGHT_UTC) is not None
    assert rules.limit(1025, MIDNIGHT_UTC, lag_unit=1) is not None


def test_the_earliest_window_wins_where_windows_overlap() -> None:
    items = [
        {"start": start, "end": "23:59", "dltInM": 21, "limitInM": limit, "freqInMs": 200}
        for start, limit in (("08:00", 1), ("00:00", 2))
    ]
    rules = FlowRules.parse(json.dumps([{"type": 0, "rule": items}]))
    data_limit = rules.limit(22 * MIB, MIDNIGHT_UTC)
    assert data_limit is not None
    assert data_limit.limit_bytes == 2 * MIB


def test_the_largest_threshold_of_empty_fetches_wins() -> None:
    rules = FlowRules.parse(EXAMPLE)
    assert [rules.empty_wait_ms(n) for n in (2, 3, 7, 8, 100)] == [None, 300, 300, 1000, 1000]


# -- ids -------------------------------------------------------------------------------------------


def told(**fields: Any) -> Any:
    return _pb.OpsTaskInfo(**fields)


def test_rules_come_change_and_go_with_their_ids() -> None:
    control = FlowControl()
    control.learn(told(defFlowCheckId=5, defFlowControlInfo=EXAMPLE))
    control.learn(told(groupFlowCheckId=1, groupFlowControlInfo="[]", qryPriorityId=301))
    assert control.default.limits
    assert (control.default_id, control.group_id, control.priority) == (5, 1, 301)
    control.learn(told(defFlowCheckId=5, defFlowControlInfo=" "))
    assert control.default.limits, "the same id says nothing new"
    control.learn(told(defFlowCheckId=-2, defFlowControlInfo=" ", groupFlowCheckId=-2))
    assert (control.default, control.default_id) == (FlowRules(), -2), "switched off"


def test_unparsable_rules_change_nothing_and_are_requested_again() -> None:
    control = FlowControl()
    control.learn(told(defFlowCheckId=5, defFlowControlInfo=EXAMPLE))
    control.learn(told(defFlowCheckId=6, defFlowControlInfo="{"))
    request = told()
    control.fill(request)
    assert control.default.limits
    assert (request.defFlowCheckId, request.groupFlowCheckId) == (5, -2)
    assert not request.HasField("qryPriorityId")


def test_the_group_comes_first_and_the_cluster_fills_in() -> None:
    control = FlowControl(default=FlowRules.parse(EXAMPLE), group=data_rules(limit_mib=1))
    limit = control.limit(2000 * MIB, MIDNIGHT_UTC)
    assert limit is not None
    assert limit.limit_bytes == MIB
    assert control.empty_wait_ms(3) == 300
    assert control.fetch_pauses == FetchPauses(0, 100, 400)
    own = FlowRules(empty_pauses=(EmptyPause(50, 5),))
    assert FlowControl(control.default, own).empty_wait_ms(3) is None


# -- pace ------------------------------------------------------------------------------------------


def test_without_rules_only_the_replys_wait_applies() -> None:
    pace = Pace(FlowControl())
    for n in range(100):
        fetched = Fetched(200, MIB, lag_bytes=2**40)
        assert pace.delay_ms(fetched, n, MIDNIGHT_UTC) == 0
    assert pace.delay_ms(Fetched(404, otherwise_ms=400), 100, MIDNIGHT_UTC) == 400
    assert pace.delay_ms(Fetched(452, otherwise_ms=900), 100, MIDNIGHT_UTC) == 900


def test_a_slice_gets_a_twelfth_and_a_minute_all() -> None:
    """12 MiB a minute are 1 MiB in 5 s; a reader of 1 MiB batches gets 1 in each slice."""
    pace = Pace(FlowControl(default=data_rules(limit_mib=12)))
    behind = Fetched(200, MIB, lag_bytes=2000 * MIB)
    now = 1_000
    assert pace.delay_ms(behind, now, MIDNIGHT_UTC) == 0, "the batch that begins a minute is free"
    assert pace.delay_ms(behind, now + 10, MIDNIGHT_UTC) == 700
    assert pace.delay_ms(behind._replace(size=0), now + 5_000, MIDNIGHT_UTC) == 700
    assert pace.delay_ms(behind._replace(size=MIB - 1), now + 5_001, MIDNIGHT_UTC) == 0, (
        "the batch that ends a slice is not counted in the next"
    )
    assert pace.delay_ms(behind._replace(size=11 * MIB), now + 5_002, MIDNIGHT_UTC) == 700
    assert pace.delay_ms(behind, now + 59_000, MIDNIGHT_UTC) == 700, "the minute is used up"
    assert pace.delay_ms(behind, now + 60_001, MIDNIGHT_UTC) == 0


def test_an_exempt_reply_does_not_wait() -> None:
    pace = Pace(FlowControl(default=data_rules(limit_mib=0)))
    behind = Fetched(200, 1, lag_bytes=2000 * MIB)
    assert pace.delay_ms(behind, 0, MIDNIGHT_UTC) == 700, "a limit of 0 slows every fetch"
    assert pace.delay_ms(behind._replace(exempt=True), 1, MIDNIGHT_UTC) == 0


def test_empty_fetches_in_a_row_slow_down_and_data_ends_it() -> None:
    pace = Pace(FlowControl(default=FlowRules.parse(EXAMPLE)))
    empty = Fetched(404, otherwise_ms=400)
    waits = [pace.delay_ms(empty, n, MIDNIGHT_UTC) for n in range(9)]
    assert waits == [400, 400, 300, 300, 300, 300, 300, 1000, 1000]
    assert pace.delay_ms(Fetched(200, 1, lag_bytes=0), 10, MIDNIGHT_UTC) == 0
    assert pace.delay_ms(empty, 11, MIDNIGHT_UTC) == 400


@pytest.mark.parametrize(
    ("filtered", "slow", "wait"), [(False, False, 5), (True, False, 100), (True, True, 400)]
)
def test_pauses_after_data(filtered: bool, slow: bool, wait: int) -> None:
    control = FlowControl(default=FlowRules(fetch_pauses=FetchPauses(5, 100, 400)))
    pace = Pace(control, filtered=filtered)
    assert pace.delay_ms(Fetched(200, 1, 0, slow=slow), 0, MIDNIGHT_UTC) == wait


@pytest.mark.parametrize(
    ("code", "wait"),
    [(200, 0), (301, 200), (403, 2000), (404, 250), (452, 77), (500, 300), (503, 300), (599, 300)],
)
def test_waits_of_codes(code: int, wait: int) -> None:
    assert reply_delay_ms(code, 77, not_found_ms=250) == wait


@given(
    st.lists(st.tuples(st.integers(0, 4 * MIB), st.integers(0, 7_000)), max_size=80),
    st.integers(0, 40),
)
def test_a_reader_that_obeys_its_waits_stays_within_the_limit(
    batches: list[tuple[int, int]], limit_mib: int
) -> None:
    """Each minute delivers at most the limit, its first batch and the rest of the last batch.

    A wait means a whole minute here, so it ends the running one.
    """
    pace = Pace(FlowControl(default=data_rules(limit_mib=limit_mib, wait_ms=MINUTE + 1)))
    now, in_minute, minute_end = 0, 0, -1
    for size, gap in batches:
        now += gap
        in_minute = 0 if now > minute_end else in_minute + size
        minute_end = now + MINUTE if now > minute_end else minute_end
        wait = pace.delay_ms(Fetched(200, size, lag_bytes=100 * MIB), now, MIDNIGHT_UTC)
        assert wait > 0 or in_minute < limit_mib * MIB
        now += wait


# -- a broker's side -------------------------------------------------------------------------------


def test_the_trace_of_a_genuine_broker() -> None:
    """Measured: rule of 2 MiB a minute and 700 ms, records of 500 000 bytes. One record in each
    slice of 5 s; after 2 MiB only refusals, until the next minute."""
    rules, record = data_rules(limit_mib=2), 500_052
    allowance = Allowance()
    served = []
    for second in range(70):
        now = second * 1_000
        if not allowance.refused_ms(rules, 488, now, MIDNIGHT_UTC):
            allowance.sent(record)
            served.append(second)
    assert served == [0, 6, 12, 18, 24, 61, 67]
    assert Allowance().refused_ms(rules, 488, 0, MIDNIGHT_UTC) == 0
    assert allowance.refused_ms(rules, 488, 69_500, MIDNIGHT_UTC) == 700
    assert allowance.budget(512 * 1024) == 2 * MIB // 12


def test_a_limit_of_nothing_refuses_from_the_start_and_no_rule_never() -> None:
    none = data_rules(limit_mib=0)
    assert Allowance().refused_ms(none, 488, 0, MIDNIGHT_UTC) == 700
    assert Allowance().refused_ms(none, 21, 0, MIDNIGHT_UTC) == 0, "not behind enough"
    assert Allowance().refused_ms(FlowRules(), 2**40, 0, MIDNIGHT_UTC) == 0
    assert Allowance().budget(1000) == 1000
