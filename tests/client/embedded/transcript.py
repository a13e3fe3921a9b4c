"""Writes down a server's answers, in a form that does not depend on time, port or hash order.

`dialogue` sends the requests. Values that cannot be equal between two servers are replaced by a
star, lists that real servers keep in hash order are sorted, records of a fetch are counted; the
rest stays.
"""

from __future__ import annotations

import dataclasses
import json
import re
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from tests.client.embedded.rpc import BrokerWire, Wire
from tools.devkit.patience import PATIENCE
from tubemq_client.errors import RemoteException

VOLATILE = re.compile(
    r"(Date|serialId|lastRegTime|messageId|appendTime|ConfigId|CheckSum|topicMetaInfoId|topicMetaId"
    r"|Token|isConfChanged|Port|createUser|modifyUser|subStatus|stepOp)$"
)


class Grp(BrokerWire):
    client_id = "grp_127.0.0.1-1-1-1-Pull-test"
    group = "grp"


class Other(Grp):
    client_id = "grp_127.0.0.1-2-2-2-Pull-test"


@dataclasses.dataclass
class Transcript:
    """`wait_until_stable` makes all that was written stable, books every group, ends all leases."""

    masters: str
    broker: str
    master_web: str | None
    broker_web: str | None
    wait_until_stable: Callable[[], None]
    token: str = "abc"
    lines: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.master = Wire(self.masters, 20)
        self.wire = Grp(self.broker, 20)
        self.other = Other(self.broker, 20)

    def close(self) -> None:
        for wire in (self.master, self.wire, self.other):
            wire.close()

    def say(self, label: str, reply: Callable[[], Any] | Any) -> Any:
        try:
            found = reply() if callable(reply) else reply
            text = json.dumps(_plain(found))
        except RemoteException as error:
            found, text = None, f"{error.name}: {error.detail}"
        self.lines.append(f"{label} -> {text}")
        return found

    def get(self, topic: str, partition: int = 0, label: str = "get", **fields: Any) -> None:
        self.say(label, lambda: self.wire.get(topic, partition, **fields))

    def register(self, topic: str, partition: int = 0, **fields: Any) -> None:
        self.say(f"register {fields}", lambda: self.wire.register(topic, partition, **fields))

    def http(self, place: str | None, path: str, values: dict[str, Any]) -> None:
        query = urllib.parse.urlencode(values)
        with urllib.request.urlopen(
            f"http://{place}/{path}?{query}", timeout=20 * PATIENCE
        ) as reply:
            body = reply.read().decode()
        shown = {key: value for key, value in values.items() if key != "confModAuthToken"}
        self.lines.append(f"{shown} -> {_normal_body(body)}")

    def ask_master(self, method: str, **values: Any) -> None:
        self.http(self.master_web, "webapi.htm", {"method": method, **values})

    def change(self, method: str, **values: Any) -> None:
        self.ask_master(method, confModAuthToken=self.token, **values)

    def ask_broker(self, method: str, **values: Any) -> None:
        self.http(self.broker_web, "broker.htm", {"method": method, **values})


def _plain(value: Any) -> Any:
    """Return a reply as plain values: records counted, volatile fields blanked, lists kept."""
    if hasattr(value, "ListFields"):
        shown: dict[str, Any] = {}
        for field, content in value.ListFields():
            if field.name == "messages":
                shown["records"] = len(content)
            elif VOLATILE.search(field.name):
                shown[field.name] = "*"
            elif field.name == "errMsg" and content.isdecimal():
                shown["errMsg"] = "*"
            else:
                shown[field.name] = _plain(content)
        return shown
    if isinstance(value, str):
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:*", value)
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    return [_plain(item) for item in value]


def _normal_body(body: str) -> str:
    try:
        return json.dumps(_normal(json.loads(body)))
    except ValueError:
        return body.strip()


def _normal(value: Any, name: str = "") -> Any:
    if VOLATILE.search(name):
        return "*"
    if isinstance(value, dict):
        return {
            key: _normal(content, key)
            for key, content in value.items()
            if key not in ("BrokerRunStatusInfo", "stepOp")
        }
    if isinstance(value, list):
        rows = [_normal(item) for item in value]
        # Real servers list what they keep in hash order.
        return sorted(rows, key=json.dumps) if name in ("data", "dataSet") else rows
    if isinstance(value, str):
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:*", value)
    return value


def recorded(text: str) -> Iterator[str]:
    """Yield the lines of a recording, without its heading."""
    return (line for line in text.splitlines() if not line.startswith("##"))
