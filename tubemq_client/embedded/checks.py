"""Refusals of a handler, with TubeMQ's code and text or as an RPC-level exception; shared checks.

Pure functions and two exceptions, used by the master's and the brokers' RPC handlers. The
exceptions never leave the embedded server: `rpc` turns them into replies.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "INVOCATION_FAILURE",
    "OFFSET_HISTORY_TOPIC",
    "STANDBY",
    "Refused",
    "RpcFault",
    "check_client_id",
    "check_group",
    "check_host",
    "check_published_topics",
    "check_topic",
    "check_topics",
]

OFFSET_HISTORY_TOPIC = "__offset_history__"
INVOCATION_FAILURE = "java.lang.reflect.InvocationTargetException"
STANDBY = "org.apache.inlong.tubemq.corerpc.exception.StandbyException"

MAX_ID_CHARS = 1024
MAX_HOST_CHARS = 256
MAX_TOPIC_CHARS = 64
MAX_TOPICS = 1024


class Refused(Exception):
    """A normal reply with a code other than 200."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(f"{code} {text}")


class RpcFault(Exception):
    """An RPC-level exception: `name` is the Java class, `detail` its message."""

    def __init__(self, name: str, detail: str = "", *, fatal: bool = False) -> None:
        self.name = name
        self.detail = detail
        self.fatal = fatal
        super().__init__(f"{name}: {detail}")


def check_client_id(value: str) -> str:
    return _required("clientId", value, MAX_ID_CHARS)


def check_group(value: str) -> str:
    return _required("groupName", value, MAX_ID_CHARS)


def check_host(value: str) -> str:
    return _required("hostName", value, MAX_HOST_CHARS)


def check_topic(value: str) -> str:
    return _required("topicName", value, MAX_TOPIC_CHARS)


def check_topics(values: Iterable[str]) -> list[str]:
    """Return a consumer's topics, in order: blank ones are dropped, at least one must be left."""
    named = list(values)
    if not named:
        raise Refused(400, "Request miss necessary subscribed topicList data!")
    topics = list(dict.fromkeys(topic for value in named if (topic := value.strip())))
    if not topics:
        raise Refused(400, "Request subscribed topicList data must not Blank!")
    _check_count(len(topics))
    return topics


def check_published_topics(values: Iterable[str]) -> frozenset[str]:
    """Return a producer's topics; an empty list is valid."""
    topics = frozenset(topic for value in values if (topic := value.strip()))
    _check_count(len(topics))
    if OFFSET_HISTORY_TOPIC in topics:
        raise Refused(
            400, f"System Topic {OFFSET_HISTORY_TOPIC} does not allow client produce data!"
        )
    return topics


def _check_count(count: int) -> None:
    if count > MAX_TOPICS:
        raise Refused(
            400, f"Booked topic's count over max value, required max count is {MAX_TOPICS}"
        )


def _required(name: str, value: str, limit: int) -> str:
    text = value.strip()
    if not text:
        raise Refused(400, f"Request miss necessary {name} data!")
    if len(text) > limit:
        raise Refused(400, f"{name}'s length over max value, allowed max length is {limit}")
    return text
