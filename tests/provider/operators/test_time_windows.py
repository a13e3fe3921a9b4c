"""Windows of time as a Dag author asks for them: which interval, which resolver, on a cluster."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import jinja2
import pendulum
import pytest
from airflow.sdk import DAG, CronPartitionTimetable
from airflow.sdk.execution_time import macros
from airflow.timetables.trigger import CronPartitionTimetable as CoreTimetable

from tests.provider.contexts import data_interval, fake_context
from tests.provider.grouped import grouped
from tests.provider.operators.test_operator import Silent
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.errors import ConfigError
from tubemq_client.testing.clock import ManualClock
from tubemq_provider.assets import offsets_asset
from tubemq_provider.decorators import tubemq_window_task
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.offsets.asset_state import AssetTimeline
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.operators.ingest import TubeMQWindowIngestOperator
from tubemq_provider.operators.intervals import Interval, run_interval
from tubemq_provider.operators.job import open_job
from tubemq_provider.operators.sample import TubeMQSampleEndsOperator
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.task_arguments import parse
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.run.result import WindowResult

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TOPIC = "orders"
HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BASE: dict[str, Any] = {
    "topic": TOPIC,
    "group": "lake",
    "path": "/lake",
    "cluster": "test",
    "mode": "time",
}


@dataclass
class Run:
    """A Dag run, as far as its interval goes."""

    conf: dict[str, Any] = field(default_factory=dict)


class TestWhichInterval:
    WINDOW = {"start": "2026-01-01T05:00:00Z", "end": "2026-01-01T08:00:00Z"}  # noqa: RUF012
    ASKED = (datetime(2026, 1, 1, 5, tzinfo=UTC), datetime(2026, 1, 1, 8, tzinfo=UTC))
    DATA = data_interval(NOON, NOON + HOUR)

    def test_a_requested_window_precedes_the_data_interval(self) -> None:
        run = Run({"tubemq_window": self.WINDOW})
        day = timedelta(days=1)
        assert run_interval({"dag_run": run, **self.DATA}, HOUR, longest=day) == self.ASKED
        params = {"tubemq_window": self.WINDOW}
        context = {"dag_run": Run(), "params": params, **self.DATA}
        assert run_interval(context, HOUR, longest=day) == self.ASKED

    def test_the_data_interval_precedes_the_partition(self) -> None:
        context = {**self.DATA, "partition_date": NOON - HOUR}
        assert run_interval(context, HOUR) == (NOON, NOON + HOUR)

    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
    def test_instants_of_airflow_become_the_standard_librarys(self, zone: str) -> None:
        """Pendulum's cannot be divided, and one with a zone adds lengths to what a clock shows."""
        start = datetime(2026, 10, 25, 2, 30, 1, 123456, tzinfo=ZoneInfo(zone), fold=1)
        end = start.astimezone(UTC) + HOUR
        partition = {"partition_date": pendulum.instance(start)}
        for context in (data_interval(start, end), partition):
            found = run_interval(context, HOUR)
            assert found == (start.astimezone(UTC), end)
            assert [(type(at), at.tzinfo) for at in found if at] == [(datetime, UTC)] * 2

    def test_a_partition_needs_a_length(self) -> None:
        point = {"data_interval_start": NOON, "data_interval_end": NOON, "partition_date": NOON}
        assert run_interval(point, HOUR) == (NOON, NOON + HOUR)
        assert run_interval(point, None) == (None, None)
        assert run_interval({}, HOUR) == (None, None)

    @pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Santiago", "UTC", "Asia/Kathmandu"])
    @pytest.mark.parametrize(
        ("cron", "granularity"),
        [
            ("0 0 * * *", timedelta(days=1)),
            ("0 0 * * *", None),
            ("30 2 * * *", None),
            ("0 */6 * * *", timedelta(hours=6)),
            ("15 * * * *", HOUR),
            ("0 0 1 * *", None),
            ("@weekly", timedelta(weeks=1)),
        ],
    )
    def test_partitions_of_a_timetable_tile_time(
        self, zone: str, cron: str, granularity: timedelta | None
    ) -> None:
        """Also where clocks change: each window ends where Airflow begins the next partition."""
        timetable = CronPartitionTimetable(cron, timezone=zone)
        core = CoreTimetable(timetable.expression, timezone=zone)
        earliest, latest = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 15, tzinfo=UTC)
        if cron == "15 * * * *":  # around the clock changes of spring
            earliest, latest = datetime(2026, 3, 25, tzinfo=UTC), datetime(2026, 4, 12, tzinfo=UTC)
        if cron == "0 */6 * * *":  # and of autumn
            earliest, latest = datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 10, 31, tzinfo=UTC)
        dates = [
            info.partition_date
            for info in core.iter_partition_dagrun_infos(earliest=earliest, latest=latest)
        ]
        assert len(dates) > 10
        dag = DAG("partitioned", schedule=timetable)
        for date, after in pairwise(dates):
            found = run_interval({"dag": dag, "partition_date": date}, granularity)
            assert found == (date, after)

    def test_a_length_that_is_not_the_partitions_is_refused(self) -> None:
        dag = DAG("partitioned", schedule=CronPartitionTimetable("0 0 * * *", timezone="UTC"))
        midnight = NOON - 12 * HOUR
        with pytest.raises(ConfigError, match="is not the length of the Dag's partitions"):
            run_interval({"dag": dag, "partition_date": midnight}, HOUR)
        with pytest.raises(ConfigError, match="no partition begins at 2026-01-01T12"):
            run_interval({"dag": dag, "partition_date": NOON}, None)

    def test_days_that_no_timetable_counts_are_refused_with_a_way_out(self) -> None:
        context = {"partition_date": pendulum.instance(NOON), "macros": macros}
        with pytest.raises(ConfigError, match="CronPartitionTimetable") as caught:
            run_interval(context, timedelta(days=1))
        start, end = re.findall(r'"({{.*?}})"', str(caught.value))
        rendered = {
            name: jinja2.Template(text).render(context)
            for name, text in (("start", start), ("end", end))
        }
        arguments = parse(IngestArguments, {**BASE, "boundaries": {}, **rendered})
        assert (arguments.start, arguments.end) == (NOON, NOON + timedelta(days=1))

    @pytest.mark.parametrize(
        "window",
        [
            "yesterday",
            {"start": "2026-01-01T05:00:00Z"},
            {"start": "2026-01-01T05:00:00", "end": "2026-01-01T06:00:00Z"},
            {"start": "2026-01-01T06:00:00Z", "end": "2026-01-01T05:00:00Z"},
            {"start": "2026-01-01T06:00:00Z", "end": "9999-12-31T23:59:59-05:00"},
        ],
    )
    def test_a_wrong_window_is_not_passed_over(self, window: Any) -> None:
        with pytest.raises(ConfigError, match="tubemq_window"):
            run_interval({"dag_run": Run({"tubemq_window": window}), **self.DATA}, None)

    def test_an_argument_of_no_year_in_utc_is_refused_by_its_name(self) -> None:
        given = {"start": "0001-01-01T00:00:00+05:00", "end": "2026-01-01T05:00:00Z"}
        with pytest.raises(ConfigError, match=r"start: \S+ is in no year from 1 to 9999 in UTC"):
            parse(IngestArguments, {**BASE, "boundaries": {}, **given})


