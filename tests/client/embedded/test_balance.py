"""Server-balanced groups: assignments, their events, and their times."""

from __future__ import annotations

import pytest

from tests.client.embedded.conftest import BY_HAND
from tests.client.embedded.members import Player
from tests.client.embedded.rpc import Wire
from tubemq_client.embedded import EmbeddedTubeMQ, Switches
from tubemq_client.model import Partition
from tubemq_client.testing.clock import ManualClock

pytestmark = pytest.mark.timeout(60)

SHARED = {Partition(1, "shared", n) for n in range(3)}


def settle(mq: EmbeddedTubeMQ, *players: Player, rounds: int = 4) -> None:
    """Run rounds and heartbeats until nothing moves any more."""
    for _ in range(rounds):
        mq.balance()
        for _ in range(2):
            for player in players:
                player.step()


def test_a_member_gets_partitions_after_its_first_heartbeat(
    mq: EmbeddedTubeMQ, master: Wire
) -> None:
    player = Player(master)
    assert player.register().notAllocated
    mq.balance()
    assert not player.beat().HasField("event")

    round_id = mq.balance()
    reply = player.beat()
    assert (reply.event.rebalanceId, reply.event.opType) == (round_id, 10)
    assert not reply.event.HasField("status")
    address = mq.broker(1).address
    assert sorted(reply.event.subscribeInfo) == [f"c1@g#1:{address}#shared:{n}" for n in range(3)]
    assert reply.notAllocated

    assert not player.finish().notAllocated
    assert player.held == SHARED


def test_an_event_is_handed_out_once_and_blocks_the_group(mq: EmbeddedTubeMQ, master: Wire) -> None:
    first, second = Player(master), Player(master, "c2")
    first.register()
    first.beat()
    mq.balance()
    assert first.beat().HasField("event")
    assert not first.beat().HasField("event")

    second.register()
    second.beat()
    for _ in range(11):
        mq.balance()
        assert not second.beat().HasField("event")
        assert not first.beat().HasField("event")
    mq.balance()
    events = [player.beat().HasField("event") for player in (first, second)]
    assert any(events), "stale events are dropped after ten rounds"


def test_any_acknowledgement_removes_the_first_event(mq: EmbeddedTubeMQ, master: Wire) -> None:
    player = Player(master)
    player.register()
    player.beat()
    mq.balance()
    player.beat()
    player.event.rebalanceId = 4711
    player.finish()

    mq.balance()
    assert not player.beat().HasField("event")


def test_partitions_are_given_up_before_they_are_taken(mq: EmbeddedTubeMQ, master: Wire) -> None:
    first, second = Player(master), Player(master, "c2")
    first.register()
    settle(mq, first)
    assert first.held == SHARED
    second.register()
    second.beat()
    mq.balance()

    assert not second.beat().HasField("event")
    assert first.beat().event.opType == 20
    assert not second.beat().HasField("event")
    first.finish()
    assert second.beat().event.opType == 10
    second.finish()
    assert first.held | second.held == SHARED
    assert not first.held & second.held
    assert sorted(map(len, (first.held, second.held))) == [1, 2]


def test_a_silent_member_loses_everything(
    mq: EmbeddedTubeMQ, master: Wire, clock: ManualClock
) -> None:
    first, second = Player(master), Player(master, "c2")
    first.register()
    second.register()
    settle(mq, first, second)
    clock.advance(29_000)
    second.beat()
    clock.advance(1_000)
    mq.tick()
    settle(mq, second)

    assert second.held == SHARED
    refused = first.beat()
    assert (refused.errCode, refused.errMsg) == (
        411,
        "Update consumer node exception:Invalid node id:c1@g, you have to append node first!",
    )
    second.close()
    assert second.beat().errMsg == "Not found groupName g in holder!"


def test_a_report_replaces_what_the_master_believed(mq: EmbeddedTubeMQ, master: Wire) -> None:
    player = Player(master)
    player.register()
    settle(mq, player)
    player.held.discard(Partition(1, "shared", 2))
    player.beat(reportSubscribeInfo=True, subscribeInfo=player.report())
    mq.balance()

    [given] = player.beat().event.subscribeInfo
    assert given.endswith("#shared:2")


