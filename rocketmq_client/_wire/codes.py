"""Request and response codes, and the answers of a request that are not refusals.

Numbers and names are those of upstream's `RequestCode.java` and `ResponseCode.java`
(`docs/rocketmq-protocol/wire.md#codes`). Only requests that this client sends or serves are listed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = [
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "PULL_NOTHING",
    "PULL_OFFSET_MOVED",
    "PULL_RETRY",
    "SUCCESS",
    "SYSTEM_BUSY",
    "SYSTEM_ERROR",
    "TOPIC_NOT_EXIST",
    "Method",
]

SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1
SYSTEM_BUSY: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 16
TOPIC_NOT_EXIST: Final = 17
PULL_NOTHING: Final = 19
PULL_RETRY: Final = 20
PULL_OFFSET_MOVED: Final = 21
QUERY_NOT_FOUND: Final = 22
SUBSCRIPTION_NOT_EXIST: Final = 24
INVALID_PARAMETER: Final = 29

STORED: Final = {0: "stored", 10: "flush_timeout", 11: "replica_missing", 12: "replica_timeout"}
"""Answers to a send by which the broker has stored the record."""


class Method(NamedTuple):
    """A request code, its upstream name, and the response codes that are answers, not refusals."""

    code: int
    name: str
    answers: frozenset[int] = frozenset({SUCCESS})


_PULLED = frozenset({SUCCESS, PULL_NOTHING, PULL_RETRY, PULL_OFFSET_MOVED})
_SENT = frozenset(STORED)

SEND_MESSAGE: Final = Method(10, "SEND_MESSAGE", _SENT)
PULL_MESSAGE: Final = Method(11, "PULL_MESSAGE", _PULLED)
QUERY_CONSUMER_OFFSET: Final = Method(14, "QUERY_CONSUMER_OFFSET", frozenset({SUCCESS, 22}))
UPDATE_CONSUMER_OFFSET: Final = Method(15, "UPDATE_CONSUMER_OFFSET")
UPDATE_AND_CREATE_TOPIC: Final = Method(17, "UPDATE_AND_CREATE_TOPIC")
UPDATE_BROKER_CONFIG: Final = Method(25, "UPDATE_BROKER_CONFIG")
GET_BROKER_CONFIG: Final = Method(26, "GET_BROKER_CONFIG")
GET_BROKER_RUNTIME_INFO: Final = Method(28, "GET_BROKER_RUNTIME_INFO")
SEARCH_OFFSET_BY_TIMESTAMP: Final = Method(29, "SEARCH_OFFSET_BY_TIMESTAMP")
GET_MAX_OFFSET: Final = Method(30, "GET_MAX_OFFSET")
GET_MIN_OFFSET: Final = Method(31, "GET_MIN_OFFSET")
VIEW_MESSAGE_BY_ID: Final = Method(33, "VIEW_MESSAGE_BY_ID")
HEART_BEAT: Final = Method(34, "HEART_BEAT")
UNREGISTER_CLIENT: Final = Method(35, "UNREGISTER_CLIENT")
CONSUMER_SEND_MSG_BACK: Final = Method(36, "CONSUMER_SEND_MSG_BACK")
GET_CONSUMER_LIST_BY_GROUP: Final = Method(38, "GET_CONSUMER_LIST_BY_GROUP")
LOCK_BATCH_MQ: Final = Method(41, "LOCK_BATCH_MQ")
UNLOCK_BATCH_MQ: Final = Method(42, "UNLOCK_BATCH_MQ")
CHECK_TRANSACTION_STATE: Final = Method(39, "CHECK_TRANSACTION_STATE")
NOTIFY_CONSUMER_IDS_CHANGED: Final = Method(40, "NOTIFY_CONSUMER_IDS_CHANGED")
PUT_KV_CONFIG: Final = Method(100, "PUT_KV_CONFIG")
GET_KV_CONFIG: Final = Method(101, "GET_KV_CONFIG")
DELETE_KV_CONFIG: Final = Method(102, "DELETE_KV_CONFIG")
GET_ROUTEINFO_BY_TOPIC: Final = Method(105, "GET_ROUTEINFO_BY_TOPIC")
GET_BROKER_CLUSTER_INFO: Final = Method(106, "GET_BROKER_CLUSTER_INFO")
GET_ALL_TOPIC_LIST: Final = Method(206, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER")
DELETE_TOPIC_IN_BROKER: Final = Method(215, "DELETE_TOPIC_IN_BROKER")
DELETE_TOPIC_IN_NAMESRV: Final = Method(216, "DELETE_TOPIC_IN_NAMESRV")
GET_KVLIST_BY_NAMESPACE: Final = Method(219, "GET_KVLIST_BY_NAMESPACE")
SEND_MESSAGE_V2: Final = Method(310, "SEND_MESSAGE_V2", _SENT)
SEND_BATCH_MESSAGE: Final = Method(320, "SEND_BATCH_MESSAGE", _SENT)
DELETE_EXPIRED_COMMITLOG: Final = Method(329, "DELETE_EXPIRED_COMMITLOG")
GET_TOPIC_CONFIG: Final = Method(351, "GET_TOPIC_CONFIG")
