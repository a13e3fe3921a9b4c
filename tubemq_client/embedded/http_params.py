"""Parameters of the HTTP administration: long and short names, lists, types, and error texts.

Pure functions over a mapping of texts; shared by the master's and the brokers' methods. A bad value
raises `BadParameter` whose text is the `errMsg` of the reply. It knows names and types, not
methods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tubemq_client.embedded.records import TopicProps

__all__ = ["NUMBERS_OF_TOPICS", "BadParameter", "Params", "changed_props"]

_DELETE_POLICY = re.compile(r"delete,(\d{1,9})([smh]?)", re.ASCII)
_UNIT_S = {"s": 1, "m": 60, "h": 3600}
_MAX_RETENTION_S = 168 * 3600

_SHORT_NAMES = {
    "acceptPublish": "accPub",
    "acceptSubscribe": "accSub",
    "confModAuthToken": "authToken",
    "consumeGroup": "group",
    "createUser": "cur",
    "deletePolicy": "delPolicy",
    "filterConds": "flts",
    "groupName": "group",
    "manualOffset": "offset",
    "manualSet": "manSet",
    "memCacheFlushIntvl": "unfMemInt",
    "memCacheMsgCntInK": "unfMemMsgCnt",
    "memCacheMsgSizeInMB": "cacheSizeInMB",
    "modifyUser": "mur",
    "msgCount": "cnt",
    "numPartitions": "numPart",
    "numTopicStores": "numStore",
    "offsetJsonInfo": "offsetInfo",
    "onlyMemory": "onlyMem",
    "partitionId": "pid",
    "requireRealOffset": "dko",
    "sourceGroupName": "srcGroup",
    "targetGroupName": "tgtGroup",
    "topicName": "topic",
    "unflushDataHold": "unfDskDataSize",
    "unflushInterval": "unfDskInt",
    "unflushThreshold": "unfDskMsgCnt",
    "withTopic": "wTopic",
    "divide": "div",
    "brokerWebPort": "bWebPort",
}

NUMBERS_OF_TOPICS = {
    "numTopicStores": ("stores", 1),
    "numPartitions": ("partitions", 1),
    "unflushThreshold": ("unflush_threshold", 0),
    "unflushInterval": ("unflush_interval", 0),
    "unflushDataHold": ("unflush_data_hold", 0),
    "memCacheMsgSizeInMB": ("cache_mb", 2),
    "memCacheMsgCntInK": ("cache_count_k", 1),
    "memCacheFlushIntvl": ("cache_flush_ms", 4000),
}
"""Numbers among the properties of a topic: attribute of `TopicProps` and least value."""

MAX_ITEMS = 100
_NAME = re.compile(r"[a-zA-Z]\w+", re.ASCII)
_GROUP = re.compile(r"[a-zA-Z][\w-]+", re.ASCII)
_MAX_NAME_CHARS = 64
_MAX_GROUP_CHARS = 1024


class BadParameter(Exception):
    """A request error; the text goes into the reply."""


class Params:
    """Typed access to one request's parameters."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str | None:
        """Return the value without surrounding blanks and quotes, None if absent or blank."""
        raw = self._values.get(name)
        if raw is None and name in _SHORT_NAMES:
            raw = self._values.get(_SHORT_NAMES[name])
        if raw is None:
            return None
        value = raw.strip().removeprefix('"').removesuffix('"').strip()
        return value or None

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise BadParameter(f"Parameter {name} is missing or value is blank!")
        return value

    def number(self, name: str, default: int | None = None, *, least: int | None = 0) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        if not re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
            raise BadParameter(f"illegal value for {name}, value must only contain numbers")
        number = int(value)
        if least is not None and number < least:
            raise BadParameter(f"Parameter {name} value must >= {least}")
        return number

    def required_number(self, name: str, *, least: int | None = 0) -> int:
        self.required(name)
        number = self.number(name, least=least)
        assert number is not None, "present by the line above"
        return number

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return True for ``true`` and ``1``, False for any other value."""
        value = self.text(name)
        return default if value is None else value.lower() in ("true", "1")

    def items(self, name: str) -> list[str]:
        """Return the distinct parts of a comma-separated list; empty if absent."""
        value = self.text(name)
        parts = [part for item in (value or "").split(",") if (part := item.strip())]
        if len(parts) > MAX_ITEMS:
            raise BadParameter(f"{name}'s item count over max allowed count ({MAX_ITEMS})!")
        return list(dict.fromkeys(parts))

    def topics(self, *, required: bool = False) -> list[str]:
        return self._names("topicName", _NAME, _MAX_NAME_CHARS, required=required)

    def groups(self, name: str = "groupName", *, required: bool = False) -> list[str]:
        return self._names(name, _GROUP, _MAX_GROUP_CHARS, required=required)

    def broker_ids(self, *, required: bool = False) -> list[int]:
        if required:
            self.required("brokerId")
        ids = []
        for item in self.items("brokerId"):
            if not re.fullmatch(r"\d{1,10}", item, re.ASCII):
                raise BadParameter("illegal value for brokerId, value must only contain numbers")
            ids.append(int(item))
        return ids

    def user(self, name: str) -> str:
        """Return `createUser` or `modifyUser`: a name of at least two characters."""
        return self._checked(name, self.required(name), _NAME, _MAX_NAME_CHARS)

    def name(self, name: str) -> str | None:
        """Return a word in the form of a user's name, None if absent."""
        value = self.text(name)
        return None if value is None else self._checked(name, value, _NAME, _MAX_GROUP_CHARS)

    def json(self, name: str) -> Any:
        """Return a required JSON value."""
        text = self.required(name)
        try:
            return json.loads(text)
        except ValueError as error:
            raise BadParameter(
                f"Parameter {name} value parse failure, error is {error}!"
            ) from error

    def batch(self, name: str, defaults: Mapping[str, str] = MappingProxyType({})) -> list[Params]:
        """Return one `Params` per object of a JSON list, over `defaults` and the request's own
        values."""
        objects = self.json(name)
        if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
            raise BadParameter(
                f"Parameter {name} value parse failure, error is no list of objects!"
            )
        if not objects:
            raise BadParameter(f"Not found record in {name} parameter!")
        return [
            Params({**defaults, **self._values, **{k: _as_text(v) for k, v in item.items()}})
            for item in objects
        ]

    def _names(
        self, name: str, pattern: re.Pattern[str], limit: int, *, required: bool
    ) -> list[str]:
        if required:
            self.required(name)
        return [self._checked(name, item, pattern, limit) for item in self.items(name)]

    def _checked(self, name: str, item: str, pattern: re.Pattern[str], limit: int) -> str:
        if len(item) > limit:
            raise BadParameter(f"Parameter {name}'s length is over max allowed length ({limit})!")
        if not pattern.fullmatch(item):
            raise BadParameter(
                f"illegal value for {name}, value must begin with a letter, can only contain "
                f"English letters, numbers, {'hyphens, ' if pattern is _GROUP else ''}"
                "and underscores"
            )
        return item


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def changed_props(params: Params, props: TopicProps) -> TopicProps:
    """Return `props` with the request's changes."""
    numbers: dict[str, Any] = {
        attribute: value
        for name, (attribute, least) in NUMBERS_OF_TOPICS.items()
        if (value := params.number(name, least=least)) is not None
    }
    policy = params.text("deletePolicy")
    return replace(
        props,
        **numbers,
        accept_publish=params.flag("acceptPublish", default=props.accept_publish),
        accept_subscribe=params.flag("acceptSubscribe", default=props.accept_subscribe),
        delete_policy=_policy(policy) if policy else props.delete_policy,
    )


def _policy(text: str) -> str:
    """Return the retention policy in normal form."""
    match = _DELETE_POLICY.fullmatch(text.lower())
    if match is None:
        raise BadParameter(f"illegal value for deletePolicy: {text}")
    amount, unit = int(match[1]), match[2] or "h"
    if not 0 < amount * _UNIT_S[unit] <= _MAX_RETENTION_S:
        raise BadParameter(
            "The value of field DELETEPOLICY must be greater than 0 and  less than or equal to"
            f"{_MAX_RETENTION_S * 1000} seconds!"
        )
    return f"delete,{amount}{unit}"
