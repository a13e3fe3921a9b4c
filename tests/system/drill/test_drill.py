"""The drill's audit: it finds each kind of damage, and its seed determines the victims.

A drill that reports everything as clean would be worse than none, so each kind of damage is done to
a small lake and must be counted.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tools.drill.audit import Audit, audit_lake, audit_writer, windows_in_events
from tools.drill.cluster import ENTRY, Log, read_log
from tools.drill.kill_plan import TaskKey, plan_of
from tools.drill.totals import Round, Totals
from tools.drill.work import Boundaries, quotas
from tubemq_client import Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.sync import Producer
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts

LOG = Log({"1:0": [(n * ENTRY, b"record %d" % n) for n in range(12)]})
SPAN = {"1:0": (0, 12 * ENTRY)}


class Lake:
    """Explicit windows of one partition, with the rows that a test wants in them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sink = ParquetSink(root)
        self.events: list[dict[str, object]] = []

    def publish(
        self, start: int, end: int, rows: list[int], *, event: bool = True, epoch: str = ""
    ) -> None:
        scope = WindowScope("c", "drill", "mapped", self.sink.identity, epoch=epoch)
        plan = WindowPlan.explicit(scope, {"1:0": (start * ENTRY, end * ENTRY)})
        staging = self.sink.begin(plan, "a")
        values = [b"record %d" % n for n in rows]
        table = pa.table({"partition": ["1:0"] * len(rows), "value": values})
        pq.write_table(table, Path(staging.path) / "part.parquet")
        counts = IngestCounts({"1:0": len(rows)}, 1)
        assert self.sink.publish(staging, plan, counts, lambda _: None).won
        if event:
            self.events.append({"extra": {"tubemq": {"window_id": plan.window_id}}})

    def audit(self) -> Audit:
        return audit_lake(self.root, LOG, SPAN, windows_in_events(self.events))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "mapped")


def test_a_whole_lake_is_clean(lake: Lake) -> None:
    lake.publish(0, 6, [0, 1, 2, 3, 4, 5])
    lake.publish(6, 12, [6, 7, 8, 9, 10, 11])
    found = lake.audit()
    assert (found.windows, found.records, found.problems) == (2, 12, [])
    assert found.clean


@pytest.mark.parametrize(
    ("first", "second", "damage"),
    [
        ((0, 6, [0, 1, 2, 3, 4]), (6, 12, [6, 7, 8, 9, 10, 11]), (1, 0, 0)),
        ((0, 6, [0, 1, 2, 3, 4, 5]), (6, 12, [6, 7, 8, 9, 10, 10, 11]), (0, 1, 0)),
        ((0, 6, [0, 1, 2, 3, 4, 5]), (6, 12, [6, 7, 8, 9, 10, 3]), (1, 1, 0)),
        ((0, 6, [0, 1, 2, 3, 4, 5]), (7, 12, [7, 8, 9, 10, 11]), (0, 0, 1)),
        ((0, 6, [0, 1, 2, 3, 4, 5]), (5, 12, [5, 6, 7, 8, 9, 10, 11]), (0, 1, 1)),
        ((0, 6, [0, 1, 2, 3, 4, 5]), (6, 11, [6, 7, 8, 9, 10]), (0, 0, 1)),
    ],
    ids=["lost", "twice in a window", "of another window", "hole", "overlap", "ends early"],
)
def test_damage_is_counted(
    lake: Lake,
    first: tuple[int, int, list[int]],
    second: tuple[int, int, list[int]],
    damage: tuple[int, int, int],
) -> None:
    lake.publish(*first)
    lake.publish(*second)
    found = lake.audit()
    assert (found.lost, found.duplicated, found.gaps) == damage
    assert found.problems
    assert not found.clean


def test_a_window_without_a_commit_event_is_unaccounted(lake: Lake) -> None:
    lake.publish(0, 6, [0, 1, 2, 3, 4, 5])
    lake.publish(6, 12, [6, 7, 8, 9, 10, 11], event=False)
    assert lake.audit().unaccounted == 1


def test_an_empty_lake_is_one_gap(lake: Lake) -> None:
    assert lake.audit().gaps == 1


