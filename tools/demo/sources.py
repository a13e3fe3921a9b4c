"""What the demo can move: per kind of source how it is served, how rows get in, and which Dag runs.

One table, `SOURCES`; the play, the lake and the judgement are the same for all of them. A kind is
served by a process of its own, started like any other part. This module must not know what the play
does with it.
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

from flights import STREAM_FIELD, TIME_FIELD
from stage import GROUP, REPOSITORY, TOPIC, Folder, said, say, serving

__all__ = ["SOURCES", "DemoSource", "Served"]

Served = Mapping[str, Any]
"""What a server said of itself when it was ready."""

Produce = Callable[[Folder, Served, datetime, datetime], int]
"""Sends the rows of `[start, end)`, notes where both instants are in every partition, and says how
many rows they were."""

_BATCH: Final = 200


@dataclass(frozen=True)
class DemoSource:
    """A kind of source on the stage."""

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
        """The connection's id, and the cluster's alias."""
        return f"{self.kind}_default"

    @property
    def offsets_asset(self) -> str:
        """Where the group's windows are told."""
        return f"{self.kind}:{self.connection_id}/{TOPIC}/{GROUP}"


# TubeMQ: the commands that a user would type


_TUBEMQ: Final = (sys.executable, "-m", "tubemq_client.cli")


@contextmanager
def _serve_tubemq(folder: Folder) -> Iterator[Served]:
    options = ("serve", "--brokers", "2", "--topic", f"{TOPIC}:2:2")
    say("$ tubemq " + " ".join(options))
    with serving(folder, [*_TUBEMQ, *options]) as served:
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
    found: int = said("tubemq", [*_TUBEMQ], arguments, environment)["records"]
    return found


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
    """Tags are carriers; the receipts of what lies before an instant say where it is."""
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
    """The day of each row, its carrier, and its bytes, in order of time."""
    with folder.flights.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            at = datetime.fromisoformat(row[TIME_FIELD])
            if start <= at < end:
                body = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
                day = at.astimezone(UTC).replace(hour=0, minute=0, second=0)
                yield day, row[STREAM_FIELD], body


def _ends(settings: Any) -> dict[str, int]:
    """Nothing else sends: what is there is what was sent so far."""
    from rocketmq_client import Metadata

    with Metadata(settings) as metadata:
        ends = metadata.ends(TOPIC, stable=False)
    return {queue.key: found.max_offset for queue, found in ends.items()}


def _note(folder: Folder, at: datetime, offsets: Mapping[str, int]) -> None:
    path: Path = folder.boundaries
    known = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault(f"{at:%Y-%m-%dT%H:%M:%SZ}", {TOPIC: dict(offsets)})
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(known, indent=1))
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
"""By the word of `--source`."""
