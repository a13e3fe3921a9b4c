"""The ingest operator as a Dag author meets it, and its job on an embedded cluster."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tests.provider.contexts import accept, fake_context
from tests.provider.grouped import grouped
from tests.provider.offsets.accessors import Event, Inlet, State
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError
from tubemq_provider.assets import offsets_asset, sink_asset
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest import progress
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.job import IngestJob
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.operators.job import open_job
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.task_arguments import parse
from tubemq_provider.windows.errors import NoInitialPosition, WindowError, WindowNotReady
from tubemq_provider.windows.run.result import WindowResult

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TOPIC = "orders"
HOURS = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(3)]


def operator(kind: Any = TubeMQCursorIngestOperator, **arguments: Any) -> Any:
    given = {"topic": TOPIC, "group": "lake", "path": "/lake", "cluster": "test", **arguments}
    return kind(task_id="ingest", **grouped(**given))


class Forgetful(State):
    """Task state that fails whenever progress is written."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def set(self, key: str, value: Any) -> None:
        if key == "progress":
            self.told.append(value)
            raise RuntimeError("the API server is away")
        super().set(key, value)


class Counted(State):
    """State that notes each request."""

    def __init__(self, requests: list[str]) -> None:
        super().__init__()
        self.requests = requests

    def get(self, key: str, default: Any = None) -> Any:
        self.requests.append(f"get {key.partition('/')[0]}")
        return super().get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.requests.append(f"set {key.partition('/')[0]}")
        super().set(key, value)


def execute(task: Any, context: Any) -> Any:
    """Run `task` outside of Airflow's task runner, which its guard would refuse."""
    return type(task).execute.__wrapped__(task, context)


class TestInADag:
    def test_the_offsets_asset_is_inlet_and_outlet_and_the_sink_an_outlet(self) -> None:
        asset = offsets_asset("test", TOPIC, "lake")
        assert operator().inlets == [asset]
        assert operator().outlets == [asset, sink_asset("/lake")]

    def test_a_templated_path_has_no_asset(self) -> None:
        assert operator(path="{{ var.value.lake }}").outlets == [
            offsets_asset("test", TOPIC, "lake")
        ]

    def test_what_the_author_declares_is_kept(self) -> None:
        other = sink_asset("/other")
        assert operator(outlets=[other]).outlets[0] == other

    def test_cursor_mode_is_serialised_and_time_mode_is_not(self) -> None:
        assert operator().max_active_tis_per_dag == 1
        windows = operator(TubeMQWindowIngestOperator, boundaries="/boundaries.json")
        assert windows.max_active_tis_per_dag is None

    def test_the_authors_own_cap_is_kept(self) -> None:
        assert operator(max_active_tis_per_dag=4).max_active_tis_per_dag == 4
        with DAG("d", schedule=None, default_args={"max_active_tis_per_dag": 2}):
            assert operator().max_active_tis_per_dag == 2

    @pytest.mark.parametrize(
        "position", ["stable", {"1:0": "stable"}, '{"orders":{"1:0":"stable"}}']
    )
    def test_the_stable_end_is_refused_where_runs_may_overlap(self, position: object) -> None:
        assert operator(initial_position=position).max_active_tis_per_dag == 1
        with pytest.raises(ConfigError, match="'stable' needs max_active_tis_per_dag=1"):
            operator(initial_position=position, max_active_tis_per_dag=4)

    @pytest.mark.parametrize(
        ("given", "named"),
        [
            ({"initial_position": "latest"}, "initial_position"),
            ({"initial_position": '{"orders":{"1:0":"latest"}}'}, "initial_position"),
            ({"new_partition_position": "latest"}, "new_partition_position"),
            (
                {
                    "kind": TubeMQWindowIngestOperator,
                    "starting_offsets": {"1:0": 0},
                    "ending_offsets": {"1:0": "latest"},
                },
                "ending_offsets",
            ),
        ],
    )
    def test_latest_means_the_stable_end_and_warns_once(
        self, given: dict[str, Any], named: str
    ) -> None:
        with pytest.warns(DeprecationWarning, match=f"{named}.*write 'stable'") as told:
            operator(**given)
        assert [warning.filename for warning in told] == [__file__]

    def test_the_alias_defaults_to_the_connection_id(self) -> None:
        task = operator(cluster=None, tubemq_conn_id="mq_eu")
        assert task.inlets == [offsets_asset("mq_eu", TOPIC, "lake")]

    def test_mistakes_show_when_the_dag_is_parsed(self) -> None:
        with pytest.raises(ConfigError) as caught:
            operator(group="{{ ds }}", gap_policy="ignore", max_records=0)
        assert len(caught.value.problems) == 3

    def test_defaults_of_the_dag_apply(self) -> None:
        with DAG("d", schedule=None, default_args={"group": "shared", "tubemq_conn_id": "mq"}):
            task = TubeMQCursorIngestOperator(task_id="t", topic=TOPIC, path="/lake")
        assert task.inlets == [offsets_asset("mq", TOPIC, "shared")]

    def test_template_fields_are_attributes(self) -> None:
        task = operator()
        assert all(hasattr(task, name) for name in task.template_fields)