class TestArguments:
    @pytest.mark.parametrize(
        "arguments",
        [
            {"resolver": "timeline", "late_allowance": "PT5M"},
            {"resolver": "history", "history_group": "other", "late_allowance": 60},
            {"resolver": "message_time", "message_zone": "Europe/Berlin", "granularity": HOUR},
        ],
    )
    def test_accepted(self, arguments: dict[str, Any]) -> None:
        assert parse(IngestArguments, {**BASE, **arguments}).by == arguments["resolver"]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"boundaries": {}, "late_allowance": 5}, "late_allowance has no effect"),
            ({"resolver": "timeline", "history_group": "g1"}, "history_group has no effect"),
            ({"resolver": "history", "boundaries": {}}, "boundaries has no effect"),
            ({"resolver": "message_time", "message_zone": "Mars"}, "is not a time zone"),
            ({"resolver": "timeline", "late_allowance": -5}, "late_allowance -1 day"),
            ({"resolver": "timeline", "granularity": 0}, "granularity 0:00:00 is zero"),
            ({"mode": "cursor", "granularity": HOUR}, "granularity has no effect"),
            ({"resolver": "timeline", "granularity": "P1M"}, "months and years have no length"),
            ({"resolver": "timeline", "granularity": "p1y2dT3H"}, "months and years"),
        ],
    )
    def test_refused(self, arguments: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError) as caught:
            parse(IngestArguments, {**BASE, **arguments})
        assert said in str(caught.value)

    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
    def test_instants_become_the_standard_librarys(self, zone: str) -> None:
        start = datetime(2026, 10, 25, 2, 30, 1, 123456, tzinfo=ZoneInfo(zone), fold=1)
        given = {"start": pendulum.instance(start), "end": start.astimezone(UTC) + HOUR}
        found = parse(IngestArguments, {**BASE, "resolver": "timeline", **given})
        assert (found.start, found.end) == (start.astimezone(UTC), given["end"])
        assert (type(found.start), found.start.tzinfo) == (datetime, UTC)  # type: ignore[union-attr]


