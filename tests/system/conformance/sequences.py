"""Table W: worked sequences on one partition, the heart of reading and confirming."""

from __future__ import annotations

from tests.system.conformance.rows import LONG, Row, ask, until

FROM_FILE = 101
"""Query priority of readers that see the file only."""

FSYNCED = 1

READABLE = 2**20 + 10 * 1024 - 52
"""Bytes of the largest record that is read from memory while the cluster's limit is 1 MiB."""

ROWS = (
    Row(
        "W1 a new group starts at min",
        "conf_w1",
        (
            ask("a.send_all", count=10),
            ask("a.register", readStatus=0),
            ask("a.get"),
            ask("a.commit", lastPackConsumed=True),
        ),
    ),
    Row(
        "W2 what is not confirmed comes again",
        "conf_w2",
        (
            ask("a.send_all", count=3),
            ask("a.register"),
            ask("a.get"),
            ask("a.get"),
        ),
    ),
    Row(
        "W3 a fetch at the end confirms the batch before",
        "conf_w3",
        (
            ask("a.send_all", count=3),
            ask("a.register"),
            ask("a.get"),
            ask("a.get", lastPackConsumed=True),
            ask("a.commit", lastPackConsumed=False),
        ),
    ),
    Row(
        "W4 reading ahead and rolling back",
        "conf_w4",
        (
            ask("a.send_all", count=14),
            until({"maxOffset": 392}, "a.register", qryPriorityId=FSYNCED),
            ask("a.register", qryPriorityId=FROM_FILE),
            ask("a.get", manualCommitOffset=True),
            ask("a.get", manualCommitOffset=True),
            ask("a.commit", lastPackConsumed=False),
            ask("a.get", manualCommitOffset=True),
            ask("a.commit", lastPackConsumed=True),
        ),
    ),
    Row(
        "W5 a lease ends by silence",
        "conf_w5",
        (
            ask("a.send_all", count=3),
            ask("a.register"),
            ask("a.get"),
            ask("b.register"),
            ask("hand.wait", seconds=36),
            ask("b.register"),
            ask("b.get"),
            ask("a.get"),
            ask("a.commit"),
        ),
        tags=frozenset({LONG}),
    ),
    Row(
        "W6 unregistering keeps or confirms",
        "conf_w6",
        (
            ask("a.send_all", count=3),
            ask("a.register"),
            ask("a.get"),
            ask("a.unregister", readStatus=1),
            ask("a.register"),
            ask("a.get"),
            ask("a.unregister", readStatus=0),
            ask("a.register"),
        ),
    ),
    Row(
        "W7 a partition that cannot be",
        "conf_w7",
        (
            ask("a.send", body=b"x", partition=5),
            ask("a.register", partition=5),
        ),
    ),
    Row(
        "W8 a store that is not declared",
        "conf_w7",
        (
            ask("a.send", body=b"x", partition=30_000),
            ask("a.register", partition=30_000),
        ),
    ),
    Row(
        "W9 others' records move the position",
        "conf_w9",
        (
            ask("a.send_all", count=5, partition=1),
            ask("a.register", partition=0),
            ask("a.get", partition=0),
            ask("a.commit", partition=0, lastPackConsumed=False),
        ),
    ),
    Row(
        "W10 from memory, the last batch ends where the store does",
        "conf_w10",
        (
            ask("a.send_all", count=14, partition=1),
            ask("a.send_all", count=6, partition=2),
            ask("a.register", partition=1),
            ask("a.get", partition=1),
            ask("a.commit", partition=1),
        ),
    ),
    Row(
        "W11 from file, it ends before, and empty answers lead to the store's end",
        "conf_w11",
        (
            ask("a.send_all", count=14, partition=1),
            ask("a.send_all", count=6, partition=2),
            until({"maxOffset": 560}, "a.register", partition=1, qryPriorityId=FSYNCED),
            ask("a.register", partition=1, qryPriorityId=FROM_FILE),
            ask("a.get", partition=1),
            ask("a.get", partition=1, lastPackConsumed=True),
            ask("a.commit", partition=1),
            ask("a.get", partition=1, lastPackConsumed=True),
            ask("a.commit", partition=1),
            ask("a.get", partition=1, lastPackConsumed=True),
            ask("a.get", partition=1, lastPackConsumed=True),
            ask("a.get", partition=1, lastPackConsumed=True),
            ask("a.commit", partition=1),
        ),
    ),
    Row(
        "W12 memory passes over records beyond the cluster's limit, files do not",
        "conf_w12",
        (
            ask(
                "change",
                method="admin_update_topic_control_info",
                topicName="$topic",
                maxMsgSizeInMB=2,
                modifyUser="uu",
            ),
            ask("a.send_all", count=1),
            until({"errCode": 200}, "a.send_size", size=READABLE + 1),
            ask("a.send_size", size=READABLE),
            ask("a.register", currOffset=28),
            ask("a.get"),
            ask("a.get", lastPackConsumed=True),
            ask("a.commit", lastPackConsumed=False),
            ask("a.unregister", readStatus=0),
            until({"maxOffset": 84}, "a.register", qryPriorityId=FSYNCED),
            ask("a.register", currOffset=28),
            ask("a.get"),
            ask("a.get", lastPackConsumed=True),
            ask("a.commit", lastPackConsumed=True),
            ask("a.send_size", size=2 * 2**20 + 10 * 1024 + 1),
        ),
        tags=frozenset({LONG}),
    ),
)
