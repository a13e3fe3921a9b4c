"""Position of a group for sensors and watchers, in whichever stores it has been."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.provider.contexts import accept, fake_context
from tests.provider.offsets.accessors import LedgerState
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_provider.assets import offsets_asset
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.group_position import group_position
from tubemq_provider.offsets.ledger.tables import metadata
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator
from tubemq_provider.operators.offsets import TubeMQOffsetsOperator
from tubemq_provider.sensors.lag import TubeMQLagSensor
from tubemq_provider.windows.cursor import cursor_in_use

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TOPIC = "orders"
WHAT = {"topic": TOPIC, "group": "lake", "cluster": "test"}
ASSET = offsets_asset("test", TOPIC, "lake")


class Asynchronous:
    """State of an asset as a trigger has it."""

    def __init__(self, state: LedgerState) -> None:
        self.state = state

    async def aget(self, key: str, default: Any = None) -> Any:
        return self.state.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        self.state.set(key, value)


class Life:
    """A group's runs, one after the other, and what is seen of it between them."""

    def __init__(self, hook: TubeMQHook, mq: EmbeddedTubeMQ, root: Path) -> None:
        engine = sa.create_engine(f"sqlite:///{root}/airflow.db")
        metadata.create_all(engine)
        self.hook, self.mq, self.root = hook, mq, root
        self.state = LedgerState(engine, ASSET.name)
        self.kept: dict[Any, Any] = {ASSET: self.state}
        self.runs = 0

    def produce(self, count: int) -> None:
        partition = Partition.from_key(TOPIC, "1:0")
        list(self.hook.produce(TOPIC, [Record(b"x", partition=partition)] * count))
        self.mq.broker(1).store(TOPIC, 0).flush()

    def run(self, task: Any) -> Any:
        self.runs += 1
        context = fake_context(task, self.kept, run=f"r{self.runs}")
        context["ti"].get_dagrun_state = lambda *_: "success"
        done = type(task).execute.__wrapped__(task, context)
        accept(context, self.kept)
        return done

    def ingest(self, store: str) -> int:
        options = {"engine": "inline", "initial_position": "earliest", "offset_store": store}
        path = str(self.root / "lake")
        task = TubeMQCursorIngestOperator(task_id="ingest", path=path, **WHAT, **options)
        return int(self.run(task)["total"])

    def watched(self) -> int:
        return asyncio.run(group_position(Asynchronous(self.state))).accepted["1:0"]

    def lag(self) -> int:
        sensor = TubeMQLagSensor(task_id="lag", **WHAT)
        found = sensor.poke(fake_context(sensor, self.kept)).xcom_value
        assert isinstance(found, dict)
        return int(found["lag"])


@pytest.fixture
def life(hook: TubeMQHook, mq: EmbeddedTubeMQ, tmp_path: Path) -> Life:
    return Life(hook, mq, tmp_path)


def test_a_sensor_sees_where_a_group_of_the_ledger_was_set(life: Life) -> None:
    life.produce(5)
    assert life.lag() == 5
    assert life.ingest("ledger") == 5
    assert life.lag() == 0
    back = {"action": "set", "to": "earliest", "offset_store": "ledger"}
    life.run(TubeMQOffsetsOperator(task_id="back", **WHAT, **back))
    assert life.lag() == 5
    assert life.ingest("ledger") == 5
    assert life.lag() == 0


def test_a_group_that_has_left_the_ledger_is_seen_where_it_is_now(life: Life) -> None:
    """At its old position a watcher rings for ever, for runs that find nothing."""
    life.produce(5)
    assert life.ingest("ledger") == 5
    life.produce(3)
    assert life.ingest("asset_state") == 3
    assert (life.watched(), life.lag()) == (8 * 28, 0)
    life.produce(2)
    assert life.lag() == 2


@pytest.mark.parametrize(
    ("kept", "claimed", "counts"),
    [
        ({"seq": 3}, None, "kept"),
        (None, {"seq": 3}, "claimed"),
        ({"seq": 3}, {"seq": 3}, "claimed"),
        ({"seq": 4}, {"seq": 3}, "kept"),
        ({"seq": 9}, {"seq": 1, "epoch": "second", "past": [""]}, "claimed"),
        ({"seq": 1, "epoch": "second", "past": [""]}, {"seq": 9}, "kept"),
        ({"seq": "many"}, {"seq": 1}, "kept"),  # edited: a user has to see it
    ],
)
def test_the_ledger_counts_unless_it_is_behind(kept: Any, claimed: Any, counts: str) -> None:
    assert cursor_in_use(kept, claimed) is (kept if counts == "kept" else claimed)