class TestPlace:
    @pytest.mark.parametrize(
        "path", ["/lake/{{ ds }}", "{{ params.root }}/orders", "{{ ts[:10] }}"]
    )
    @pytest.mark.parametrize("resolver", ["timeline", "history", "message_time"])
    def test_a_sink_per_run_is_refused_if_boundaries_are_fixed_in_it(
        self, path: str, resolver: str
    ) -> None:
        with pytest.raises(ConfigError, match="gives each run another sink"):
            ingest_of(path=path, resolver=resolver)

    @pytest.mark.parametrize(
        "options",
        [
            {"path": "/lake/{{ ds }}", "boundaries": {}},
            {"path": "/lake/{{ var.value.name }}", "resolver": "history"},
            {"path": "{{ conn.lake.extra_dejson.root }}/{{ dag.dag_id }}", "resolver": "timeline"},
            {"path": "/lake/orders", "resolver": "message_time"},
        ],
    )
    def test_one_sink_of_all_runs_may_be_a_template(self, options: dict[str, Any]) -> None:
        assert ingest_of(**options).mode == "time"


def ingest_of(**options: Any) -> TubeMQWindowIngestOperator:
    names = {"task_id": "ingest", "topic": TOPIC, "group": "lake"}
    return TubeMQWindowIngestOperator(**names, **grouped(**options))


class State(dict[str, Any]):
    """An asset's state as its accessor gives it."""

    def set(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))

    def delete(self, key: str) -> None:
        self.pop(key, None)