def test_a_registration_that_lists_partitions_keeps_them(mq: EmbeddedTubeMQ, master: Wire) -> None:
    player = Player(master)
    player.register()
    settle(mq, player)
    mq.forget_members()
    assert player.beat().errCode == 411

    assert not player.register(subscribeInfo=player.report()).notAllocated
    mq.balance()
    assert not player.beat().HasField("event")


def test_the_first_round_deals_blocks(mq: EmbeddedTubeMQ, master: Wire) -> None:
    first, second = Player(master), Player(master, "c2")
    for player in (first, second):
        player.register()
        player.beat()
    mq.balance()
    for player in (first, second):
        player.step()

    assert sorted(p.partition_id for p in first.held) == [0, 1]
    assert sorted(p.partition_id for p in second.held) == [2]


def test_without_a_hand_the_master_balances_by_itself() -> None:
    switches = Switches(balance_period_ms=20)
    with (
        EmbeddedTubeMQ(1, ["lone"], http=False, switches=switches) as mq,
        Wire(mq.masters) as wire,
    ):
        player = Player(wire)
        player.register("lone")
        for _ in range(5_000):
            player.step()
            if player.held:
                break
        assert len(player.held) == 1


def test_rounds_run_by_hand_only_if_configured() -> None:
    assert BY_HAND.balance_period_ms is None


# ------------------------------------------------------------------ bound groups


def bound(master: Wire, name: str, wanted: str, **fields: object) -> Player:
    terms = {
        "requireBound": True,
        "sessionKey": "key",
        "sessionTime": 1,
        "totalCount": 2,
        "requiredPartition": wanted,
        "notAllocated": True,
    }
    return Player(master, name, **terms | fields)


def test_listed_partitions_wait_for_all_and_go_to_the_winner(
    mq: EmbeddedTubeMQ, master: Wire
) -> None:
    first = bound(master, "c1", "1:shared:0=28,1:shared:1=28")
    first.register()
    first.beat()
    mq.balance()
    assert not first.beat().HasField("event")

    second = bound(master, "c2", "1:shared:1=56")
    second.register()
    second.beat()
    mq.balance()
    for player in (first, second):
        player.beat()
    assert [info.rpartition("#")[2] for info in first.event.subscribeInfo] == ["shared:0"]
    assert [info.rpartition("#")[2] for info in second.event.subscribeInfo] == ["shared:1"]
    first.finish()
    second.finish()
    settle(mq, first, second)
    assert first.held | second.held == SHARED


def test_the_smaller_offset_wins_if_asked(mq: EmbeddedTubeMQ, master: Wire) -> None:
    players = [
        bound(master, "c1", "1:shared:1=28", selectBig=False),
        bound(master, "c2", "1:shared:1=56", selectBig=False),
    ]
    for player in players:
        player.register()
        player.beat()
    mq.balance()

    assert [player.beat().HasField("event") for player in players] == [True, False]


def test_without_listed_partitions_no_member_waits(mq: EmbeddedTubeMQ, master: Wire) -> None:
    player = bound(master, "c1", "")
    player.register()
    player.beat()
    mq.balance()

    assert len(player.beat().event.subscribeInfo) == 3


def test_a_member_that_rejoins_keeps_its_offsets(mq: EmbeddedTubeMQ, master: Wire) -> None:
    first = bound(master, "c1", "1:shared:0=28")
    first.register()
    first.register(requiredPartition="1:shared:1=28")
    bound(master, "c2", "").register()
    first.beat()
    mq.balance()

    [given] = first.beat().event.subscribeInfo
    assert given.endswith("#shared:0")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"requireBound": False}, 424),
        ({"topicList": ["lone"], "requiredPartition": ""}, 425),
        ({"topicCondition": ["shared#a"]}, 426),
        ({"sessionKey": "other"}, 427),
        ({"selectBig": False}, 428),
        ({"totalCount": 3}, 429),
        ({"topicList": ["nope"]}, 431),
        ({"sessionKey": " "}, 400),
        ({"totalCount": 0}, 400),
        ({"requiredPartition": "1:shared:1=x"}, 400),
        ({"requiredPartition": "1:shared=1"}, 400),
        ({"requiredPartition": "1:shared:x=-5"}, 200),
        ({"requiredPartition": "1:lone:0=0"}, 400),
    ],
)
def test_members_must_agree(master: Wire, changed: dict[str, object], code: int) -> None:
    bound(master, "c1", "1:shared:0=28").register()

    assert bound(master, "c2", "1:shared:0=28").register(**changed).errCode == code
