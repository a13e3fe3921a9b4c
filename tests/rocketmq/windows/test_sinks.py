"""Every kind of sink stores RocketMQ's windows like TubeMQ's: once, killed or not, after
retries."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_client import Producer
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.kit.servers import embedded_rocketmq
from tests.rocketmq.windows.child import run_killed, run_window, sink_of
from tubemq_provider.sinks.read import published_windows

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytestmark = pytest.mark.timeout(90)

Rows = set[tuple[str, int, bytes]]


def of_delta(root: Path) -> list[dict[str, object]]:
    from deltalake import DeltaTable

    table_rows: list[dict[str, object]] = DeltaTable(f"{root}/delta").to_pyarrow_table().to_pylist()
    return table_rows


def of_iceberg(root: Path) -> list[dict[str, object]]:
    from pyiceberg.catalog import load_catalog

    uri = f"sqlite:///{root}/iceberg/catalog.db"
    table = load_catalog("lake", type="sql", uri=uri).load_table("sales.orders")
    table_rows: list[dict[str, object]] = table.scan().to_arrow().to_pylist()
    return table_rows


def of_jdbc(root: Path) -> list[dict[str, object]]:
    with sqlite3.connect(f"{root}/jdbc.db") as connection:
        rows = connection.execute('select "partition", "offset", "value" from orders').fetchall()
    return [dict(zip(("partition", "offset", "value"), row, strict=True)) for row in rows]


READERS: dict[str, Callable[[Path], list[dict[str, object]]]] = {
    "delta": of_delta,
    "iceberg": of_iceberg,
    "jdbc": of_jdbc,
}


rocketmq = embedded_rocketmq(1, brokers=2)


def produce(rocketmq: EmbeddedRocketMQ, first: int, last: int) -> Rows:
    with Producer(rocketmq.settings) as producer:
        bodies = [b"%d" % number for number in range(first, last)]
        sent = [(producer.send("orders", body, tags="t"), body) for body in bodies]
    return {(receipt.queue.key, receipt.offset, body) for receipt, body in sent}


def rows(root: Path, kind: str) -> Rows:
    """Return the rows that a reader of the sink's kind sees; none twice."""
    sink_rows = [
        (str(r["partition"]), int(str(r["offset"])), r["value"]) for r in READERS[kind](root)
    ]
    assert len(sink_rows) == len(set(sink_rows)), "a record came twice"
    return set(sink_rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("point", ["begin", "end"])
def test_a_window_killed_around_its_publication_is_stored_once(
    kind: str, point: str, rocketmq: EmbeddedRocketMQ, tmp_path: Path
) -> None:
    sent = produce(rocketmq, 0, 10)
    run_window(rocketmq.name_server, "orders", str(tmp_path), "first", kind=kind)
    sent |= produce(rocketmq, 10, 40)
    place = (rocketmq.name_server, "orders", str(tmp_path))
    run_killed(*place, "second", ("publish", point, 1), kind=kind)
    run_window(rocketmq.name_server, "orders", str(tmp_path), "second", kind=kind)
    again = run_window(rocketmq.name_server, "orders", str(tmp_path), "second", kind=kind)

    assert rows(tmp_path, kind) == sent
    assert again.replayed
    assert len(list(published_windows(sink_of(kind, str(tmp_path))))) == 2


def test_topics_whose_offsets_do_not_count_records_are_refused_before_anything_is_stored(
    rocketmq: EmbeddedRocketMQ, tmp_path: Path
) -> None:
    from rocketmq_client import Admin, errors

    attributes = {"compact": {"cleanup.policy": "COMPACTION"}, "batch": {"queue.type": "BatchCQ"}}
    with Admin(rocketmq.settings) as admin:
        for topic, attribute in attributes.items():
            admin.create_topic(topic, attributes=attribute)
    for topic in attributes:
        with pytest.raises(errors.UnsupportedTopic, match="kind"):
            run_window(rocketmq.name_server, topic, str(tmp_path / "refused"), "first")
    assert not list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("*cursor*"))
