"""Resources that a request names: its topic and consumer groups, in its header or its body.

Pure; `access` compares them with allow-lists. Heartbeats and locks name groups and topics in
bodies, which are parsed only for that. Brokers parse JSON more leniently (other spellings of a key,
references, repeated keys), so a body that a broker could read differently is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from rocketmq_client._wire.bodies import RETRY_PREFIX
from rocketmq_client.errors import ProtocolViolation

__all__ = [
    "HEARTBEAT",
    "Named",
    "group_in",
    "groups_in",
    "named_in_body",
    "origin_in",
    "topic_in",
]

HEARTBEAT: Final = 34
_SEND_BACK: Final = 36
_CHANGE_GROUP: Final = 200
_LOCKS: Final = frozenset({41, 42})
_SHORT_SENDS: Final = frozenset({310, 320})
_NAMES: Final = ("consumerDataSet", "groupName", "subscriptionDataSet", "topic")
_NAMES_OF_LOCKS: Final = ("consumerGroup", "mqSet", "topic")
_DISGUISE: Final = re.compile(r"[^a-z0-9]+")


class Named(NamedTuple):
    """Topics and consumer groups. A group's retry topic, which every push consumer subscribes to,
    is not among the topics."""

    topics: frozenset[str]
    groups: frozenset[str]


def topic_in(code: int, fields: Mapping[str, Any]) -> Any:
    """Return the topic that a header names, or None."""
    return fields.get("b") if code in _SHORT_SENDS else fields.get("topic")


def group_in(code: int, fields: Mapping[str, Any]) -> Any:
    """Return the group that a header names, of consumers or of producers, or None."""
    producers = fields.get("a") if code in _SHORT_SENDS else fields.get("producerGroup")
    return fields.get("consumerGroup") or fields.get("group") or producers


def origin_in(code: int, fields: Mapping[str, Any]) -> Any:
    """Return the topic whose record is sent back; empty if the header does not name it, None for
    other requests."""
    return (fields.get("originTopic") or "") if code == _SEND_BACK else None


def groups_in(fields: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return the consumer groups that a header names, or None: requests read one or the other."""
    return fields.get("consumerGroup"), fields.get("group"), fields.get("groupName")


def named_in_body(code: int, body: bytes) -> Named:
    """Return the resources in the body of a heartbeat, a lock or a change of a group; none for
    other requests. Raises `errors.ProtocolViolation` for a body that cannot be checked."""
    if code == HEARTBEAT:
        body_object = _read(body, _NAMES)
        members = list(_items(body_object, "consumerDataSet"))
        groups = [_word(member, "groupName") for member in members]
        sets = [list(_items(member, "subscriptionDataSet")) for member in members]
    elif code in _LOCKS:
        body_object = _read(body, _NAMES_OF_LOCKS)
        groups, sets = [_word(body_object, "consumerGroup")], [list(_items(body_object, "mqSet"))]
    elif code == _CHANGE_GROUP:
        group = _word(_read(body, ("groupName",)), "groupName")
        return Named(frozenset(), frozenset({group}))
    else:
        return Named(frozenset(), frozenset())
    topics = {
        topic
        for group, items in zip(groups, sets, strict=True)
        for topic in (_word(item, "topic") for item in items)
        if topic != RETRY_PREFIX + group
    }
    return Named(frozenset(topics), frozenset(groups))


def _read(body: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the object in a body, in standard JSON, in which each of `names` has one spelling."""
    plain = {_folded(name): name for name in names}

    def judged(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            raise ValueError("a key is repeated")
        for key in members:
            if key.startswith(("$", "@")) or plain.get(_folded(key), key) != key:
                raise ValueError(f"key {key[:40]!r} may mean another key to a broker")
        return members

    try:
        found = json.loads(body.decode(), object_pairs_hook=judged)
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"the body cannot be judged: {error}") from error
    if not isinstance(found, dict):
        raise ProtocolViolation("the body cannot be judged: it is no JSON object")
    return found


def _folded(key: str) -> str:
    return _DISGUISE.sub("", key.casefold())


def _items(members: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    value = members.get(name)
    if not isinstance(value, list | None):
        raise ProtocolViolation(f"the body cannot be judged: {name} is not a list")
    for item in value or ():
        if not isinstance(item, dict):
            raise ProtocolViolation(f"the body cannot be judged: {name} does not contain objects")
        yield item


def _word(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not value:
        raise ProtocolViolation(f"the body cannot be judged: {name} is not text")
    return value
