"""Effects of controls beyond their answers (`tests/system/conformance`): limits, checks,
storage."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.client.embedded.conftest import BY_HAND
from tests.client.embedded.members import Player
from tests.client.embedded.rpc import BrokerWire, Wire
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.testing.clock import ManualClock

pytestmark = pytest.mark.timeout(60)


def change(mq: EmbeddedTubeMQ, method: str, **values: Any) -> Any:
    user = {"createUser": "uu", "modifyUser": "uu", "confModAuthToken": "abc"}
    query = urllib.parse.urlencode({"method": method, **user, **values})
    with urllib.request.urlopen(f"http://{mq.master_web}/webapi.htm?{query}", timeout=10) as reply:
        body = json.loads(reply.read())
    assert body["result"], body
    return body["data"]


def test_brokers_enforce_the_clusters_rules_while_they_are_on(clock: ManualClock) -> None:
    limit = {"start": "00:00", "end": "24:00", "dltInM": 21, "limitInM": 0, "freqInMs": 700}
    rules = json.dumps([{"type": 0, "rule": [limit]}])
    with (
        EmbeddedTubeMQ(1, ["lone"], switches=BY_HAND, clock=clock) as mq,
        BrokerWire(mq.broker(1).address) as wire,
    ):
        for _ in range(4):
            wire.send("lone", bytes(300_000))
        wire.register("lone")
        assert wire.get("lone", lastPackConsumed=True).errCode == 200

        change(mq, "admin_set_cluster_default_setting", flowCtrlEnable="true", flowCtrlInfo=rules)
        clock.advance(61_000)
        wire.heartbeat(f"1:{mq.broker(1).address}#lone:0")
        codes = [wire.get("lone").errCode for _ in range(3)]
        assert 452 in codes

        change(mq, "admin_update_cluster_default_setting", flowCtrlEnable="false")
        clock.advance(61_000)
        wire.register("lone")
        assert [wire.get("lone").errCode for _ in range(3)] == [200] * 3


def test_a_group_with_too_few_members_gets_nothing(clock: ManualClock) -> None:
    with (
        EmbeddedTubeMQ(2, ["lone"], switches=BY_HAND, clock=clock) as mq,
        Wire(mq.masters) as master,
    ):
        change(mq, "admin_add_group_resctrl_info", groupName="gg", alwdBrokerClientRate=1)
        first, second = (Player(master, name, "gg") for name in ("c1", "c2"))
        first.register("lone")
        first.beat()
        mq.balance()
        assert not first.beat().HasField("event")

        second.register("lone")
        second.beat()
        mq.balance()
        events = [player.beat().HasField("event") for player in (first, second)]
        assert any(events), "two members are enough for two brokers"


def test_controls_outlive_the_server(tmp_path: Path) -> None:
    topics = [TopicSpec("lone")]
    with EmbeddedTubeMQ(1, topics, data_dir=tmp_path) as mq:
        change(mq, "admin_set_topic_authorize_control", topicName="lone", isEnable="true")
        change(mq, "admin_add_group_csmctrl_info", groupName="gg", topicName="lone")
        change(mq, "admin_set_cluster_default_setting", maxMsgSizeInMB=2)

    with EmbeddedTubeMQ(1, topics, data_dir=tmp_path) as mq, Wire(mq.masters) as master:
        codes = [Player(master, "c1", group).register("lone").errCode for group in ("gg", "hh")]
        assert codes == [200, 450]
        with BrokerWire(mq.broker(1).address) as wire:
            assert wire.send("lone", bytes(2_000_000)).errCode == 200


def test_own_starts_may_need_a_resource_record() -> None:
    """The answers of a genuine master with `startOffsetResetCheck`."""
    bound = {"requireBound": True, "sessionKey": "key", "sessionTime": 1, "totalCount": 1}
    switches = Switches(start_offset_reset_check=True)
    with EmbeddedTubeMQ(1, ["lone"], switches=switches) as mq, Wire(mq.masters) as master:
        reply = Player(master, "c1", "gg").register("lone", **bound)
        assert reply.errCode == 400
        assert reply.errMsg.startswith("[unauthorized subscribe] ConsumeGroup must be authorized")
        assert Player(master, "c2", "hh").register("lone").errCode == 200
        change(mq, "admin_add_group_resctrl_info", groupName="gg")
        assert Player(master, "c1", "gg").register("lone", **bound).errCode == 200
