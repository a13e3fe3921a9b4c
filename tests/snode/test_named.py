"""Resources named by heartbeats and locks, and bodies that a broker may read differently."""

from __future__ import annotations

import pytest

from rocketmq_client import errors
from rocketmq_snode.request_resources import named_in_body


def test_nothing_is_read_of_other_requests() -> None:
    assert named_in_body(310, b"\xff{{") == (frozenset(), frozenset())


def test_members_name_groups_and_topics() -> None:
    body = (
        b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":['
        b'{"groupName":"g","subscriptionDataSet":[{"topic":"a"},{"topic":"%RETRY%g"}]},'
        b'{"groupName":"h","subscriptionDataSet":null}]}'
    )
    assert named_in_body(34, body) == ({"a"}, {"g", "h"})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{'consumerDataSet':[]}",
        b"\xff",
        '{"consumerDataSet":[]}'.encode("utf-16"),
        b"[" * 100_000,
        b'{"consumerDataSet":{"groupName":"g"}}',
        b'{"consumerDataSet":[7]}',
        b'{"consumerDataSet":[{"groupName":7}]}',
        b'{"consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":null}]}]}',
        b'{"consumerDataSet":[],"consumerDataSet":[]}',
        b'{"consumerDataSet":[{"groupName":"g","group_name":"others"}]}',
        b'{"consumerDataSet":[{"groupName":"g","GroupName":"others"}]}',
        b'{"consumerDataSet":[{"groupName":"g"}],"consumer-data-set":[]}',
        b'{"x":{"groupName":"others"},"consumerDataSet":[{"$ref":"$.x"}]}',
    ],
)
def test_bodies_that_a_broker_may_read_differently_are_refused(body) -> None:
    with pytest.raises(errors.ProtocolViolation, match="cannot be judged"):
        named_in_body(34, body)
