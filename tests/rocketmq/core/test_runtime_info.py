"""A broker fails to return its runtime info in the first second after its start: it is retried."""

from __future__ import annotations

import pytest

from rocketmq_client import ClientSettings, errors
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._wire.commands import Command
from tests.rocketmq.core.script import ADDRESS, play, runtime


def asked(failures: int, error: errors.RocketMQError) -> tuple[object, int]:
    """Request the runtime info of a broker that first fails `failures` times; return the result or
    error, and the number of requests."""
    times = 0

    def broker(_method, _request) -> Command:
        nonlocal times
        times += 1
        if times <= failures:
            raise error
        return runtime()

    cluster = Cluster(ClientSettings((ADDRESS,)))
    try:
        return play(cluster.runtime_info(ADDRESS, "broker-a"), broker), times
    except errors.ServerError as raised:
        return raised, times


JUST_STARTED = errors.for_code(1, "java.util.NoSuchElementException, java.util.LinkedList.getLast")


@pytest.mark.parametrize("failures", [1, 4])
def test_a_request_to_a_broker_that_has_just_started_is_retried(failures: int) -> None:
    result, times = asked(failures, JUST_STARTED)

    assert not isinstance(result, Exception)
    assert times == failures + 1


def test_retries_of_a_failing_broker_are_bounded() -> None:
    assert asked(100, JUST_STARTED) == (JUST_STARTED, 5)


def test_a_refusal_is_raised_at_once() -> None:
    refused = errors.for_code(1, "org.apache.rocketmq.acl.common.AclException: no")

    assert asked(100, refused) == (refused, 1)
