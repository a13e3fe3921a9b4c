"""The HTTP side beyond the recorded conversation: transport, tokens, and effects on clients."""

from __future__ import annotations

import http.client
import json
import urllib.parse
import urllib.request
from typing import Any

import pytest

from tests.client.embedded.rpc import BrokerWire
from tests.kit.servers import embedded_tubemq
from tubemq_client.admin import AdminClient
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.model import Partition

pytestmark = pytest.mark.timeout(60)


mq = embedded_tubemq(
    [TopicSpec("wide", 2, 2), "lone"],
    brokers=2,
    scope="module",
    http=True,
    switches=Switches(flush_interval_ms=None, unflushed_records=None, admin_token="s3cret"),
)


def call(place: str | None, path: str, post: bool = False, **values: Any) -> dict[str, Any]:
    query = urllib.parse.urlencode(values)
    url, data = f"http://{place}/{path}", None
    if post:
        data = query.encode()
    else:
        url = f"{url}?{query}"
    with urllib.request.urlopen(url, data, timeout=10) as reply:
        body: dict[str, Any] = json.loads(reply.read())
        return body


def test_get_and_post_mean_the_same(mq: EmbeddedTubeMQ) -> None:
    values = {"method": "admin_query_cluster_topic_view", "topicName": "wide"}

    answers = [call(mq.master_web, "webapi.htm", post=post, **values) for post in (False, True)]

    assert answers[0] == answers[1]
    assert answers[0]["data"][0]["totalCfgNumPart"] == 8


def test_callbacks_wrap_the_body(mq: EmbeddedTubeMQ) -> None:
    query = "method=admin_query_server_version&callback=cb_1"
    with urllib.request.urlopen(f"http://{mq.master_web}/webapi.htm?{query}", timeout=10) as reply:
        assert reply.headers["content-type"] == "text/plain;charset=utf-8"
        body = reply.read().decode()

    assert body.startswith('cb_1({"result":true')
    assert body.endswith('"count":1})')


def test_changes_need_the_servers_own_token(mq: EmbeddedTubeMQ) -> None:
    values = {
        "method": "admin_add_topic_deploy_info",
        "topicName": "made",
        "brokerId": "1,2",
        "numPartitions": 2,
        "createUser": "uu",
    }
    refused = call(mq.master_web, "webapi.htm", confModAuthToken="abc", **values)
    assert refused["errMsg"].endswith("illegal access, unauthorized request!")

    made = call(mq.master_web, "webapi.htm", confModAuthToken="s3cret", **values)
    assert [row["success"] for row in made["data"]] == [True, True]
    with BrokerWire(mq.broker(2).address) as wire:
        assert wire.send("made", b"x", 1).errCode == 200
        assert wire.send("made", b"x", 2).errCode == 403


def test_every_listed_method_answers(mq: EmbeddedTubeMQ) -> None:
    for place, path, key in (
        (mq.master_web, "webapi.htm", "data"),
        (mq.broker(1).web, "broker.htm", "dataSet"),
    ):
        for row in call(place, path, method="admin_get_methods")[key]:
            body = call(place, path, method=row["method"])
            assert {"result", "errCode", "errMsg"} <= set(body)


def test_setting_a_position_moves_the_running_reader(mq: EmbeddedTubeMQ) -> None:
    with BrokerWire(mq.broker(1).address) as wire:
        wire.send_all("lone", 5)
        wire.register("lone", groupName="grp")
        wire.get("lone", groupName="grp")
        call(
            mq.broker(1).web,
            "broker.htm",
            method="admin_manual_set_current_offset",
            topicName="lone",
            groupName="grp",
            partitionId=0,
            manualOffset=84,
            modifyUser="uu",
        )
        # The delivered batch is not added: nothing is in flight any more.
        assert wire.commit("lone", groupName="grp").currOffset == 84
        assert wire.get("lone", groupName="grp").currOffset == 84