def test_each_life_of_a_lake_is_judged_by_its_own_log(lake: Lake) -> None:
    lake.publish(0, 12, [*range(12)])
    lake.publish(0, 6, [20, 21, 22, 23, 24, 25], epoch="life-2")
    anew = Log({"1:0": [(n * ENTRY, b"record %d" % (20 + n)) for n in range(6)]})
    named = windows_in_events(lake.events)
    first = audit_lake(lake.root, LOG, SPAN, named)
    second = audit_lake(lake.root, anew, {"1:0": (0, 6 * ENTRY)}, named, "life-2")
    assert first.clean
    assert second.clean
    assert (first.windows, second.windows) == (1, 1)
    assert not audit_lake(lake.root, LOG, SPAN, named, "life-2").clean


def test_intervals_start_again_with_recreated_logs(tmp_path: Path) -> None:
    cuts = Boundaries(tmp_path / "boundaries.json")
    for end in (0, 1, 2):
        cuts.cut({"1:0": end * 20 * ENTRY}, 20)
    cuts.recreate_logs(2)
    assert cuts.intervals == 0
    for end in (0, 1, 2, 3, 4, 5):
        cuts.cut({"1:0": end * 20 * ENTRY}, 20)
    # Minute 3 is no beginning where intervals are of two minutes.
    assert cuts.intervals == 2
    assert [f"{at:%H:%M}" for at in cuts.interval(0)] == ["00:04", "00:06"]
    assert cuts.span(2, 0) == {"1:0": (0, 40 * ENTRY)}
    assert cuts.span(2, 1) == {"1:0": (20 * ENTRY, 100 * ENTRY)}


def test_the_log_is_read_from_the_files_of_a_server_that_has_stopped(tmp_path: Path) -> None:
    with EmbeddedTubeMQ(2, [TopicSpec("drill", partitions=2)], data_dir=tmp_path) as server:
        settings = ClientConfig.parse({"masters": server.masters}).settings()
        with Producer(settings) as producer:
            sent = [Record(b"record %d" % n) for n in range(50)]
            receipts = list(producer.send_many("drill", sent))
    log = read_log(tmp_path)
    for record, receipt in zip(sent, receipts, strict=True):
        found = log.between(receipt.partition.key, receipt.offset, receipt.offset + ENTRY)
        assert found == [record.body]
    assert audit_writer([log], 50) == []
    assert "1 records never reached a log" in audit_writer([log], 51)[0]


def test_a_doom_follows_from_seed_and_task() -> None:
    tasks = [TaskKey("d", f"r{n}", -1, 1) for n in range(1000)]
    plans = [plan_of("7", 0.3, task, spark=True) for task in tasks]
    assert plans == [plan_of("7", 0.3, task, spark=True) for task in tasks]
    assert plans != [plan_of("8", 0.3, task, spark=True) for task in tasks]
    hit = [plan for plan in plans if plan]
    assert 200 < len(hit) < 400
    assert {plan.victim for plan in hit} == {"task", "supervisor", "jvm", "python-worker"}
    assert all(plan_of("7", 1.0, TaskKey("d", "r", -1, 4), spark=False) is None for _ in "x")


def test_totals_add_up_and_are_continued(tmp_path: Path) -> None:
    path = tmp_path / "tally.json"
    tally = Totals.load(path, "7")
    tally.add(Round(1, "7/1", inline=10, spark=2, hit=6, kills={"task": 5, "jvm": 1}))
    tally.add(Round(2, "7/2", inline=8, hit=4, kills={"task": 4}, replayed=3))
    again = Totals.load(path, "7")
    assert again.totals() == json.loads(path.read_text())["totals"]
    assert again.totals()["kills"] == {"jvm": 1, "task": 9}
    assert (again.totals()["inline"], again.totals()["share"], again.clean) == (18, 0.5, True)
    again.add(Round(3, "7/3", inline=1, repairs=1, problems=["failed: d r"]))
    assert not again.clean
    assert "round 3: failed: d r" in again.report()
    with pytest.raises(ValueError, match="seed 7"):
        Totals.load(path, "8")


@pytest.mark.parametrize(("inline", "spark"), [(20, 4), (167, 10), (1, 0)])
def test_windows_are_spread_over_the_dags(inline: int, spark: int) -> None:
    found = quotas(inline, spark)
    assert sum(quota.target for quota in found if not quota.spark) == inline
    assert sum(quota.target for quota in found if quota.spark) == spark
    assert {quota.kind for quota in quotas(20, 4)} == {"intervals", "mapped", "cursor"}
