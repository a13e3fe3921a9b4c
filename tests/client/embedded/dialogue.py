"""One long conversation with a TubeMQ, written down line by line, the same with every server.

`genuine.txt` is what a genuine 2.4.0 answered (recorded with
``python -m tests.client.embedded.dialogue`` inside a network namespace); a test holds the embedded
server against it. The server needs two fresh topics: `one` with 1 store and `two` with 2 stores,
3 partitions each.
"""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

from tests.client.embedded.transcript import Transcript
from tubemq_client import _pb
from tubemq_client._wire import methods

ONE, TWO = "one", "two"
MAX_PAYLOAD = 1_058_816
BALANCE_ID = "grp_127.0.0.1-1-1-1-Balance-test"


class Dialogue(Transcript):
    """All questions, in the order in which they were recorded."""

    def run(self) -> list[str]:
        for part in (
            self.administer_master,
            self.produce,
            self.positions,
            self.start_positions,
            self.visibility,
            self.manual,
            self.leases,
            self.wrong_partitions,
            self.wrong_sends,
            self.memory_and_file,
            self.groups,
            self.protocol_errors,
            self.broker_offsets,
            self.broker_changes,
            self.snapshots,
        ):
            self.lines.append(f"# {part.__name__}")
            part()
        self.close()
        return self.lines

    # ------------------------------------------------------------------ the master over HTTP

    def administer_master(self) -> None:
        ask, change = self.ask_master, self.change
        self.http(self.master_web, "webapi.htm", {})
        ask("nonsense")
        ask("admin_add_topic_deploy_info")
        ask("admin_add_topic_deploy_info", confModAuthToken="wrong")
        for topic in (ONE, "nope", "1bad"):
            ask("admin_query_topic_info", topicName=topic)
            ask("admin_query_cluster_topic_view", topicName=topic)
        ask("admin_query_broker_configure", brokerId=1)
        ask("admin_query_broker_configure", brokerId=9)
        ask("admin_query_broker_run_status", brokerId=1)
        ask("admin_query_broker_run_status", brokerId=9)
        self.add_topics()
        for values in (
            {"brokerIp": "127.0.0.1", "brokerId": 2},
            {"brokerIp": "127.0.0.2", "brokerId": 2},
            {"brokerIp": "127.0.0.2", "brokerId": 2},
            {"brokerIp": "127.0.0.3", "brokerId": 2},
            {"brokerIp": "bogus", "brokerId": 3},
            {"brokerIp": "127.0.0.9"},
        ):
            change("admin_add_broker_configure", createUser="uu", **values)
        ask("admin_query_broker_run_status", brokerId=2)
        for broker_id in (2, 2, 7):
            change("admin_online_broker_configure", brokerId=broker_id, modifyUser="uu")
        ask("admin_query_broker_run_status", brokerId=2)
        ask("admin_query_broker_configure", brokerId=2)

    def add_topics(self) -> None:
        for values in (
            {"topicName": "fresh", "brokerId": 1, "numPartitions": 2, "createUser": "uu"},
            {"topicName": "fresh", "brokerId": 1, "createUser": "uu"},
            {"topicName": "fresh2,fresh3", "brokerId": "1,9", "createUser": "uu"},
            {"topicName": "9x", "brokerId": 1, "createUser": "uu"},
            {"topicName": "fresh4", "brokerId": 1, "createUser": "u"},
            {"topicName": "fresh4", "brokerId": 1},
            {"brokerId": 1, "createUser": "uu"},
            {"topicName": "fresh4", "createUser": "uu"},
            {"topicName": "fresh4", "brokerId": "abc", "createUser": "uu"},
            {"topicName": "fresh4", "brokerId": 1, "createUser": "uu", "numPartitions": "x"},
            {"topicName": "fresh4", "brokerId": 1, "createUser": "uu", "delPolicy": "delete,500h"},
        ):
            self.change("admin_add_topic_deploy_info", **values)
        self.change("admin_add_new_topic_record", topicName="fresh5", brokerId=1, createUser="uu")
        for topic, values in (
            ("fresh", {"numPartitions": 1}),
            ("fresh", {"numPartitions": 3}),
            ("fresh", {"numPart": 3}),
            ("nope", {"numPartitions": 3}),
        ):
            self.change(
                "admin_update_topic_deploy_info",
                topicName=topic,
                brokerId=1,
                modifyUser="uu",
                **values,
            )

    # ------------------------------------------------------------------ records and positions

    def produce(self) -> None:
        self.ask_broker("admin_query_pubinfo", topicName=f"{ONE},{TWO}")
        self.ask_broker("admin_snapshot_message", topicName=ONE)
        offsets = [
            self.wire.send(ONE, b"body%d" % n, n % 3, stream_id="ab"[n % 2]).appendOffset
            for n in range(60)
        ]
        self.say("offsets", offsets)
        offsets = [self.wire.send(TWO, b"body%d" % n, 10_000 + n % 3) for n in range(10)]
        self.say("offsets", [reply.appendOffset for reply in offsets])
        self.ask_broker("admin_query_pubinfo", topicName=f"{ONE},{TWO},nope")

    def positions(self) -> None:
        wire = self.wire
        self.register(TWO)
        self.get(TWO, label="get from an empty store")
        wire.send_all(TWO, 14)
        self.say("send", wire.send(TWO, b"x"))
        self.get(TWO)
        self.get(TWO, label="again")
        self.get(TWO, label="get on", lastPackConsumed=True)
        self.say("commit", lambda: wire.commit(TWO))
        self.say("roll back", lambda: wire.commit(TWO, lastPackConsumed=False))
        wire.send_all(TWO, 6, partition=1)
        self.get(TWO, label="get while others got records")
        self.say("position moved", lambda: wire.commit(TWO, lastPackConsumed=False))
        self.say("unregister", lambda: wire.unregister(TWO, readStatus=1))
        self.say("unregister twice", lambda: wire.unregister(TWO, readStatus=1))
        self.get(TWO, label="get unregistered")
        self.say("commit unregistered", lambda: wire.commit(TWO))

    def start_positions(self) -> None:
        for offset in (57, 560, 999_999, -5, 28):
            self.register(TWO, currOffset=offset)
        for status in (0, 1, 2):
            self.register(TWO, readStatus=status)
        self.register(TWO, readStatus=2, currOffset=0)
        self.register(TWO, readStatus=1, currOffset=28)
        for number, status in enumerate((0, 1, 2)):
            group = f"new{number}"
            self.register(TWO, groupName=group, readStatus=status)
            self.register(TWO, groupName=group, readStatus=0)

    def visibility(self) -> None:
        for priority in (1, 101, 202):
            self.register(TWO, qryPriorityId=priority, currOffset=0)
            self.get(TWO)
            self.say("commit", lambda: self.wire.commit(TWO, lastPackConsumed=False))
        for fields in ({}, {"qryPriorityId": 303}):
            self.register(TWO, currOffset=0, filterCondStr=["a"], **fields)
            self.get(TWO)
            self.say("commit", lambda: self.wire.commit(TWO, lastPackConsumed=False))
        self.wire.send(TWO, b"y", 1, stream_id="a")
        self.get(TWO, label="key of another partition")
        self.say("commit", lambda: self.wire.commit(TWO, lastPackConsumed=False))

    def manual(self) -> None:
        self.register(TWO, currOffset=0)
        for number in range(3):
            self.get(TWO, label=f"ahead {number}", manualCommitOffset=True)
        self.say("roll back", lambda: self.wire.commit(TWO, lastPackConsumed=False))

    # ------------------------------------------------------------------ leases and refusals

    def leases(self) -> None:
        wire, other = self.wire, self.other
        self.say("other registers", lambda: other.register(TWO))
        self.say("other fetches", lambda: other.get(TWO))
        self.say("other commits", lambda: other.commit(TWO))
        self.say("other unregisters", lambda: other.unregister(TWO))
        places = [f"1:127.0.0.1:1#{TWO}:{n}" for n in (0, 2)]
        self.say("other beats", lambda: other.heartbeat(*places))
        self.say("beat", lambda: wire.heartbeat(places[0]))
        self.say("beat nothing", wire.heartbeat)
        self.say("beat nonsense", lambda: wire.heartbeat(places[0], "nonsense"))
        self.say("beat a word", lambda: wire.heartbeat(f"1:h:1#{TWO}:x"))
        self.say("beat priority", lambda: wire.heartbeat(places[0], qryPriorityId=1))
        self.say("commit", lambda: wire.commit(TWO, lastPackConsumed=False))

    def wrong_partitions(self) -> None:
        wire, other = self.wire, self.other
        for partition in (5, -1):
            self.say("send", lambda p=partition: wire.send(TWO, b"x", p))
            self.say("register", lambda p=partition: wire.register(TWO, p))
            self.say("get", lambda p=partition: wire.get(TWO, p))
            self.say("other registers", lambda p=partition: other.register(TWO, p))
            self.say("unregister", lambda p=partition: wire.unregister(TWO, p))
        self.say("undeclared store", lambda: wire.send(ONE, b"x", 30_000))
        self.say("undeclared store", lambda: wire.register(ONE, 40_000))
        for call in (wire.register, wire.get, wire.commit, wire.unregister):
            self.say("unknown topic", lambda c=call: c("nope"))
        for call in (wire.register, wire.get, wire.commit):
            self.say("blank group", lambda c=call: c(TWO, groupName=" "))
            self.say("blank client", lambda c=call: c(TWO, clientId=" "))
        self.say("other operation", lambda: wire.register(TWO, opType=33))

    def wrong_sends(self) -> None:
        send = self.wire.send
        self.say("empty", lambda: send(TWO, b""))
        self.say("too long", lambda: send(TWO, bytes(MAX_PAYLOAD + 1)))
        self.say("longest", lambda: send(ONE, bytes(MAX_PAYLOAD)))
        self.say("wrong checksum", lambda: send(TWO, b"x", checkSum=5))
        self.say("right checksum", lambda: send(TWO, b"x", checkSum=215_750_275))
        self.say("unknown topic", lambda: send("nope", b"x"))
        self.say("system topic", lambda: send("__offset_history__", b"x"))
        self.say("blank client", lambda: send(TWO, b"x", clientId=""))
        self.say("long topic", lambda: send("t" * 65, b"x"))

    # ------------------------------------------------------------------ memory and file

    def memory_and_file(self) -> None:
        self.register(ONE, 2, readStatus=2)
        self.wire.send_all(ONE, 3_000, partition=2)
        self.get(ONE, 2, label="3000 from memory", lastPackConsumed=True)
        self.get(ONE, 2, label="end", lastPackConsumed=True)
        self.wait_until_stable()
        self.register(ONE, 2, currOffset=0)
        for number in range(13):
            self.get(ONE, 2, label=f"file {number}", lastPackConsumed=True)
        self.register(ONE, 1, currOffset=0, filterCondStr=["a"])
        for number in range(4):
            self.get(ONE, 1, label=f"filtered file {number}", lastPackConsumed=True)
        self.register(ONE, 1, readStatus=2, filterCondStr=["a"])
        self.get(ONE, 1, label="filtered at the end")
        self.register(ONE, 1, readStatus=2, qryPriorityId=1)
        self.wire.send(ONE, b"z", 1)
        self.get(ONE, 1, label="stable end is behind")
        self.register(ONE, 1, qryPriorityId=1)

    # ------------------------------------------------------------------ groups at the master

    def join(self, label: str, **fields: Any) -> None:
        request = {
            "clientId": BALANCE_ID,
            "groupName": "bal",
            "hostName": "127.0.0.1",
            "sourceCount": 2,
            "nodeId": 0,
            "topicList": [ONE],
            "topicCondition": [f"{ONE}#a,b"],
            "subRepInfo": _pb.ClientSubRepInfo(brokerConfigId=-2, topicMetaInfoId=-2),
        } | fields
        message = _pb.RegisterRequestC2MV2(**request)
        self.say(label, lambda: self.master.call(methods.REGISTER_CONSUMER_V2, message))

    def groups(self) -> None:
        call = self.master.call
        self.ask_master("admin_query_consume_group_detail")
        self.ask_master("admin_query_consume_group_detail", consumeGroup="bal")
        self.join("no topics", topicList=[])
        self.join("blank topics", topicList=[" "])
        self.join("unknown topics", topicList=["nope", "nix"])
        self.join("node number", nodeId=2)
        self.join("strange condition", topicCondition=["two#a"])
        self.join("empty condition", topicCondition=["one#"])
        self.join("blank host", hostName=" ")
        self.join("first")
        second = {"clientId": "second", "nodeId": 1}
        self.join("other topics", **second, topicList=[ONE, TWO])
        self.join("other filters", **second, topicCondition=[f"{ONE}#a"])
        self.join("other size", **second | {"sourceCount": 3})
        self.join("no size", **second | {"sourceCount": -2, "nodeId": -2})
        self.join("taken node", **second | {"nodeId": 0})
        self.join("again")
        self.join("alone, other topics", topicList=[TWO], topicCondition=[])
        for name, client in (("zz", "x"), ("bal", "x")):
            beat = _pb.HeartRequestC2MV2(clientId=client, groupName=name)
            self.say("unknown", lambda m=beat: call(methods.HEARTBEAT_CONSUMER_V2, m))
        self.report()
        self.producers()

    def report(self) -> None:
        call, who = self.master.call, {"clientId": BALANCE_ID, "groupName": "bal"}
        ids = {"brokerConfigId": -2, "topicMetaInfoId": -2}
        meta = _pb.GetPartMetaRequestC2M(**who, **ids)
        found = self.say("meta", lambda: call(methods.GET_PARTITION_META, meta))
        known = {
            "brokerConfigId": found.brokerConfigId,
            "topicMetaInfoId": found.topicMetaInfoId,
        }
        meta = _pb.GetPartMetaRequestC2M(**who, **known)
        self.say("known meta", lambda: call(methods.GET_PARTITION_META, meta))
        for told, sub in (
            ("nothing", _pb.ClientSubRepInfo(**known)),
            ("nonsense", _pb.ClientSubRepInfo(**ids, reportSubInfo=True, partSubInfo=["x"])),
            (
                "partitions",
                _pb.ClientSubRepInfo(
                    **ids, reportSubInfo=True, partSubInfo=[f"{ONE}#1:0,1:1"], lstAssignedTime=1
                ),
            ),
            ("ids", _pb.ClientSubRepInfo(**known, lstAssignedTime=1)),
        ):
            beat = _pb.HeartRequestC2MV2(**who, subRepInfo=sub)
            self.say(f"report {told}", lambda m=beat: call(methods.HEARTBEAT_CONSUMER_V2, m))
        self.ask_master("admin_query_consume_group_detail", group="bal")
        self.ask_master("admin_query_sub_info", groupName="bal")
        self.ask_master("admin_query_sub_info", topicName="nope")
        for group in ("bal", "zz"):
            bye = _pb.CloseRequestC2M(**who | {"groupName": group})
            self.say("close", lambda m=bye: call(methods.CLOSE_CONSUMER, m))
        self.ask_master("admin_query_consume_group_detail", consumeGroup="bal")

    def producers(self) -> None:
        call = self.master.call
        base = {"clientId": "p", "brokerCheckSum": -1, "hostName": "h"}
        register = _pb.RegisterRequestP2M
        for told, message in (
            ("register", register(**base)),
            ("system topic", register(**base, topicList=["__offset_history__"])),
            ("blank host", register(**base | {"hostName": " "})),
        ):
            self.say(told, lambda m=message: call(methods.REGISTER_PRODUCER, m))
        for told, fields in (
            ("beat", {"topicList": [ONE, TWO, "nope"]}),
            ("unknown", {"clientId": "p9", "topicList": [ONE]}),
        ):
            config = _pb.ApprovedClientConfig(configId=-2)
            message = _pb.HeartRequestP2M(**base | fields, appdConfig=config)
            self.say(told, lambda m=message: call(methods.HEARTBEAT_PRODUCER, m))
        for client in ("p", "x"):
            bye = _pb.CloseRequestP2M(clientId=client)
            self.say("close", lambda m=bye: call(methods.CLOSE_PRODUCER, m))

    def protocol_errors(self) -> None:
        get = methods.GET_MESSAGES
        fetch = _pb.GetMessageRequestC2B(clientId="a", partitionId=0, groupName="g", topicName="t")
        bye = _pb.CloseRequestP2M(clientId="x")
        for told, wire, method, message in (
            ("method 19", self.wire, dataclasses.replace(get, id=19), fetch),
            ("method 77", self.wire, dataclasses.replace(get, id=77), fetch),
            ("service 3", self.wire, dataclasses.replace(get, service=3), fetch),
            ("service 9", self.wire, dataclasses.replace(get, service=9), fetch),
            ("missing field", self.wire, get, _pb.RpcConnHeader(flag=0)),
            ("master's method", self.wire, methods.CLOSE_PRODUCER, bye),
            ("broker's method", self.master, get, fetch),
        ):
            self.say(told, lambda w=wire, d=method, m=message: w.call(d, m))

    # ------------------------------------------------------------------ a broker over HTTP

    def broker_offsets(self) -> None:
        ask = self.ask_broker
        self.http(self.broker_web, "broker.htm", {})
        ask("nonsense")
        self.register(ONE, 1, currOffset=0, groupName="web")
        self.wait_until_stable()
        ask("admin_query_offset", groupName="web")
        self.register(ONE, 1, groupName="web")
        self.wire.get(ONE, 1, groupName="web")
        ask("admin_query_offset", groupName="web")
        ask("admin_query_offset", groupName="web", topicName=TWO)
        ask("admin_query_offset", groupName="nope")
        ask("admin_query_offset", groupName="g")
        place = {"topicName": ONE, "groupName": "web", "partitionId": 1}
        for changed in (
            {},
            {"requireRealOffset": "true"},
            {"partitionId": 7},
            {"partitionId": "x"},
            {"topicName": "nope"},
            {"groupName": "newcomer"},
            {"groupName": "newcomer", "dko": "true"},
        ):
            ask("admin_query_group_offset", **place | changed)
        ask("admin_query_group_offset", topicName=ONE, groupName="web")
        self.say("commit", lambda: self.wire.commit(ONE, 1, groupName="web"))
        ask("admin_query_offset", groupName="web")
        ask("admin_get_group_detail_info", groupName="web")
        ask("admin_get_partition_reginfo")

    def broker_changes(self) -> None:
        ask = self.ask_broker
        place = {"topicName": ONE, "groupName": "web", "modifyUser": "uu", "partitionId": 1}
        for changed in (
            {"manualOffset": 28},
            {"manualOffset": 57},
            {"manualOffset": 99_999_999},
            {"manualOffset": -3},
            {"manualOffset": 0, "partitionId": 9},
            {"manualOffset": 0, "topicName": "nope"},
            {"manualOffset": 0, "modifyUser": ""},
            {"manualOffset": 56, "groupName": "unheard"},
        ):
            ask("admin_manual_set_current_offset", **place | changed)
        given = json.dumps({"1:one:1": 84, "1:one:0": 99_999_999, "2:one:1": 3, "1:one:77": 0})
        user = {"modifyUser": "uu"}
        for values in (
            {"groupName": "web,hhh", **user, "manualSet": "true", "offsetJsonInfo": given},
            {"groupName": "hhh", **user, "manualSet": "false", "topicName": ONE},
            {"groupName": "hhh", **user},
            {"groupName": "hhh", **user, "manualSet": "false"},
            {"groupName": "hhh", **user, "manualSet": "true", "offsetInfo": '{"x":1}'},
            {"groupName": "hhh", **user, "manualSet": "true"},
            {"groupName": "hhh", "manualSet": "false", "topicName": ONE},
            {**user, "manualSet": "true", "offsetJsonInfo": "{}"},
        ):
            ask("admin_set_offset", **values)
        for values in (
            {"sourceGroupName": "web", "targetGroupName": "kkk,lll", "topicName": ONE, **user},
            {"sourceGroupName": "nope", "targetGroupName": "kkk", **user},
            {"targetGroupName": "kkk", **user},
            {"sourceGroupName": "web", "targetGroupName": "kkk", "topicName": "nope", **user},
            {"sourceGroupName": "web", **user},
        ):
            ask("admin_clone_offset", **values)
        self.wait_until_stable()
        ask("admin_query_offset", groupName="web,hhh,kkk")
        for values in ({"groupName": "kkk", **user}, {"groupName": "kkk"}, user):
            ask("admin_rmv_offset", **values)

    def snapshots(self) -> None:
        for values in (
            {"topicName": TWO, "partitionId": 10_000},
            {"topicName": TWO, "partitionId": 10_000, "msgCount": 5},
            {"topicName": TWO, "partitionId": 10_001, "filterConds": "zz"},
            {"topicName": TWO, "partitionId": 9},
            {"topicName": TWO, "partitionId": -1},
            {"topicName": TWO, "msgCount": 2},
            {"topicName": TWO, "msgCount": 51},
            {"topicName": "nope"},
        ):
            self.ask_broker("admin_snapshot_message", **values)


def main() -> None:
    """Record a genuine server. Run it inside a network namespace."""
    from tools.devkit.tubemq.genuine import GenuineTubeMQ, TopicSpec

    topics = [TopicSpec(ONE, partitions=3), TopicSpec(TWO, stores=2, partitions=3)]
    with GenuineTubeMQ(topics=topics) as server:
        server.wait_accepting()
        host, port = server.broker_address
        dialogue = Dialogue(
            server.masters,
            f"{host}:{port}",
            server.master_web,
            server.broker_web,
            wait_until_stable=lambda: time.sleep(45),
            token=server.admin_token,
        )
        print(
            "## Apache InLong TubeMQ 2.4.0, recorded with "
            "`python -m tests.client.embedded.dialogue`"
        )
        print("\n".join(dialogue.run()))


if __name__ == "__main__":
    main()