class OnACluster:
    """A cluster, asset state, and runs of the sampling and the ingesting task."""

    @pytest.fixture(autouse=True)
    def _world(self, mq: EmbeddedTubeMQ, hook: TubeMQHook, tmp_path: Path) -> None:
        self.mq, self.hook, self.root = mq, hook, tmp_path / "lake"
        self.journal, self.state, self.runs = MemoryJournal(), State(), 0

    def produce(self, count: int, minute: str | None = None) -> None:
        partitions = [Partition(b, TOPIC, p) for b in (1, 2) for p in (0, 1, 10000, 10001)]
        records = [Record(b"x", msg_time=minute, partition=p) for p in partitions[:count]]
        list(self.hook.produce(TOPIC, records))

    def flush(self) -> None:
        for broker in (1, 2):
            self.mq.broker(broker).flush()

    def sample(self, stores: Collection[str] = ("1/0", "1/1", "2/0", "2/1")) -> None:
        """One run of the sampling task."""
        task = TubeMQSampleEndsOperator(task_id="s", topic=TOPIC, group="lake", cluster="test")
        found = task.execute({"asset_state_store": {task.offsets_asset: self.state}})  # type: ignore[typeddict-item]
        assert set(found["ends"]) == set(stores)

    def instant(self) -> datetime:
        """Return an instant between two samples."""
        self.sample()
        time.sleep(0.005)
        moment = datetime.now(UTC)
        time.sleep(0.005)
        self.sample()
        return moment

    def run(self, start: datetime, end: datetime, /, **arguments: Any) -> WindowResult:
        """One run of the ingesting task, which Airflow gives its interval."""
        return self.run_of(run_interval(data_interval(start, end), None), **arguments)

    def run_of(self, interval: Interval, **arguments: Any) -> WindowResult:
        """One run for an interval as the scheduler has it."""
        self.runs += 1
        given = {**BASE, "path": str(self.root), "engine": "inline", **arguments}
        with ExitStack() as stack:
            job = open_job(
                parse(IngestArguments, given),
                self.hook,
                interval,
                stack,
                timeline=AssetTimeline(self.state).load_timeline,
            )
            store = MemoryOffsetStore(self.journal, task=f"run {self.runs}")
            return job.run(store, attempt=str(self.runs), serialised=False, observer=Silent())


class TestOnACluster(OnACluster):
    def test_samples_in_asset_state_cut_time_windows(self) -> None:
        times = []
        for count in (8, 7, 6):
            self.produce(count)
            times.append(self.instant())
        soon = datetime.now(UTC)
        with pytest.raises(WindowNotReady, match="no sample at or after"):
            self.run(times[0], soon, resolver="timeline")
        with pytest.raises(WindowNotReady, match="the stable end is 0"):
            self.run(times[0], times[1], resolver="timeline")
        self.flush()
        assert self.run(times[1], times[2], resolver="timeline").total == 6
        assert self.run(times[0], times[1], resolver="timeline").total == 7
        assert self.run(times[0], times[1], resolver="timeline").replayed
        assert len(read_windows(self.root).to_table()) == 13

    def test_message_times_cut_time_windows(self) -> None:
        for minute in ("202601011159", "202601011200", "202601011230", "202601011300"):
            self.produce(8, minute)
        self.flush()
        result = self.run(NOON, NOON + HOUR, resolver="message_time", late_allowance=60)
        assert result.total == 16
        shifted = {"resolver": "message_time", "message_zone": "Etc/GMT-1", "group": "other"}
        shifted["on_other_scope"] = "start_anew"
        assert self.run(NOON - HOUR, NOON, **shifted).total == 16

    def test_instants_of_pendulum_cut_them_too(self) -> None:
        """In the task's arguments, and as the interval of a run from another scheduler."""
        self.produce(8)
        times = [pendulum.instance(self.instant())]
        self.produce(7)
        times.append(pendulum.instance(self.instant()))
        self.flush()
        given = {"start": times[0], "end": times[1], "resolver": "timeline"}
        assert self.run(NOON, NOON + HOUR, **given).total == 7
        assert self.run_of((times[0], times[1]), resolver="timeline").replayed

    def test_a_decorated_function_gets_the_window_of_a_data_interval(self) -> None:
        times = [self.instant()]
        self.produce(7)
        times.append(self.instant())
        self.flush()
        given = {**BASE, "resolver": "timeline", "markers": str(self.root)}

        @tubemq_window_task(**{name: given[name] for name in given if name != "path"})
        def report(window: Any) -> int:
            return len(list(window.messages()))

        with DAG("d", schedule=None) as dag:
            report()
        task: Any = dag.get_task("report")
        kept: dict[Any, Any] = {task.offsets_asset: self.state}
        context = fake_context(task, kept, **data_interval(*times))
        assert type(task).execute.__wrapped__(task, context)["returned"] == 7

    def test_a_dead_broker_delays_windows_until_it_is_back(self) -> None:
        times = [self.instant()]
        self.produce(8)
        self.flush()
        self.mq.broker(2).stop()
        self.sample({"1/0", "1/1"})
        times.append(datetime.now(UTC))
        time.sleep(0.005)
        self.sample({"1/0", "1/1"})
        with pytest.raises(WindowNotReady, match=r"2/0: .*no sample at or after"):
            self.run(times[0], times[1], resolver="timeline")
        self.mq.broker(2).restart()
        self.sample()
        assert self.run(times[0], times[1], resolver="timeline").total == 8

    def test_a_retired_broker_delays_no_window(self) -> None:
        times = [self.instant()]
        self.produce(8)
        times.append(self.instant())
        self.flush()
        assert self.run(times[0], times[1], resolver="timeline").total == 8
        self.produce(8)
        self.flush()
        self.mq.broker(2).stop()
        times.append(datetime.now(UTC))
        time.sleep(0.005)
        self.sample({"1/0", "1/1"})
        with pytest.raises(WindowNotReady, match="retire test/orders/lake"):
            self.run(times[1], times[2], resolver="timeline")
        sink = ParquetSink(self.root)
        ScopeBook(sink.boundaries, WindowScope("test", TOPIC, "lake", sink.identity)).retire(2)
        assert self.run(times[1], times[2], resolver="timeline").total == 4
        self.mq.broker(2).restart()
        times.append(self.instant())
        assert self.run(times[2], times[3], resolver="timeline").total == 4
        assert len(read_windows(self.root).to_table()) == 16

    def test_message_time_waits_for_a_dead_broker_too(self) -> None:
        self.produce(8, "202601011230")
        self.flush()
        self.mq.broker(2).stop()
        with pytest.raises(WindowNotReady, match="2:0: ConnectError"):
            self.run(NOON, NOON + HOUR, resolver="message_time")
        self.mq.broker(2).restart()
        assert self.run(NOON, NOON + HOUR, resolver="message_time").total == 8

    def test_the_sampling_task_has_the_offsets_asset_as_inlet_only(self) -> None:
        task = TubeMQSampleEndsOperator(task_id="s", topic=TOPIC, group="lake", cluster="test")
        assert task.inlets == [offsets_asset("test", TOPIC, "lake")]
        assert task.outlets == []
        with pytest.raises(ConfigError, match="names the offsets asset"):
            TubeMQSampleEndsOperator(task_id="t", topic="{{ x }}", group="lake")


