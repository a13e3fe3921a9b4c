"""What the Airflow tests share: embedded clusters, connections to them, and a real Airflow.

The real Airflow (and the cluster it reads from) is started once per session, on loopback, by the
first test that asks for it. Such tests give every Dag a group and a directory of its own.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devkit.airflow.stack import AirflowStack, running_airflow
from tubemq_client import Partition, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.sync import Producer
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.sinks.read import published_windows, read_windows

TOPIC = "orders"
SECRET = "hush-hush"
REPOSITORY = Path(__file__).parents[3]
DRILL_DAGS = Path(__file__).parent / "dags"


@pytest.fixture
def mq() -> Iterator[EmbeddedTubeMQ]:
    """Two brokers, two stores of two partitions each; records are flushed by hand only."""
    topics = [TopicSpec(TOPIC, stores=2, partitions=2)]
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    with EmbeddedTubeMQ(brokers=2, topics=topics, switches=switches, http=False) as server:
        yield server


@pytest.fixture
def hook(mq: EmbeddedTubeMQ, monkeypatch: pytest.MonkeyPatch) -> TubeMQHook:
    """A hook whose connection comes from the environment, as Airflow allows."""
    connection = {"conn_type": "tubemq", "host": mq.masters, "extra": {"cluster": "test"}}
    monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
    return TubeMQHook()


@dataclass(frozen=True)
class Lake:
    """A directory of published windows, as a reader sees it."""

    root: Path

    @property
    def staging(self) -> Path:
        """Where tries work, out of sight of readers."""
        return self.root.with_name(f".{self.root.name}.tubemq-staging")

    def records(self) -> Counter[tuple[str, bytes]]:
        """How often each (partition, body) is there."""
        table = read_windows(self.root).to_table(columns=["partition", "value"]).to_pydict()
        return Counter(zip(table["partition"], table["value"], strict=True))

    def windows(self) -> list[str]:
        """Ids of the published windows."""
        return [marker.plan.window_id for marker in published_windows(self.root)]


class Cluster:
    """An embedded TubeMQ with one topic per test, and what was ever sent to it."""

    def __init__(self, server: EmbeddedTubeMQ) -> None:
        self.server = server
        self.settings = ClientConfig.parse({"masters": server.masters}).settings()
        self.sent: dict[str, Counter[tuple[str, bytes]]] = {}

    def add_topic(self, topic: str) -> None:
        self.server.add_topic(TopicSpec(topic, stores=1, partitions=2))
        self.sent[topic] = Counter()

    def produce(self, topic: str, bodies: Iterable[str]) -> dict[str, int]:
        """Spread records over all partitions and flush; ends by partition key, from receipts."""
        with Producer(self.settings) as producer:
            partitions: list[Partition] = producer.partitions(topic)
            records = [
                Record(body.encode(), partition=partitions[i % len(partitions)])
                for i, body in enumerate(bodies)
            ]
            receipts = list(producer.send_many(topic, records))
        for record, receipt in zip(records, receipts, strict=True):
            self.sent[topic][receipt.partition.key, record.body] += 1
        for broker_id in (1, 2):
            self.server.broker(broker_id).store(topic, 0).flush()
        ends = {r.partition.key: r.offset + 28 for r in receipts}
        return {p.key: ends.get(p.key, 0) for p in partitions}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster that the real Airflow reads from: two brokers, HTTP on, flushed by hand."""
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    with EmbeddedTubeMQ(brokers=2, switches=switches) as server:
        yield Cluster(server)


@pytest.fixture(scope="session")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the sinks of all real Dags lie, one directory each."""
    return tmp_path_factory.mktemp("lakes")


@pytest.fixture(scope="session")
def airflow(
    cluster: Cluster, lakes: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AirflowStack]:
    """A real Airflow over the example Dags and the drills, with the inline engine."""
    dags = tmp_path_factory.mktemp("dags")
    for file in (*(REPOSITORY / "dags").glob("*.py"), *DRILL_DAGS.glob("*.py")):
        shutil.copy(file, dags)
    (lakes / "sinks").mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{lakes}/sinks/cat.db", "note": SECRET}
    catalog["warehouse"] = f"file://{lakes}/sinks/iceberg"
    for topic in (TOPIC, "drill", "kills", "sense", "sinks", "deferred", "told"):
        cluster.add_topic(topic)
    connection = {
        "conn_type": "tubemq",
        "host": cluster.server.masters,
        "extra": {"cluster": "test", "admin_url": f"http://{cluster.server.master_web}"},
    }
    environment = {
        "TUBEMQ_EXAMPLE_CLUSTER": "test",
        "TUBEMQ_EXAMPLE_ENGINE": "inline",
        "TUBEMQ_EXAMPLE_INTERVAL_PATH": str(lakes / "hours"),
        "TUBEMQ_EXAMPLE_FOLLOW_PATH": str(lakes / "follow"),
        "TUBEMQ_EXAMPLE_RECORDS_PATH": str(lakes / "on_records"),
        "TUBEMQ_EXAMPLE_POLL_SECONDS": "2",
        "TUBEMQ_EXAMPLE_DELTA_SINK": f"delta:{lakes}/example_delta",
        "TUBEMQ_EXAMPLE_BOUNDARIES": str(lakes / "boundaries.json"),
        "TUBEMQ_DRILL_LAKES": str(lakes),
    }
    with running_airflow(
        dags,
        connections={
            "tubemq_default": connection,
            "lake_catalog": {"conn_type": "generic", "extra": catalog},
        },
        environment=environment,
        parallelism=4,
        root=tmp_path_factory.mktemp("airflow"),
        triggerer=True,
    ) as stack:
        yield stack
