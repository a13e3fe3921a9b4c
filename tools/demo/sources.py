"""Kinds of sources for the demo: server, producer, connection and Dag of each.

One table, `SOURCES`; the steps, the lake and the comparison are the same for all of them. Each kind
is served by a separate process, started like any other component. This module must not know the
steps of the demo.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from components import GROUP, REPOSITORY, TOPIC, Folder, run_command, say, serving
from flights import STREAM_FIELD, TIME_FIELD

__all__ = ["SOURCES", "TUBEMQ", "DemoSource", "Served"]

Served = Mapping[str, Any]
"""Content of a server's ready file."""

Produce = Callable[[Folder, Served, datetime, datetime], int]
"""Function that sends the rows of `[start, end)`, records the offsets of both instants in every
partition, and returns the number of rows."""

_BATCH: Final = 200


@dataclass(frozen=True)
class DemoSource:
    """A kind of source in the demo."""

    kind: str
    shape: str
    dag: str
    variables: str
    serve: Callable[[Folder], AbstractContextManager[Served]]
    connection: Callable[[Served], dict[str, object]]
    places: Callable[[Served], str]
    produce: Produce

    @property
    def connection_id(self) -> str:
        """Id of the connection, and alias of the cluster."""
        return f"{self.kind}_default"

    @property
    def offsets_asset(self) -> str:
        """Name of the asset with the group's windows."""
        return f"{self.kind}:{self.connection_id}/{TOPIC}/{GROUP}"


# TubeMQ: the commands that a user would type


TUBEMQ: Final = (sys.executable, "-m", "tubemq_client.cli")


@contextmanager
def _serve_tubemq(folder: Folder) -> Iterator[Served]:
    options = ("serve", "--brokers", "2", "--topic", f"{TOPIC}:2:2")
    say("$ tubemq " + " ".join(options))
    with serving(folder, [*TUBEMQ, *options]) as served:
        yield served


def _tubemq_connection(served: Served) -> dict[str, object]:
    extra = {"admin_url": served["master_web"]}
    return {"conn_type": "tubemq", "host": served["masters"], "extra": extra}


def _produce_to_tubemq(folder: Folder, served: Served, start: datetime, end: datetime) -> int:
    arguments = (
        *("produce", TOPIC, "--file", folder.flights),
        *("--stream-field", STREAM_FIELD, "--time-field", TIME_FIELD),
        *("--from", f"{start:%Y-%m-%d}", "--to", f"{end:%Y-%m-%d}"),
        *("--boundaries", folder.boundaries),
    )
    environment = {**os.environ, "TUBEMQ_MASTERS": served["masters"]}
    records: int = run_command("tubemq", [*TUBEMQ], arguments, environment)["records"]
    return records


# RocketMQ: the client itself, which has no command line


@contextmanager
def _serve_rocketmq(folder: Folder) -> Iterator[Served]:
    options = ("--brokers", "2", "--topic", f"{TOPIC}:2")
    say("$ python tools/demo/rocketmq_server.py " + " ".join(options))
    command = [sys.executable, str(REPOSITORY / "tools" / "demo" / "rocketmq_server.py"), *options]
    with serving(folder, command) as served:
        yield served


def _rocketmq_connection(served: Served) -> dict[str, object]:
    return {"conn_type": "rocketmq", "host": served["name_servers"]}


def _produce_to_rocketmq(folder: Folder, served: Served, start: datetime, end: datetime) -> int:
    """Send rows with carriers as tags; receipts before an instant give its boundary."""
    from rocketmq_client import OutgoingMessage, Producer
    from rocketmq_client.config import ClientConfig

    settings = ClientConfig.parse({"name_servers": served["name_servers"]}).settings()
    say(f"rows of {start:%Y-%m-%d} to {end:%Y-%m-%d} by rocketmq_client.Producer.send_batch")
    sent = 0
    with Producer(settings) as producer:
        for day, rows in groupby(_rows(folder, start, end), lambda item: item[0]):
            _note(folder, day, _ends(settings))
            messages = [OutgoingMessage(body, tags=carrier) for _, carrier, body in rows]
            for first in range(0, len(messages), _BATCH):
                producer.send_batch(TOPIC, messages[first : first + _BATCH])
            sent += len(messages)
    _note(folder, end, _ends(settings))
    return sent


def _rows(folder: Folder, start: datetime, end: datetime) -> Iterator[tuple[datetime, str, bytes]]:
    """Yield the day of each row, its carrier, and its bytes, in order of time."""
    with folder.flights.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            at = datetime.fromisoformat(row[TIME_FIELD])
            if start <= at < end:
                body = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
                day = at.astimezone(UTC).replace(hour=0, minute=0, second=0)
                yield day, row[STREAM_FIELD], body


def _ends(settings: Any) -> dict[str, int]:
    """Return the ends, which follow from the rows sent so far, because nothing else sends."""
    from rocketmq_client import Metadata

    with Metadata(settings) as metadata:
        ends = metadata.ends(TOPIC, stable=False)
    return {queue.key: end.max_offset for queue, end in ends.items()}


def _note(folder: Folder, at: datetime, offsets: Mapping[str, int]) -> None:
    path: Path = folder.boundaries
    boundaries = json.loads(path.read_text()) if path.exists() else {}
    boundaries.setdefault(f"{at:%Y-%m-%dT%H:%M:%SZ}", {TOPIC: dict(offsets)})
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(boundaries, indent=1))
    draft.replace(path)


SOURCES: Final = {
    source.kind: source
    for source in (
        DemoSource(
            kind="tubemq",
            shape="a TubeMQ: two brokers, two stores of two partitions on each",
            dag="tubemq_time_windows",
            variables="TUBEMQ_EXAMPLE",
            serve=_serve_tubemq,
            connection=_tubemq_connection,
            places=lambda s: f"masters {s['masters']}, administration {s['master_web']}",
            produce=_produce_to_tubemq,
        ),
        DemoSource(
            kind="rocketmq",
            shape="a RocketMQ: a name server and two brokers, two queues on each",
            dag="rocketmq_time_windows",
            variables="ROCKETMQ_EXAMPLE",
            serve=_serve_rocketmq,
            connection=_rocketmq_connection,
            places=lambda s: f"name server {s['name_servers']}",
            produce=_produce_to_rocketmq,
        ),
    )
}
"""By the value of `--source`."""
