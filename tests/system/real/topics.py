"""The topics of the genuine cluster that the whole test session shares.

A topic costs the same half minute alone or with others, so every suite takes its topics from here.
A test that needs to know *all* records of a topic takes a spare one, documented next to the
constant.
"""

from __future__ import annotations

from tests.system.conformance.servers import GENUINE_TOPICS as CONFORMANCE
from tools.devkit.tubemq.genuine import GenuineTubeMQ, TopicSpec

# Written to files and fsynced soon, so that windows meet memory, files and the border between them.
_SOON_ON_DISK = {"memCacheFlushIntvl": 4000, "unflushThreshold": 1}

ONE_STORE = TopicSpec("t_one", stores=1, partitions=3, options=_SOON_ON_DISK)
TWO_STORES = TopicSpec("t_two", stores=2, partitions=3, options=_SOON_ON_DISK)
SINGLE = TopicSpec("t_single", options=_SOON_ON_DISK)
MANY_STORES = TopicSpec("t_many", stores=3, options=_SOON_ON_DISK)

WIRE = TopicSpec("t_wire")  # test_wire_against_genuine.py
WIRE_SHARED = TopicSpec("t_wire_shared", partitions=3)  # test_wire_against_genuine.py
RESTART = TopicSpec("t_restart")  # test_genuine_server.py
FROM_JAVA = TopicSpec("t_from_java", partitions=2)  # test_java_exchange.py
TO_JAVA = TopicSpec("t_to_java")  # test_java_exchange.py
SHAPES = TopicSpec("t_shapes", partitions=2, options=_SOON_ON_DISK)  # test_java_shapes.py
SHAPES_LARGE = TopicSpec("t_shapes_large", options=_SOON_ON_DISK)  # test_java_shapes.py
EMPTY = TopicSpec("t_empty", partitions=2)  # never written

# tests/system/behaviour, which never depends on earlier records
BEHAVIOUR = (
    TopicSpec("b_shared", stores=1, partitions=3, options=_SOON_ON_DISK),
    TopicSpec("b_wide", stores=2, partitions=3, options=_SOON_ON_DISK),
    TopicSpec("b_single", options=_SOON_ON_DISK),
    TopicSpec("b_group", partitions=12, options=_SOON_ON_DISK),
    TopicSpec("b_large", options={"unflushThreshold": 1, "memCacheMsgSizeInMB": 16}),
)

BENCH_1K = TopicSpec("bench_1k")
BENCH_100 = TopicSpec("bench_100")

SPARES = tuple(
    TopicSpec(f"spare_{letter}", partitions=2, options=_SOON_ON_DISK) for letter in "abcdefgh"
)

# On both brokers of `two_brokers`, with partitions 1:0, 1:1, 2:0 and 2:1.
RETIRED = TopicSpec("pair_retired", partitions=2, options=_SOON_ON_DISK)  # test_retired_broker.py
# test_trouble_on_two_brokers.py
PAIR_TROUBLE = TopicSpec("pair_trouble", partitions=2, options=_SOON_ON_DISK)
PAIR_SPARES = tuple(
    TopicSpec(f"pair_{letter}", partitions=2, options=_SOON_ON_DISK) for letter in "abcd"
)
ON_TWO_BROKERS = (RETIRED, PAIR_TROUBLE, *PAIR_SPARES)

ALL = (
    *(ONE_STORE, TWO_STORES, SINGLE, MANY_STORES),
    *(WIRE, WIRE_SHARED, RESTART, FROM_JAVA, TO_JAVA, EMPTY),
    *(SHAPES, SHAPES_LARGE),
    *BEHAVIOUR,
    *(BENCH_1K, BENCH_100),
    *SPARES,
    *CONFORMANCE,
)


def booked_groups(cluster: GenuineTubeMQ) -> list[str]:
    """Return the groups with positions on the broker, however long ago they registered."""
    answer = cluster.query_broker("admin_get_booked_groupname")
    return sorted(name for item in answer["dataSet"] for name in item["groupName"])
