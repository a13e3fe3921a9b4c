"""Size limits of records: for a broker to store them, and for its readers to receive them.

The first limit is the topic's, or else the cluster's. The second is always the cluster's: a record
beyond it that a topic's wider limit allows is stored and acknowledged, and then skipped for all
readers that the broker serves from memory. Sizes are those of encoded records, attributes included.
Nothing is sent or counted here.
"""

from __future__ import annotations

from tubemq_client import errors

__all__ = ["READABLE_BEYOND_LIMIT", "check_record_size"]

READABLE_BEYOND_LIMIT = 10 * 1024 - 52
"""Bytes by which a record may exceed the cluster's limit and still be read from memory. It must not
take more than the limit and 10 KiB, with 52 bytes of overhead (`MsgMemStore.getMessages`,
`ClusterConfigHolder`; measured in tests/system/real/test_large_records.py)."""


def check_record_size(
    topic: str, size: int, topic_limit: int, cluster_limit: int, large_records: str
) -> None:
    """Raise `errors.ConfigError` for a record of `size` bytes that a broker would refuse or skip.

    ``large_records="send"`` allows a record that would be skipped.
    """
    problem = None
    readable = cluster_limit + READABLE_BEYOND_LIMIT
    if size > topic_limit:
        problem = (
            f"record of {size} bytes exceeds the limit of topic {topic!r}, {topic_limit} bytes"
        )
    elif size > readable and large_records != "send":
        problem = (
            f"record of {size} bytes: brokers pass over records of more than {readable} bytes "
            f"while they are in memory only, so a group that keeps up with topic {topic!r} would "
            "never get it. Raise the size limit of the cluster, not only the topic's, or send it "
            "all the same with large_records='send'"
        )
    if problem:
        raise errors.ConfigError(problem, subject="record")