class TestHistoryOnACluster(OnACluster):
    """On brokers that record their groups every minute of a clock that stands still."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def mq(self, clock: ManualClock) -> Iterator[EmbeddedTubeMQ]:
        switches = Switches(flush_interval_ms=0, lease_scan_ms=None, history_period_ms=60_000)
        topics = [TopicSpec(TOPIC, stores=2, partitions=2)]
        with EmbeddedTubeMQ(2, topics, switches=switches, http=False, clock=clock) as server:
            yield server

    def scan(self, clock: ManualClock) -> datetime:
        """Let the brokers record their groups, and advance the clock by half a minute."""
        clock.advance(60_000)
        self.mq.tick()
        return datetime.fromtimestamp(clock() / 1000, UTC) + timedelta(seconds=30)

    def test_the_brokers_history_cuts_time_windows(self, clock: ManualClock) -> None:
        before = datetime.fromtimestamp(clock() / 1000, UTC)
        with pytest.raises(ConfigError, match="history_group"):
            self.run(before, before + HOUR, resolver="history")
        times = []
        for count in (8, 7, 6, 5):
            times.append(self.scan(clock))
            self.produce(count)
        self.scan(clock)
        assert self.run(times[1], times[2], resolver="history").total == 6
        assert self.run(times[0], times[1], resolver="history").total == 7
        assert self.run(times[2], times[3], resolver="history").total == 5
        with pytest.raises(WindowNotReady, match="no sample at or after"):
            self.run(times[3], times[3] + HOUR, resolver="history")
        with pytest.raises(ConfigError, match="before its first record"):
            self.run(before, times[0], resolver="history")
        assert len(read_windows(self.root).to_table()) == 18
