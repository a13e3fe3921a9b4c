"""Deferral of the ingest operator: it defers, resumes, and publishes once."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout, TaskDeferred

from tests.kit.spark_submit import fake_spark_home
from tests.provider.contexts import accept, fake_context
from tests.provider.sinks.object_server import object_server
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError
from tubemq_provider.engines.applications import Application
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.job import IngestJob
from tubemq_provider.ingest.values import SparkSubmit
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.operators.consume import TubeMQConsumeOperator
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.task_arguments import parse
from tubemq_provider.triggers.applications import TubeMQApplicationTrigger
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.protocols import Suspended

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(120)]

TOPIC = "orders"


class Scene:
    """Tries of one task over one cluster and one lake."""

    def __init__(self, hook: TubeMQHook, mq: EmbeddedTubeMQ, root: Path) -> None:
        self.hook, self.mq, self.root = hook, mq, root
        self.kept: dict[Any, Any] = {}
        self.options: dict[str, Any] = {"deferrable": True}

    def produce(self, count: int) -> None:
        records = [Record(b"%d" % i, partition=Partition(1, TOPIC, 0)) for i in range(count)]
        list(self.hook.produce(TOPIC, records))
        self.mq.broker(1).store(TOPIC, 0).flush()

    def task(self) -> TubeMQCursorIngestOperator:
        return TubeMQCursorIngestOperator(
            task_id="ingest",
            topic=TOPIC,
            group="lake",
            cluster="test",
            path=str(self.root / "lake"),
            initial_position="earliest",
            engine=SparkSubmit(
                conf={"spark.secret.thing": "hush-hush"},
                work_dir=str(self.root / self.options.get("engine_dir", "work")),
            ),
            **{name: value for name, value in self.options.items() if name != "engine_dir"},
        )

    def execute(self, run: str = "r1", **context: Any) -> dict[str, Any]:
        """Run a fresh try."""
        task = self.task()
        found = fake_context(task, self.kept, run=run, **context)
        execute = type(task).execute.__wrapped__  # type: ignore[attr-defined]
        result: dict[str, Any] = execute(task, found)
        accept(found, self.kept)
        return result

    def deferred(self, run: str = "r1") -> TaskDeferred:
        with pytest.raises(TaskDeferred) as caught:
            self.execute(run)
        return caught.value

    def resume(
        self, deferral: TaskDeferred, status: str = "over", run: str = "r1"
    ) -> dict[str, Any]:
        """Resume the task as Airflow does after the trigger event."""
        task = self.task()
        found = fake_context(task, self.kept, run=run)
        kwargs = json.loads(json.dumps(deferral.kwargs))
        kwargs["event"] = {"status": status}
        result: dict[str, Any] = task.resume_execution(deferral.method_name, kwargs, found)
        accept(found, self.kept)
        return result

    def rows(self) -> int:
        return int(read_windows(self.root / "lake").count_rows())

    def windows(self) -> list[str]:
        return [marker.plan.window_id for marker in published_windows(self.root / "lake")]

    def applications(self) -> list[Path]:
        return list((self.root / "work").iterdir())


@pytest.fixture
def scene(
    hook: TubeMQHook, mq: EmbeddedTubeMQ, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Scene:
    monkeypatch.setenv("SPARK_HOME", str(fake_spark_home(tmp_path)))
    monkeypatch.setenv("FAKE_SUBMIT", "holds")
    return Scene(hook, mq, tmp_path)


def application_of(deferral: TaskDeferred) -> Application:
    return Application.of_ticket(deferral.kwargs["ticket"])  # type: ignore[index]


def let_finish(deferral: TaskDeferred) -> None:
    application = application_of(deferral)
    (application.folder / "go").touch()
    assert application.wait_until_ended(60)


def test_it_defers_resumes_and_publishes_once(scene: Scene) -> None:
    scene.produce(16)
    deferral = scene.deferred()
    assert scene.applications()
    assert not (scene.root / "lake").exists() or not scene.windows()
    let_finish(deferral)

    found = scene.resume(deferral)

    assert (found["total"], scene.rows(), len(scene.windows())) == (16, 16, 1)
    assert not scene.applications()
    scene.produce(8)
    again = scene.deferred("r2")
    let_finish(again)
    assert scene.resume(again, run="r2")["total"] == 8
    assert scene.rows() == 24


def test_what_airflow_stores_of_a_deferral_has_no_secret(scene: Scene) -> None:
    scene.produce(4)
    deferral = scene.deferred()
    assert isinstance(deferral.trigger, TubeMQApplicationTrigger)
    path, arguments = deferral.trigger.serialize()
    assert path.endswith("triggers.applications.TubeMQApplicationTrigger")
    said = json.dumps([arguments, deferral.kwargs])
    assert "hush" not in said
    assert json.loads(said)[0]["ticket"].keys() == {"folder", "token"}
    application_of(deferral).end()


def test_a_cleared_task_and_the_deferred_one_publish_one_window(scene: Scene) -> None:
    """Airflow resumes none that was cleared; if it did all the same, the marker decides."""
    scene.produce(16)
    old = scene.deferred()
    new = scene.deferred()
    let_finish(new)
    assert scene.resume(new)["total"] == 16
    late = scene.resume(old)
    assert (late["total"], late["replayed"]) == (16, True)
    assert (scene.rows(), len(scene.windows())) == (16, 1)


def test_an_application_that_a_user_has_ended_publishes_nothing_and_the_clear_reads_again(
    scene: Scene,
) -> None:
    scene.produce(16)
    deferral = scene.deferred()
    assert application_of(deferral).end_for(deferral.kwargs["ticket"])  # type: ignore[index]
    (application_of(deferral).folder / "go").touch()
    cleared = scene.deferred()
    assert application_of(cleared).folder != application_of(deferral).folder
    let_finish(cleared)
    assert scene.resume(cleared)["total"] == 16
    assert (scene.rows(), len(scene.windows())) == (16, 1)


def test_a_lost_application_fails_the_try_and_the_next_one_reads_again(scene: Scene) -> None:
    scene.produce(16)
    deferral = scene.deferred()
    application_of(deferral).kill()
    with pytest.raises(WindowError, match="ended without a result"):
        scene.resume(deferral)
    retry = scene.deferred()
    let_finish(retry)
    assert scene.resume(retry)["total"] == 16
    assert (scene.rows(), len(scene.windows())) == (16, 1)


def test_the_time_limit_counts_from_the_begin_of_the_try(scene: Scene) -> None:
    scene.options["execution_timeout"] = timedelta(seconds=3600)
    scene.produce(4)
    deferral = scene.deferred()
    assert isinstance(deferral.trigger, TubeMQApplicationTrigger)
    assert deferral.trigger.deadline == pytest.approx(deferral.kwargs["started"] + 3600, abs=60)  # type: ignore[index]
    assert deferral.timeout is not None
    assert deferral.timeout > timedelta(seconds=3500)
    application = application_of(deferral)
    with pytest.raises(AirflowTaskTimeout, match="3600 s"):
        scene.resume(deferral, status="timeout")
    assert not application.running
    assert not scene.windows()


def test_a_task_that_resumes_after_its_timeout_fails_too(scene: Scene) -> None:
    scene.options["execution_timeout"] = timedelta(seconds=3600)
    scene.produce(4)
    deferral = scene.deferred()
    deferral.kwargs["started"] = time.time() - 3601  # type: ignore[index]
    with pytest.raises(AirflowTaskTimeout):
        scene.resume(deferral)
    assert not application_of(deferral).running


def test_a_triggerer_that_sees_nothing_makes_the_task_wait_itself(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.produce(16)
    deferral = scene.deferred()
    (application_of(deferral).folder / "go").touch()
    assert scene.resume(deferral, status="unseen")["total"] == 16
    assert "name a spark_work_dir that workers and triggerers share" in capsys.readouterr().out


def test_an_empty_window_defers_nothing(scene: Scene) -> None:
    assert scene.execute()["empty"]


def test_the_configured_default_applies_to_deferrable_engines(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    inline = TubeMQCursorIngestOperator(
        task_id="i", topic=TOPIC, group="lake", path="/lake", engine="inline"
    )
    assert inline.deferrable is None, "others ignore it"
    del scene.options["deferrable"]
    scene.produce(4)
    application_of(scene.deferred()).end()
    scene.options["deferrable"] = False
    monkeypatch.setenv("FAKE_SUBMIT", "bad")
    with pytest.raises(Exception, match="checksum"):
        scene.execute("r2")


def test_other_engines_refuse_it_when_the_dag_is_parsed() -> None:
    given: dict[str, Any] = {"task_id": "i", "topic": TOPIC, "group": "lake", "deferrable": True}
    with pytest.raises(ConfigError, match="deferrable=True needs engine='submit'"):
        TubeMQCursorIngestOperator(path="/lake", **given)
    with pytest.raises(ConfigError, match="deferrable has no effect: records go nowhere"):
        TubeMQConsumeOperator(apply_function=print, markers="/done", **given)


class Silent:
    def at(self, step: Any, point: str) -> None:
        pass


def test_files_written_after_another_machine_published_are_removed(
    scene: Scene, tmp_path: Path
) -> None:
    """By the next task of the group on its machine, whatever window that has."""
    journal = MemoryJournal()
    with object_server("lake") as options:

        def run(machine: str, task: str, *, suspend: bool = False, then: Any = None) -> int:
            sink = ObjectStoreSink("s3://lake/orders", storage_options=options)
            given = {"topic": TOPIC, "group": "lake", "cluster": "test", "engine": "submit"}
            given |= {"sink": "s3://lake/orders", "initial_position": "earliest"}
            given |= {"spark_work_dir": str(tmp_path / machine)}
            arguments = parse(IngestArguments, given)
            with ExitStack() as stack:
                job = IngestJob(arguments, scene.hook.source(TOPIC, "lake"), sink, stack)
                if suspend:
                    job.may_suspend()
                store = MemoryOffsetStore(journal, task=task)
                result = job.run(store, attempt=machine, serialised=True, observer=then or Silent())
            return result.total

        def objects() -> set[str]:
            sink = ObjectStoreSink("s3://lake/orders", storage_options=options)
            named = {name for marker in published_windows(sink) for name in marker.files}
            return {*sink.storage.names("data")} ^ named

        scene.produce(16)
        with pytest.raises(Suspended) as left:
            run("first", "one", suspend=True)
        slow = Application.of_ticket(left.value.ticket)
        assert run("second", "one", then=LettingGo(tmp_path / "second")) == 16
        (slow.folder / "go").touch()
        assert slow.wait_until_ended(60)
        assert objects(), "it wrote, and nobody has said that it need not"

        scene.produce(8)
        assert run("first", "two", then=LettingGo(tmp_path / "first")) == 8
        assert not objects()
        assert not list((tmp_path / "first").iterdir())


class LettingGo:
    """Lets every application of a machine finish."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def at(self, step: Any, point: str) -> None:
        for folder in self.work.iterdir() if self.work.exists() else ():
            (folder / "go").touch()


def test_the_application_of_a_window_that_is_published_elsewhere_is_ended(scene: Scene) -> None:
    scene.produce(16)
    deferral = scene.deferred()
    here, scene.options["engine_dir"] = scene.options, "elsewhere"
    elsewhere = scene.deferred()
    let_finish(elsewhere)
    assert scene.resume(elsewhere)["total"] == 16
    del here["engine_dir"]
    application = application_of(deferral)
    assert application.running
    assert scene.resume(deferral)["replayed"]
    assert not application.running
    assert not application.folder.exists()
    assert scene.rows() == 16
