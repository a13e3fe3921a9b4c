"""Read leases: 410, 411, 412, 401, renewal, expiry, the attempt that removes an expired one."""

from __future__ import annotations

import pytest

from tests.client.embedded.rpc import BrokerWire, bodies
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import RemoteException
from tubemq_client.testing.clock import ManualClock

pytestmark = pytest.mark.timeout(60)

PLACE = "1:127.0.0.1:8123#lone:0"


def codes(wire: BrokerWire) -> dict[str, object]:
    """Return the broker's code for each kind of call, unregistering last."""
    return {
        "get": wire.get("lone").errCode,
        "beat": list(wire.heartbeat(PLACE).failureInfo),
        "commit": wire.commit("lone").errCode,
        "unregister": wire.unregister("lone").errCode,
    }


def test_an_owner_may_do_everything(wire: BrokerWire) -> None:
    wire.send_all("lone", 1)
    wire.register("lone")

    assert codes(wire) == {"get": 200, "beat": [], "commit": 200, "unregister": 200}


def test_an_unregistered_client_must_register(wire: BrokerWire) -> None:
    expected = {"get": 411, "beat": [f"411:{PLACE}"], "commit": 401, "unregister": 411}

    assert codes(wire) == expected


def test_another_client_gets_the_owner_of_the_lease(wire: BrokerWire, other: BrokerWire) -> None:
    wire.register("lone")

    expected = {"get": 412, "beat": [f"412:{PLACE}"], "commit": 401, "unregister": 412}
    assert codes(other) == expected
    refused = other.register("lone")
    assert refused.errCode == 410
    assert refused.errMsg == (
        f"[Duplicated Register] Partition 1#g:lone:0 has been registered by {wire.client_id}"
    )


def test_the_owner_may_register_again_with_other_filters(wire: BrokerWire) -> None:
    for stream in ("a", "b"):
        wire.send("lone", stream.encode(), stream_id=stream)
    wire.register("lone")

    wire.register("lone", currOffset=0, filterCondStr=[" b ", ""], qryPriorityId=303)

    assert bodies(wire.get("lone")) == [b"b"]


def test_the_first_attempt_after_expiry_only_clears_the_way(
    clock: ManualClock, wire: BrokerWire, other: BrokerWire
) -> None:
    wire.register("lone")
    clock.advance(30_000)

    first, second = other.register("lone"), other.register("lone")

    assert first.errCode == 410
    assert "Remove Invalid Consumer Register" in first.errMsg
    assert second.errCode == 200


def test_a_scan_ends_silent_leases_and_their_batches(
    clock: ManualClock, mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    wire.send_all("lone", 2)
    wire.register("lone")
    wire.get("lone")

    clock.advance(29_999)
    mq.tick()
    assert wire.heartbeat(PLACE).failureInfo == []

    clock.advance(30_000)
    mq.tick()
    assert wire.get("lone").errCode == 411
    assert mq.broker(1).position("g", "lone", 0) == 0


@pytest.mark.parametrize("call", ["get", "heartbeat"])
def test_fetches_and_heartbeats_renew(
    clock: ManualClock, mq: EmbeddedTubeMQ, wire: BrokerWire, call: str
) -> None:
    wire.register("lone")
    for _ in range(3):
        clock.advance(20_000)
        wire.get("lone") if call == "get" else wire.heartbeat(PLACE)
        mq.tick()

    assert wire.get("lone").errCode == 404


def test_commits_do_not_renew(clock: ManualClock, mq: EmbeddedTubeMQ, wire: BrokerWire) -> None:
    wire.register("lone")
    clock.advance(20_000)
    wire.commit("lone")
    clock.advance(10_000)
    mq.tick()

    assert wire.get("lone").errCode == 411


def test_losing_the_connection_does_not_end_the_lease(
    mq: EmbeddedTubeMQ, other: BrokerWire
) -> None:
    with BrokerWire(mq.broker(1).address) as gone:
        gone.register("lone")

    assert other.register("lone").errCode == 410


def test_a_heartbeat_sets_the_query_priority(mq: EmbeddedTubeMQ, wire: BrokerWire) -> None:
    wire.send_all("lone", 2)
    mq.broker(1).flush()
    wire.send_all("lone", 1)
    wire.register("lone", qryPriorityId=1)
    assert wire.commit("lone").maxOffset == 56

    wire.heartbeat(PLACE)
    assert wire.commit("lone").maxOffset == 84

    wire.heartbeat(PLACE, qryPriorityId=1)
    assert wire.commit("lone").maxOffset == 56


def test_one_bad_place_fails_the_whole_heartbeat(
    clock: ManualClock, mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    wire.register("lone")
    clock.advance(20_000)

    with pytest.raises(RemoteException, match=r"InvocationTargetException$"):
        wire.heartbeat(PLACE, "nonsense")

    clock.advance(10_000)
    mq.tick()
    assert wire.get("lone").errCode == 411