def mapped(**partial: Any) -> TubeMQCursorIngestOperator:
    """Return the task that a worker creates from a mapped one."""
    given = {"topic": TOPIC, "group": "lake", "cluster": "test", **partial}
    with DAG("mapped", schedule=None):
        task = TubeMQCursorIngestOperator.partial(task_id="ingest", **given).expand(path=["/lake"])
    made = task.unmap({"path": "/lake"})
    assert isinstance(made, TubeMQCursorIngestOperator)
    return made


def test_a_task_killed_before_its_job_exists_writes_nothing(
    hook: TubeMQHook, tmp_path: Path
) -> None:
    task = operator(path=str(tmp_path / "lake"), engine="inline", initial_position="earliest")
    asset = offsets_asset("test", TOPIC, "lake")
    names = ("asset_state_store", "inlet_events", "outlet_events")
    accessors: dict[str, Any] = {name: {asset: {}} for name in names}
    instance = SimpleNamespace(id="try", dag_id="d", run_id="r", task_id="ingest", map_index=-1)
    task.on_kill()
    with pytest.raises(WindowError, match="killed"):
        execute(task, {**accessors, "ti": instance, "task_state_store": None})
    assert not (tmp_path / "lake").exists()


class TestMapped:
    def test_the_worker_adds_nothing_that_the_scheduler_has_not_seen(self) -> None:
        task = mapped(initial_position="stable")
        assert (task.inlets, task.outlets, task.max_active_tis_per_dag) == ([], [], None)

    def test_it_fails_with_the_arguments_to_pass(self, hook: TubeMQHook) -> None:
        context: Any = {"ti": None}
        with pytest.raises(AirflowFailException) as caught:
            execute(mapped(), context)
        said = str(caught.value)
        assert "inlets=[a], outlets=[a], and max_active_tis_per_dag=1 to .partial()" in said
        assert "offsets_asset('test', 'orders', 'lake')" in said

    def test_an_asset_that_the_author_built_is_known_by_name_and_uri(
        self, scene: Scene, hook: TubeMQHook
    ) -> None:
        ours = offsets_asset("test", TOPIC, "lake")
        asset = Asset(name=ours.name, uri=ours.uri)
        assert asset != ours, "its group is another one"
        task = mapped(inlets=[asset], outlets=[asset], max_active_tis_per_dag=1)
        names = ("asset_state_store", "inlet_events", "outlet_events")
        accessors: dict[str, Any] = {name: {ours: {}} for name in names}
        instance = SimpleNamespace(id="try", dag_id="d", run_id="r", task_id="i", map_index=0)
        assert task._store({**accessors, "ti": instance, "task_state_store": None}) is not None
        own = operator(inlets=[asset], outlets=[asset, Asset(name="/lake", uri="/lake")])
        assert own.inlets == [asset]
        assert [other.name for other in own.outlets].count(ours.name) == 1

    def test_what_partial_declares_counts(self) -> None:
        asset = offsets_asset("test", TOPIC, "lake")
        task = mapped(inlets=[asset], outlets=[asset], max_active_tis_per_dag=1)
        assert (task.inlets, task.outlets, task.max_active_tis_per_dag) == ([asset], [asset], 1)


class Outlets:
    """Events of the sink's asset."""

    extra: dict[str, Any] = {}  # noqa: RUF012


class Silent:
    def at(self, step: Any, point: str) -> None:
        pass


class Scene:
    """A hook, a directory and a store in which jobs run one after the other."""

    def __init__(self, hook: TubeMQHook, mq: EmbeddedTubeMQ, root: Path) -> None:
        self.hook, self.mq, self.root = hook, mq, root
        self.journal = MemoryJournal()
        self.runs = 0

    def produce(self, count: int, *, flush: bool = True) -> None:
        partitions = [Partition(b, TOPIC, p) for b in (1, 2) for p in (0, 1, 10_000, 10_001)]
        records = [Record(b"%d" % i, partition=partitions[i % 8]) for i in range(count)]
        list(self.hook.produce(TOPIC, records))
        if flush:
            self.flush()

    def flush(self) -> None:
        for broker in (1, 2):
            for store in (0, 1):
                self.mq.broker(broker).store(TOPIC, store).flush()

    def job(self, interval: Any = (None, None), **arguments: Any) -> IngestJob:
        given = {"topic": TOPIC, "group": "lake", "path": str(self.root), "cluster": "test"}
        checked = parse(IngestArguments, {**given, "engine": "inline", **arguments})
        return open_job(checked, self.hook, interval, ExitStack())

    def run(self, interval: Any = (None, None), **arguments: Any) -> WindowResult:
        self.runs += 1
        store = MemoryOffsetStore(self.journal, task=f"run {self.runs}")
        job = self.job(interval, **arguments)
        return job.run(store, attempt=str(self.runs), serialised=True, observer=Silent())

    def rows(self) -> int:
        return int(read_windows(self.root).count_rows())


