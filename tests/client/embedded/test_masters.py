"""Several masters: one is active, the others stand by; effects of a kill on clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.client.embedded.rpc import Wire
from tools.devkit.patience import PATIENCE
from tubemq_client import ClientSettings, Metadata, _pb, errors
from tubemq_client._wire import methods
from tubemq_client.admin import AdminClient
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.model import Address

TOPIC = "orders"
SLOW = Switches(fail_over_ms=300, fail_over_load_ms=1_500, fail_over_report_ms=1_500)


@pytest.fixture
def pair() -> Iterator[EmbeddedTubeMQ]:
    with EmbeddedTubeMQ(topics=[TopicSpec(TOPIC, 1, 2)], masters=2, switches=SLOW) as server:
        yield server


def register_producer() -> Any:
    return _pb.RegisterRequestP2M(clientId="p", brokerCheckSum=-1, hostName="h", topicList=[TOPIC])


def beat_producer() -> Any:
    return _pb.HeartRequestP2M(clientId="p", brokerCheckSum=-1, hostName="h", topicList=[TOPIC])


def register_consumer() -> Any:
    return _pb.RegisterRequestC2MV2(
        clientId="c", groupName="g", hostName="h", sourceCount=-2, nodeId=-2, topicList=[TOPIC]
    )


def partition_meta() -> Any:
    return _pb.GetPartMetaRequestC2M(
        clientId="c", groupName="g", brokerConfigId=-2, topicMetaInfoId=-2
    )


def wire(address: Address) -> Wire:
    return Wire("{}:{}".format(*address))


def soon(ask: Callable[[], Any], answers: Callable[[Any], bool]) -> Any:
    """Return the first answer accepted by `answers`. A switch takes longer than a round trip."""
    deadline = time.monotonic() + 20 * PATIENCE
    while True:
        try:
            if answers(answer := ask()):
                return answer
        except errors.StandbyMaster:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_master_is_active_and_the_other_answers_as_a_stand_by(pair: EmbeddedTubeMQ) -> None:
    first, second = pair.master_addresses
    assert pair.masters == "{}:{},{}:{}".format(*first, *second)
    with wire(first) as active, wire(second) as standby:
        assert active.call(methods.REGISTER_PRODUCER, register_producer()).success
        with pytest.raises(errors.StandbyMaster, match=f":{second[1]} is not master now"):
            standby.call(methods.REGISTER_PRODUCER, register_producer())


def test_a_standby_redirects_http_to_itself_and_clients_do_not_follow(
    pair: EmbeddedTubeMQ,
) -> None:
    active, standby = pair.master_webs
    page = f"http://{standby}/webapi.htm?type=op_query&method=admin_query_topic_info"
    answer = httpx.get(page)
    assert (answer.status_code, answer.headers["location"], answer.text) == (302, page, "")
    assert pair.master_web == active
    with AdminClient(f"{standby},{active}") as admin:
        assert [topic.name for topic in admin.topics()] == [TOPIC]


def test_the_steps_of_a_switch(pair: EmbeddedTubeMQ) -> None:
    first, second = pair.master_addresses
    assert pair.fail_over() == first
    with pytest.raises(OSError, match="refused"):
        wire(first)
    with wire(second) as master:
        # Elected: nothing is loaded, no member known.
        refused = soon(
            lambda: master.call(methods.REGISTER_CONSUMER_V2, register_consumer()),
            lambda reply: True,
        )
        assert (refused.errCode, "not deployed" in refused.errMsg) == (431, True)
        assert master.call(methods.HEARTBEAT_PRODUCER, beat_producer()).errCode == 411
        empty = master.call(methods.REGISTER_PRODUCER, register_producer())
        assert (empty.success, list(empty.brokerInfos)) == (True, [])
        # Loaded: topics are known, brokers have not reported.
        soon(
            lambda: master.call(methods.REGISTER_CONSUMER_V2, register_consumer()).errCode,
            lambda code: code == 200,
        )
        meta = master.call(methods.GET_PARTITION_META, partition_meta())
        assert list(meta.topicMetaInfoList) == [f"{TOPIC}#1:1:2:0"]
        assert list(master.call(methods.HEARTBEAT_PRODUCER, beat_producer()).topicInfos) == []
        # Brokers have reported.
        pair.wait_switched()
        meta = master.call(methods.GET_PARTITION_META, partition_meta())
        assert list(meta.topicMetaInfoList) == [f"{TOPIC}#1:1:2:1"]
        assert list(master.call(methods.HEARTBEAT_PRODUCER, beat_producer()).topicInfos)


def test_what_was_killed_stands_by_when_it_is_back(pair: EmbeddedTubeMQ) -> None:
    first, second = pair.master_addresses
    pair.fail_over()
    with pytest.raises(errors.ConfigError, match="no master stands by"):
        pair.fail_over()
    pair.wait_switched()
    pair.restart_masters()
    assert pair.master_addresses == (first, second)
    with wire(first) as standby, pytest.raises(errors.StandbyMaster):
        standby.call(methods.REGISTER_PRODUCER, register_producer())
    assert pair.fail_over() == second
    pair.wait_switched()
    assert known(pair.master_addresses) == 2


def known(masters: tuple[Address, ...]) -> int:
    with Metadata(ClientSettings(masters=masters)) as metadata:
        return len(metadata.topic(TOPIC).subscribable)


def test_one_master_alone_cannot_fail_over() -> None:
    with (
        EmbeddedTubeMQ(http=False) as server,
        pytest.raises(errors.ConfigError, match="masters=2"),
    ):
        server.fail_over()
    with pytest.raises(errors.ConfigError, match="masters 0"):
        EmbeddedTubeMQ(masters=0)


def test_masters_come_back_on_their_ports(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        with EmbeddedTubeMQ(masters=3, data_dir=tmp_path, http=False) as server:
            found.append(server.masters)
    assert found[0] == found[1]
