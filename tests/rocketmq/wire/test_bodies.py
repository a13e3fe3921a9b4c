"""JSON bodies, standard and not; runtime info; addresses; signatures."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_client import Credentials, errors
from rocketmq_client._wire.bodies import (
    parse_address,
    parse_cluster_info,
    parse_route,
    parse_runtime_info,
)
from rocketmq_client._wire.json_text import read_json
from rocketmq_client._wire.signature import is_signed_by, sign, signed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), VALUES))
def test_standard_json_is_read(value) -> None:
    assert read_json(json.dumps(value).encode(), "it") == value


@settings(deadline=None)
@given(st.dictionaries(st.integers(), VALUES, min_size=1, max_size=3), VALUES)
def test_bare_and_object_keys_are_read(by_number, under) -> None:
    bare = ",".join(f"{key}:{json.dumps(value)}" for key, value in by_number.items())
    text = f'{{"a":{{{bare}}},{{"b":1}}:{json.dumps(under)}}}'

    assert read_json(text.encode(), "it") == {
        "a": {str(key): value for key, value in by_number.items()},
        '{"b":1}': under,
    }


@settings(deadline=None)
@given(st.text(st.sampled_from('{}[]":,0a-. ')))
def test_garbage_is_a_violation_or_an_object(text) -> None:
    try:
        assert isinstance(read_json(text.encode(), "it"), dict)
    except errors.ProtocolViolation:
        pass


@pytest.mark.parametrize(
    "body",
    [
        b"{0:01.5}",
        b"{0:-01e2}",
        b'{{"\\ud800":1}:2}',
        b'{"a":"\\udc00"}',
        b'{"a":["\\ud83d"]}',
        b'{"\\uD800\\u0041":1}',
    ],
)
def test_invalid_numbers_and_texts_are_violations(body) -> None:
    with pytest.raises(errors.ProtocolViolation):
        read_json(body, "it")


def test_pairs_of_halves_are_characters_and_zeros_may_lead() -> None:
    assert read_json(b'{{"\\ud83d\\ude00":007}:-01}', "it") == {'{"\U0001f600":7}': -1}


def test_depth_is_bounded() -> None:
    for text in ("{0:" * 5_000, "[" * 100_000, '{"a":' * 50_000):
        with pytest.raises(errors.ProtocolViolation):
            read_json(text.encode(), "it")


def test_a_route_names_queues_that_can_be_used() -> None:
    body = b"""{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"},
      "brokerName":"a","cluster":"c"},{"brokerAddrs":{"1":"127.0.0.1:1"},"brokerName":"b"}],
      "queueDatas":[{"brokerName":"a","perm":4,"readQueueNums":2,"writeQueueNums":1},
      {"brokerName":"b","perm":6,"readQueueNums":2,"writeQueueNums":2}]}"""
    route = parse_route("orders", body)

    assert [queue.key for queue in route.readable()] == ["a:0", "a:1"]
    assert route.writable() == []
    assert (route.address("a"), route.address("b")) == (("127.0.0.1", 10911), None)
    assert not route.static


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"queueDatas":[1]}',
        b'{"queueDatas":[{"brokerName":""}]}',
        b'{"queueDatas":[{"brokerName":"a","readQueueNums":-1}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"0":"nowhere"}}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"x":"a:1"}}]}',
        b'{"brokerDatas":7}',
    ],
)
def test_a_route_of_another_shape_is_a_violation(body) -> None:
    with pytest.raises(errors.ProtocolViolation):
        parse_route("orders", body)


def test_clusters_are_read() -> None:
    info = parse_cluster_info(
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"h:1"},"brokerName":"a","cluster":"c"}},'
        b'"clusterAddrTable":{"c":["a"]}}'
    )

    assert info.brokers["a"].master == ("h", 1)
    assert info.clusters == {"c": ("a",)}


@pytest.mark.parametrize(
    ("unflushed", "at_most"),
    [("0 B", 0), ("407 B", 407), ("1.0 KiB", 1076), ("12.3 KiB", 12647), ("12,3 KiB", 12647)],
)
def test_the_flushed_position_is_a_lower_bound(unflushed, at_most) -> None:
    table = {
        "commitLogMaxOffset": "100000",
        "remainHowManyDataToFlush": unflushed,
        "bootTimestamp": "5000",
        "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]",
        "dispatchBehindBytes": "7",
    }
    info = parse_runtime_info(json.dumps({"table": table}).encode())

    assert info.flushed_bytes == 100_000 - at_most
    assert info.clock_ms == 5_000 + 93_784_000
    assert info.dispatch_behind_bytes == 7


@pytest.mark.parametrize("unflushed", ["9" * 5_000 + " B", "many", "-1 B"])
def test_an_invalid_amount_is_a_violation(unflushed) -> None:
    table = {"commitLogMaxOffset": "1", "remainHowManyDataToFlush": unflushed}
    with pytest.raises(errors.ProtocolViolation):
        parse_runtime_info(json.dumps({"table": table}).encode())


@settings(deadline=None)
@given(st.integers(1024, 2**50))
def test_the_upper_bound_of_printed_bytes_holds(count) -> None:
    value, unit = count / 1024, 0
    while value >= 1024:
        value, unit = value / 1024, unit + 1
    table = {
        "commitLogMaxOffset": str(2**60),
        "remainHowManyDataToFlush": f"{value:.1f} {'KMGTP'[unit]}iB",
        "bootTimestamp": "0",
        "dispatchBehindBytes": "0",
    }
    flushed = parse_runtime_info(json.dumps({"table": table}).encode()).flushed_bytes

    assert 2**60 - flushed >= count


@pytest.mark.parametrize("text", ["", "host", "host:", "host:0", "host:65536", ":1", "h:x"])
def test_invalid_addresses_are_violations(text) -> None:
    with pytest.raises(errors.ProtocolViolation):
        parse_address(text)


def test_signatures_cover_fields_and_body() -> None:
    credentials = Credentials("key", "secret", "token")
    fields = signed({"topic": "t", "queueId": "1"}, b"body", credentials)

    assert fields["AccessKey"] == "key"
    assert fields["SecurityToken"] == "token"
    assert is_signed_by(fields, b"body", credentials)
    assert not is_signed_by(fields, b"other", credentials)
    assert not is_signed_by({**fields, "queueId": "2"}, b"body", credentials)
    assert not is_signed_by(fields, b"body", Credentials("key", "another"))
    assert signed({"a": "b"}, b"", None) == {"a": "b"}
    assert sign({"b": "2", "a": "1"}, b"x", "k") == sign({"a": "1", "b": "2"}, b"x", "k")
    assert "secret" not in repr(credentials)
    assert "token" not in repr(credentials)