def test_the_projects_own_client_finds_brokers_and_positions(mq: EmbeddedTubeMQ) -> None:
    with BrokerWire(mq.broker(2).address) as wire:
        wire.send_all("wide", 3, partition=10_001)
        wire.register("wide", 10_001, groupName="seen")
        wire.get("wide", 10_001, groupName="seen")
        wire.commit("wide", 10_001, groupName="seen")

    with AdminClient([f"http://{mq.master_web}"]) as client:
        assert client.broker_urls() == {n: f"http://{mq.broker(n).web}" for n in (1, 2)}
        assert client.group_offsets("wide", "seen") == {Partition(2, "wide", 10_001): 84}


def test_http_goes_down_with_the_broker_and_comes_back(mq: EmbeddedTubeMQ) -> None:
    place = mq.broker(2).web
    mq.broker(2).crash()
    with pytest.raises(OSError, match="refused"):
        call(place, "broker.htm", method="admin_query_server_version")

    mq.broker(2).restart()
    assert mq.broker(2).web == place
    assert call(place, "broker.htm", method="admin_query_server_version")["result"]


def test_run_status_of_a_dead_broker() -> None:
    switches = Switches(broker_timeout_ms=0)
    with EmbeddedTubeMQ(1, ["lone"], switches=switches) as mq:
        mq.broker(1).crash()
        rows = call(mq.master_web, "webapi.htm", method="admin_query_broker_run_status")["data"]
        topic = call(mq.master_web, "webapi.htm", method="admin_query_topic_info")["data"][0]

    assert (rows[0]["manageStatus"], rows[0]["runStatus"]) == ("online", "unRegister")
    assert topic["topicInfo"][0]["runInfo"]["acceptPublish"] == "-"
    assert topic["isSrvAcceptPublish"] is False


def test_ordered_answers_replace_the_next_ones(mq: EmbeddedTubeMQ) -> None:
    mq.break_web(500, "no JSON", times=2)
    mq.break_web(302, location="http://127.0.0.1:9/elsewhere", broker_id=1)

    def ask(place: str | None) -> tuple[int, str]:
        host, _, port = str(place).rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=5)
        connection.request("GET", "/webapi.htm?method=admin_query_server_version")
        reply = connection.getresponse()
        found = (reply.status, reply.headers.get("location") or reply.read().decode()[:14])
        connection.close()
        return found

    assert [ask(mq.master_web) for _ in range(3)] == [
        (500, "no JSON"),
        (500, "no JSON"),
        (200, '{"result":true'),
    ]
    assert ask(mq.broker(1).web) == (302, "http://127.0.0.1:9/elsewhere")
    assert ask(mq.broker(1).web)[0] == 200


def status_of(place: str | None, **headers: str) -> int:
    """Return the status of a change by GET, as a web page would send it."""
    host, _, port = str(place).rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    query = "method=admin_query_server_version&confModAuthToken=s3cret"
    connection.putrequest("GET", f"/webapi.htm?{query}", skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    with connection.getresponse() as reply:
        reply.read()
        return reply.status


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8080"},
        {"Host": "127.0.0.1.evil.example:8080"},
        {"Host": "192.168.1.2"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_pages_of_other_sites_are_not_served(mq: EmbeddedTubeMQ, headers) -> None:
    assert status_of(mq.master_web, **headers) == 403
    assert status_of(mq.broker(1).web, **headers) == 403


def test_clients_and_the_servers_own_pages_are_served(mq: EmbeddedTubeMQ) -> None:
    place = str(mq.master_web)
    port = place.rpartition(":")[2]
    assert status_of(place) == 200
    for host in ("localhost", f"localhost:{port}", f"LOCALHOST.:{port}", "[::1]", f"[::1]:{port}"):
        assert status_of(place, Host=host) == 200
    assert status_of(place, Origin=f"http://{place}", Sec_Fetch_Site="same-origin") == 200