@pytest.fixture
def scene(hook: TubeMQHook, mq: EmbeddedTubeMQ, tmp_path: Path) -> Scene:
    return Scene(hook, mq, tmp_path / "lake")


class TestJob:
    def test_cursor_windows_follow_each_other_and_stop_at_the_stable_end(
        self, scene: Scene
    ) -> None:
        scene.produce(40)
        first = scene.run(initial_position="earliest", max_records=24)
        second = scene.run()
        assert first.has_more
        assert (first.total + second.total, scene.rows()) == (40, 40)
        assert scene.run().empty

    def test_a_window_has_about_as_many_bytes_as_asked(self, scene: Scene) -> None:
        scene.produce(400)
        found = scene.run(initial_position="earliest", max_bytes=300)
        assert found.has_more
        assert 200 <= found.bytes <= 400
        assert scene.run(max_bytes=10**9).total + found.total == 400

    def test_the_least_cap_counts(self, scene: Scene) -> None:
        scene.produce(40)
        caps = {"max_records": 8, "max_bytes": 10**6, "max_duration": "PT1H"}
        assert scene.run(initial_position="earliest", **caps).total == 8

    def test_a_first_run_needs_an_initial_position(self, scene: Scene) -> None:
        with pytest.raises(NoInitialPosition, match="initial_position"):
            scene.run()

    @pytest.mark.parametrize("word", ["stable", "latest"])
    def test_a_group_that_begins_at_the_end_reads_records_that_were_in_memory(
        self, scene: Scene, word: str
    ) -> None:
        scene.produce(16)
        scene.produce(8, flush=False)

        assert scene.run(initial_position=word).empty
        scene.flush()
        assert scene.run(initial_position=word).total == 8

    def test_the_run_that_fixes_the_initial_position_is_not_skipped(self, scene: Scene) -> None:
        """Airflow drops the event of a skipped task, and nothing else says where the end was: the
        next run would begin at the end of that moment, and so would every other."""
        scene.produce(16)
        asset, events, state = offsets_asset("test", TOPIC, "lake"), [], State()
        options = {"initial_position": "stable", "skip_if_empty": True, "engine": "inline"}

        def run(number: int) -> int:
            task = operator(path=str(scene.root), **options)
            outlet = Event({})
            context = {
                "asset_state_store": {asset: state},
                "inlet_events": {asset: Inlet(events)},
                "outlet_events": {asset: outlet, sink_asset(str(scene.root)): Outlets()},
                "task_state_store": State(),
                "dag_run": SimpleNamespace(dag_id="d", run_id=f"r{number}", clear_number=0),
                "ti": SimpleNamespace(
                    id=f"t{number}",
                    dag_id="d",
                    run_id=f"r{number}",
                    task_id="i",
                    map_index=-1,
                    try_number=1,
                    task=task,
                ),
            }
            found = execute(task, context)
            events.append(outlet)
            return int(found["total"])

        assert run(1) == 0
        with pytest.raises(AirflowSkipException):
            run(2)
        scene.produce(8)
        assert run(3) == 8

    def test_a_run_that_skips_a_loss_is_not_skipped(self, scene: Scene) -> None:
        """Airflow drops the event of a skipped task, and no later one names the lost offsets."""
        kept: dict[Any, Any] = {}

        def run(name: str) -> Any:
            task = operator(
                path=str(scene.root),
                engine="inline",
                initial_position="earliest",
                gap_policy="skip",
                skip_if_empty=True,
            )
            context = fake_context(task, kept, run=name)
            found = execute(task, context)
            accept(context, kept)
            return found

        scene.produce(16)
        assert run("r1")["total"] == 16
        scene.produce(8)
        for broker in scene.mq.broker_ids:
            for store in range(2):
                found = scene.mq.broker(broker).store(TOPIC, store)
                found.expire_to(found.ends.stable)
        lost = run("r2")
        assert (lost["empty"], lost["total"]) == (True, 0)
        told = kept["events"][offsets_asset("test", TOPIC, "lake")][-1]["tubemq"]
        assert told["gaps"] == lost["gaps"] != {}
        with pytest.raises(AirflowSkipException):
            run("r3")

    def test_a_run_begins_with_one_look_at_the_progress(self, scene: Scene) -> None:
        requests: list[str] = []
        asset = offsets_asset("test", TOPIC, "lake")
        kept: dict[Any, Any] = {asset: Counted(requests)}
        for name in ("r1", "r2"):
            scene.produce(8)
            requests.clear()
            task = operator(path=str(scene.root), engine="inline", initial_position="earliest")
            inlet = Inlet([Event(extra) for extra in kept.get("events", {}).get(asset, [])])
            task_state = Counted(requests)
            context = fake_context(
                task, kept, run=name, inlet_events={asset: inlet}, task_state_store=task_state
            )
            assert execute(task, context)["total"] == 8
            accept(context, kept)
        # The ledger is asked with each look: at the beginning, before the publication, after it.
        assert Counter(requests) == {
            "get tubemq-ledger": 3,
            "get cursor": 3,
            "get win": 1,
            "set win": 1,
            "set plan": 1,
            "set cursor": 1,
            "set progress": 1,
        }
        assert len(inlet.requests) == 1

    def test_progress_is_kept_as_task_state_and_no_run_depends_on_it(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.0)
        scene.produce(16)
        kept = Forgetful()
        task = operator(path=str(scene.root), engine="inline", initial_position="earliest")
        context = fake_context(task, {}, task_state_store=kept)
        assert execute(task, context)["total"] == 16
        assert [told["state"] for told in kept.told] == ["reading", "done"]
        assert kept.told[-1]["read"] == 16

    def test_initial_offsets_may_mix_numbers_and_words(self, scene: Scene) -> None:
        scene.produce(16)
        words = {"1:0": 0, "1:1": 0, "1:10000": "earliest", "1:10001": "stable"}
        scene.run(initial_position=words | {f"2:{p}": "stable" for p in (0, 1, 10_000, 10_001)})
        assert scene.rows() == 6

    def test_time_windows_come_from_the_data_interval(self, scene: Scene) -> None:
        scene.produce(16)
        keys = [p.key for p in scene.hook.partitions(TOPIC)]
        boundaries = {
            instant.isoformat(): {TOPIC: dict.fromkeys(keys, 28 * 2 * i)}
            for i, instant in enumerate(HOURS)
        }
        found = [
            scene.run((start, end), mode="time", boundaries=boundaries)
            for start, end in pairwise(HOURS)
        ]
        assert [r.total for r in found] == [8, 8]
        again = scene.run((HOURS[0], HOURS[1]), mode="time", boundaries=boundaries)
        assert again.replayed
        assert scene.rows() == 16

    @pytest.mark.parametrize("interval", [(None, None), (HOURS[0], HOURS[0])])
    def test_a_run_without_interval_explains_how_to_get_one(
        self, scene: Scene, interval: Any
    ) -> None:
        with pytest.raises(ConfigError, match="CronDataIntervalTimetable"):
            scene.run(interval, mode="time", boundaries={})

    def test_a_window_that_is_not_on_disk_yet_is_tried_again_later(self, scene: Scene) -> None:
        ends = {TOPIC: {"1:0": 280}}
        with pytest.raises(WindowNotReady, match="PartitionReadySensor"):
            scene.run(mode="time", starting_offsets={TOPIC: {"1:0": 0}}, ending_offsets=ends)

    def test_explicit_offsets_are_read_as_given(self, scene: Scene) -> None:
        scene.produce(16)
        found = scene.run(
            mode="time", starting_offsets='{"1:0": 28}', ending_offsets='{"1:0": "stable"}'
        )
        assert found.ranges == {"1:0": (28, 112)}
        assert found.records == {"1:0": 1}

    def test_filters_reach_the_broker(self, scene: Scene) -> None:
        partition = Partition(1, TOPIC, 0)
        names = ["paid", "open", "paid"]
        list(
            scene.hook.produce(
                TOPIC, [Record(b"x", stream_id=n, partition=partition) for n in names]
            )
        )
        scene.produce(0)
        assert scene.run(initial_position="earliest", filters=["paid"]).total == 2

    def test_offsets_are_committed_at_brokers_if_configured(self, scene: Scene) -> None:
        scene.produce(16)
        scene.run(initial_position="earliest", commit_to_broker=True)
        assert scene.mq.broker(1).position("lake", TOPIC, 0) == 112

    def test_a_cancelled_job_ends_at_the_next_point(self, scene: Scene) -> None:
        scene.produce(8)
        job = scene.job(initial_position="earliest")
        watch, store = (
            job.progress_logger(logging.getLogger(__name__)),
            MemoryOffsetStore(scene.journal),
        )
        job.cancel()
        with pytest.raises(WindowError, match="killed"):
            job.run(store, attempt="1", serialised=True, observer=watch)
