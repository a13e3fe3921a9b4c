"""TubeMQ's string formats: round trips, look-alikes, invalid text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import errors
from tubemq_client._wire import strings
from tubemq_client.model import BrokerNode, Partition

pytestmark = pytest.mark.timeout(60)

names = st.from_regex(r"[A-Za-z][\w.-]{0,12}", fullmatch=True).filter(str.isascii)
int32s = st.integers(0, 2**31 - 1)
brokers = st.builds(BrokerNode, int32s, names, st.integers(0, 65_535))
small = st.integers(0, 9)
partitions = st.builds(Partition, int32s, names, int32s)

PARSERS = [
    strings.parse_broker,
    strings.parse_failure_info,
    strings.parse_part_sub_info,
    strings.parse_partition_info,
    strings.parse_partition_key,
    strings.parse_required_partition,
    strings.parse_subscribe_info,
    strings.parse_topic_condition,
    strings.parse_topic_info,
    strings.parse_topic_meta,
]


def on(broker: BrokerNode, topic: str, number: int) -> Partition:
    return Partition(broker.broker_id, topic, number)


# ---------------------------------------------------------------------------- there and back


@given(brokers, st.integers(1, 65_535))
def test_brokers(broker, default_port):
    for text in (strings.format_broker(broker), strings.format_broker(broker, default_port)):
        assert strings.parse_broker(text, default_port) == broker


@given(
    names,
    st.lists(st.builds(strings.BrokerRoute, int32s, small, small), max_size=4),
    st.none() | int32s,
)
def test_topic_infos(topic, routes, limit):
    value = strings.TopicRoutes(topic, tuple(routes), limit)
    assert strings.parse_topic_info(strings.format_topic_info(value)) == value


@given(names, st.lists(st.builds(strings.BrokerMeta, int32s, small, small, st.booleans())))
def test_topic_metas(topic, metas):
    value = strings.TopicMeta(topic, tuple(metas))
    assert strings.parse_topic_meta(strings.format_topic_meta(value)) == value


@given(names, names, brokers, names, int32s, int32s)
def test_partitions_with_their_brokers(consumer, group, broker, topic, number, code):
    partition = on(broker, topic, number)
    info = strings.SubscribeInfo(consumer, group, broker, partition)
    assert strings.parse_subscribe_info(strings.format_subscribe_info(info)) == info
    loss = strings.FailureInfo(code, broker, partition)
    assert strings.parse_failure_info(strings.format_failure_info(loss)) == loss
    text = strings.format_partition_info(broker, partition)
    assert strings.parse_partition_info(text) == (broker, partition)


@given(st.lists(partitions, unique=True, max_size=6))
def test_partition_reports(held):
    texts = strings.format_part_sub_info(held)
    assert len(texts) == len({partition.topic for partition in held})
    parsed = [partition for text in texts for partition in strings.parse_part_sub_info(text)]
    assert sorted(parsed) == sorted(held)


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=4))
def test_required_partitions(offsets):
    text = strings.format_required_partition(offsets)
    assert strings.parse_required_partition(text) == offsets


@given(partitions)
def test_partition_keys(partition):
    assert strings.parse_partition_key(str(partition)) == partition


@given(names, st.sets(names, min_size=1, max_size=5))
def test_topic_conditions(topic, items):
    text = strings.format_topic_condition(topic, items)
    assert strings.parse_topic_condition(text) == (topic, items)


@given(st.lists(st.tuples(names, st.integers(1, 65_535)), min_size=1, max_size=4, unique=True))
def test_master_lists(addresses):
    assert strings.parse_masters(strings.format_masters(addresses)) == tuple(addresses)


# ---------------------------------------------------------------------------- the wire's examples


@pytest.mark.parametrize("text", ["3:10.0.0.7: ", "3:10.0.0.7:", "3:10.0.0.7"])
def test_a_blank_port_is_the_default_of_the_connection(text):
    assert strings.parse_broker(text) == BrokerNode(3, "10.0.0.7", 8123)
    assert strings.parse_broker(text, strings.DEFAULT_BROKER_TLS_PORT).port == 8124
    assert strings.parse_broker("3:10.0.0.7:9000").port == 9000
    assert strings.format_broker(BrokerNode(3, "10.0.0.7", 8123), 8123) == "3:10.0.0.7: "


def test_infos_say_partitions_first_and_metas_say_stores_first():
    one, two = [0, 1, 2, 10_000, 10_001, 10_002], [0, 1, 2]
    expected = [Partition(1, "demo", n) for n in one] + [Partition(2, "demo", n) for n in two]
    routes = strings.parse_topic_info("demo#1:3:2,2:3:1#1048576")
    assert list(routes.partitions()) == expected
    assert routes.max_message_bytes == 1_048_576
    meta = strings.parse_topic_meta("demo#1:2:3:1,2:1:3:0")
    assert list(meta.partitions()) == [(p, p.broker_id == 1) for p in expected]


@pytest.mark.parametrize("text", ["demo#1:1:1", "demo#1:1:1#"])
def test_a_topic_without_its_own_limit(text):
    assert strings.parse_topic_info(text).max_message_bytes is None


def test_a_failure_is_a_code_before_the_partition():
    loss = strings.parse_failure_info("411:1:10.0.0.7:8123#demo:0")
    assert loss == (411, BrokerNode(1, "10.0.0.7", 8123), Partition(1, "demo", 0))


def test_a_subscription_names_consumer_group_broker_and_partition():
    info = strings.parse_subscribe_info(
        "g1_10.0.0.9-77-1700000000000-1-py-0.1.0@g1#1:10.0.0.7:8123#demo:10001"
    )
    assert info.consumer_id == "g1_10.0.0.9-77-1700000000000-1-py-0.1.0"
    assert info.group == "g1"
    assert info.partition == Partition(1, "demo", 10_001)


def test_reports_conditions_offsets_and_tokens():
    held = [Partition(2, "demo", 2), Partition(1, "demo", 10_001), Partition(1, "demo", 0)]
    assert strings.format_part_sub_info(held) == ["demo#1:0,1:10001,2:2"]
    assert strings.format_topic_condition("demo", ["b", "a", "b"]) == "demo#a,b"
    offsets = {Partition(1, "demo", 1): 0, Partition(1, "demo", 0): 28}
    assert strings.format_required_partition(offsets) == "1:demo:0=28,1:demo:1=0"
    assert strings.format_required_partition({}) == ""
    assert strings.broker_token("u", 1, 2, "s=") == "u 1 2 s="


def test_masters_keep_their_order_and_lose_doubles():
    text = " m2:8716, m1 ,m2:8716"
    assert strings.parse_masters(text) == (("m2", 8716), ("m1", 8715))


# ---------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (strings.parse_broker, "1"),
        (strings.parse_broker, "x:h:1"),
        (strings.parse_broker, "1: :1"),
        (strings.parse_broker, "1:h:70000"),
        (strings.parse_broker, "1:h:1:2"),
        (strings.parse_topic_info, "demo"),
        (strings.parse_topic_info, "#1:1:1"),
        (strings.parse_topic_info, "demo#1:1"),
        (strings.parse_topic_info, "demo#1:1:1#x"),
        (strings.parse_topic_info, "demo#1:10001:1"),
        (strings.parse_topic_meta, "demo#1:1:1"),
        (strings.parse_topic_meta, "demo#1:300000:1:1"),
        (strings.parse_topic_meta, "demo#1:-1:1:1"),
        (strings.parse_subscribe_info, "c#1:h:1#t:0"),
        (strings.parse_subscribe_info, "c@g#1:h:1"),
        (strings.parse_failure_info, "411"),
        (strings.parse_failure_info, "x:1:h:1#t:0"),
        (strings.parse_partition_info, "1:h:1#t"),
        (strings.parse_part_sub_info, "t#1"),
        (strings.parse_part_sub_info, "t#"),
        (strings.parse_partition_key, "1:t"),
        (strings.parse_partition_key, "1::2"),
        (strings.parse_required_partition, "1:t:0"),
        (strings.parse_required_partition, "1:t:0=-1"),
        (strings.parse_topic_condition, "t#"),
        (strings.parse_topic_condition, "t#,"),
    ],
)
def test_invalid_text_is_refused_and_quoted(parse, text):
    with pytest.raises(errors.ProtocolViolation) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


@given(st.text(st.sampled_from("01a:#@,= -²９\n"), max_size=20), st.sampled_from(PARSERS))
def test_nonsense_is_refused_or_read_but_nothing_else(text, parse):
    try:
        parse(text)
    except errors.ProtocolViolation:
        return


@pytest.mark.parametrize("text", ["1:h:" + "9" * 1_000_000, "9" * 1_000_000])
def test_a_huge_text_is_quoted_in_part(text):
    with pytest.raises(errors.ProtocolViolation) as caught:
        strings.parse_broker(text)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "write",
    [
        lambda: strings.format_topic_condition("t", []),
        lambda: strings.format_topic_condition("t", ["a,b"]),
        lambda: strings.format_topic_condition("t", [" "]),
        lambda: strings.format_topic_condition("t#", ["a"]),
        lambda: strings.format_broker(BrokerNode(1, "a:1", 8123)),
        lambda: strings.format_part_sub_info([Partition(1, "a:b", 0)]),
        lambda: strings.format_partition_info(BrokerNode(1, "h", 1), Partition(2, "t", 0)),
        lambda: strings.format_required_partition({Partition(1, "t", 0): -28}),
        lambda: strings.format_subscribe_info(
            strings.SubscribeInfo("c@d", "g", BrokerNode(1, "h", 1), Partition(1, "t", 0))
        ),
    ],
)
def test_ambiguous_values_are_not_written(write):
    with pytest.raises(ValueError, match=r"\S"):
        write()


def test_every_wrong_master_is_named_at_once():
    with pytest.raises(errors.ConfigError) as caught:
        strings.parse_masters("m1:8715,:1,m2:x,m3:70000,m4:0")
    assert len(caught.value.problems) == 4
    with pytest.raises(errors.ConfigError, match="no address"):
        strings.parse_masters(" , ")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("1:[::1]:9", "::1", 9),
        ("1:[fe80::1%eth0]: ", "fe80::1%eth0", 8123),
        ("1:[::1]", "::1", 8123),
    ],
)
def test_ipv6_addresses_of_brokers_are_in_brackets(text, host, port):
    broker = strings.parse_broker(text)
    assert (broker.host, broker.port) == (host, port)
    assert strings.parse_broker(strings.format_broker(broker)) == broker
    place = strings.format_partition_info(broker, Partition(1, "orders", 0))
    assert strings.parse_partition_info(place) == (broker, Partition(1, "orders", 0))


@pytest.mark.parametrize("text", ["1:::1:9", "1:::1", "1:[::1:9", "1:::1]:9"])
def test_ipv6_addresses_without_brackets_are_refused_for_brokers(text):
    with pytest.raises(errors.ProtocolViolation):
        strings.parse_broker(text)


def test_masters_at_ipv6_addresses():
    masters = strings.parse_masters("[::1]:9,::1,[::2]")
    assert masters == (("::1", 9), ("::1", 8715), ("::2", 8715))
    assert strings.parse_masters(strings.format_masters(masters)) == masters
