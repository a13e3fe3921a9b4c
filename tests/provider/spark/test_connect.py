"""Windows through Spark Connect, on a standalone cluster whose Python lacks our packages: whatever
is killed, content equals receipts, nothing is left over, no secret is written down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.provider.spark import test_rocketmq_windows as rocket
from tests.provider.spark.jobs import Window, quarantined
from tests.provider.spark.test_session_engine import silent, written
from tests.provider.spark.test_submit_on_cluster import (
    SPECULATION,
    TWICE,
    bodies,
    data_files,
    until,
)
from tests.provider.spark.world import USER, SecuredWorld, World
from tools.devkit.patience import PATIENCE
from tools.devkit.spark import ConnectServer, SparkCluster
from tubemq_client.errors import ConfigError
from tubemq_provider.engines.connect import ConnectEngine
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.protocols import IngestWatch, Staging
from tubemq_provider.windows.run.result import WindowResult

pytest.importorskip("pyspark.sql.connect.session", exc_type=ImportError)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

SECRET = "hush-hush"
CHILD = Path(__file__).with_name("connect_child.py")
DEADLINE_S = 120


class Lab:
    """Separate cluster with a server, which holds all of its cores."""

    def __init__(self, java: Path, cluster: SparkCluster, server: ConnectServer) -> None:
        self.java = java
        self.cluster = cluster
        self.server = server
        self.remote = server.remote

    def tasks_run_twice(self) -> int:
        """Return the number of second task attempts that the server has started."""
        return len(TWICE.findall((self.server.folder / "log").read_text("utf-8", "replace")))

    def written_down(self, secret: str) -> list[Path]:
        """Return files of the cluster that contain `secret`."""
        files = [*self.cluster.logs(), *self.server.logs()]
        return [path for path in files if secret.encode() in path.read_bytes()]


def leftovers(window: Window, window_id: str) -> set[str]:
    """Return files in the store that are not in the marker, after tidying."""
    sink = window.sink()
    sink.tidy(window_id)
    marker = sink.marker(window_id)
    assert marker is not None
    return data_files(window) ^ set(marker.files)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    from tubemq_provider.engines.java import JavaUnavailable, find_java

    try:
        java = find_java().home
    except JavaUnavailable as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("connect")
    with (
        SparkCluster(folder / "cluster", java, cores=2) as cluster,
        ConnectServer(
            folder / "server", java, cluster.master_url, SPECULATION, bare=True
        ) as server,
    ):
        yield Lab(java, cluster, server)


@pytest.fixture
def window(world: World, lab: Lab, lake: dict[str, str]) -> Callable[..., Window]:
    """Run a window through the server, which gets the package."""

    def made(sink: str, **given: Any) -> Window:
        conf = {"spark.remote": lab.remote}
        through = {"engine": "connect", "spark_conf": conf, "ship_package": True}
        return Window(world, sink, lake, **{**through, **given})

    return made


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging("w-1", "try-1", str(tmp_path))


def test_a_task_runs_twice_an_executor_is_killed_and_every_record_is_written_once(
    window: Callable[..., Window], world: World, lab: Lab
) -> None:
    world.produce(2_000, size=2_000)
    through = window("s3://lake/by-connect")
    result = run_over_a_killed_executor(through, lab)
    assert result.total == 2_000
    assert bodies(through) == through.expected()
    until(
        lambda: not leftovers(through, result.window_id or "")
    )  # a Python worker may live for a moment longer
    assert not lab.written_down(SECRET)
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ  # or other sessions would change


def run_over_a_killed_executor(through: Window, lab: Lab) -> WindowResult:
    """Run one try, in which an executor dies while a task of broker 1 runs twice."""
    broker = through.world.mq.broker(1)
    before = lab.tasks_run_twice()
    killed: list[int] = []

    def kill() -> None:
        until(lambda: lab.tasks_run_twice() > before)
        killed.extend(lab.cluster.executors()[:1])
        os.kill(killed[0], signal.SIGKILL)
        broker.resume_reading()

    killing = threading.Thread(target=kill, daemon=True)

    def at(point: str) -> None:
        if point == "session started":
            broker.stop_reading()  # fetches answer 503: its tasks fall behind
        if point == "frame loaded":
            killing.start()

    result = through.run(at)
    killing.join(DEADLINE_S)
    assert killed
    return result


def test_bad_records_behind_a_query_are_quarantined_once_though_a_task_ran_twice(
    window: Callable[..., Window], world: World, lab: Lab
) -> None:
    world.produce_objects(400, bad=7)
    through = window(
        "s3://lake/by-connect-aside",
        decode={"format": "json", "schema": "id bigint, name string"},
        sql="SELECT * FROM records WHERE id % 2 = 0",
        corrupt_records="quarantine",
    )
    result = run_over_a_killed_executor(through, lab)
    sink = through.sink()
    assert isinstance(sink, ObjectStoreSink)
    kept = [json.loads(row["data"])["name"] for row in quarantined(sink)]
    assert sorted(kept) == sorted(f"n{number}" for number in range(0, 400, 7))
    assert result.corrupt == len(kept)
    found = read_windows(sink).to_table()["id"].to_pylist()
    assert sorted(found) == [number for number in range(0, 400, 2) if number % 7]
    until(lambda: not leftovers(through, result.window_id or ""))
    aside = set(sink.storage.names("quarantine"))
    sink.tidy(result.window_id or "")
    assert set(sink.storage.names("quarantine")) == aside


def test_sql_results_go_into_a_delta_table(
    window: Callable[..., Window], world: World, lab: Lab
) -> None:
    world.produce(400)
    query = "SELECT partition, value, length(value) AS size FROM records"
    told: list[str] = []
    through = window("delta:s3://lake/by-connect-sql", sql=query)
    result = through.run(told.append)
    assert result.total == 400
    assert bodies(through) == through.expected()
    assert "frame loaded" in told
    assert not lab.written_down(SECRET)


def test_operations_of_a_killed_task_are_interrupted_by_its_next_try(
    world: World, lab: Lab, lake: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    world.produce(600)
    url = "s3://lake/by-connect-again"
    sink = sink_for(url, storage_options=lake)
    assert isinstance(sink, ObjectStoreSink)
    plan = world.plan(world.whole())
    world.mq.broker(1).stop_reading()  # fetches answer 503, so tasks of the first try wait
    order = {"masters": world.masters, "plan": plan.to_document(), "sink": url, "storage": lake}
    with begun_in_its_job({**order, "remote": lab.remote}, sink):
        pass  # and killed
    assert any(sink.storage.names("data"))  # of the other broker

    def at(point: str) -> None:
        if point == "session started":
            world.mq.broker(1).resume_reading()

    engine = ConnectEngine(world.settings, remote=lab.remote, ship_package=True)
    caplog.set_level("INFO", logger="tubemq_provider")
    again = sink.begin(plan, "again")
    try:
        counts = engine.ingest(plan, again, IngestWatch(at))
    finally:
        engine.stop()
    found = sink.publish(again, plan, counts, lambda _: None)
    sink.tidy(plan.window_id)

    assert f"interrupted operations of an earlier try on {lab.remote}" in caplog.text
    assert counts.total == 600
    assert set(sink.storage.names("data")) == set(found.marker.files)
    values = read_windows(sink).to_table()["value"].to_pylist()
    assert sorted(values) == world.expected(world.whole())


@contextmanager
def begun_in_its_job(
    order: dict[str, Any], sink: ObjectStoreSink
) -> Iterator[subprocess.Popen[str]]:
    """Start the window in a separate process and wait until a task has written a file; kill it in
    the end."""
    command = [sys.executable, str(CHILD)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdin is not None
            child.stdin.write(json.dumps(order))
            child.stdin.close()
            deadline = time.monotonic() + DEADLINE_S * PATIENCE
            while not any(sink.storage.names("data")):
                assert child.poll() is None
                assert time.monotonic() < deadline
                threading.Event().wait(0.05)
            yield child
        finally:
            child.kill()


def test_two_tasks_that_read_one_window_at_once_both_come_to_their_end(
    world: World, lab: Lab, lake: dict[str, str]
) -> None:
    world.produce(600)
    url = "s3://lake/by-two-tasks"
    sink = sink_for(url, storage_options=lake)
    assert isinstance(sink, ObjectStoreSink)
    plan = world.plan(world.whole())
    world.mq.broker(1).stop_reading()
    order = {"masters": world.masters, "plan": plan.to_document(), "sink": url, "storage": lake}
    order |= {"remote": lab.remote, "task": "orders|another run|ingest|-1"}
    engine = ConnectEngine(world.settings, remote=lab.remote, ship_package=True)
    engine.belong_to("orders|this run|ingest|-1")

    def at(point: str) -> None:
        if point == "frame loaded":
            world.mq.broker(1).resume_reading()

    with begun_in_its_job(order, sink) as other:
        mine = sink.begin(plan, "mine")
        try:
            counts = engine.ingest(plan, mine, IngestWatch(at))
        finally:
            engine.stop()
        assert other.wait(DEADLINE_S) == 0
    assert counts.total == 600
    assert sink.publish(mine, plan, counts, silent).won


@pytest.mark.parametrize("delay_s", [0.0, 1.0], ids=["before-its-job", "in-its-job"])
def test_cancelling_interrupts_what_runs_on_the_server(
    world: World, lab: Lab, staging: Staging, delay_s: float
) -> None:
    world.produce(8)
    world.mq.broker(1).stop_reading()
    engine = ConnectEngine(world.settings, remote=lab.remote, ship_package=True)
    timer: list[threading.Timer] = []

    def cancel_soon(point: str) -> None:
        if point == "frame loaded":
            timer.append(threading.Timer(delay_s, engine.cancel))
            timer[0].start()

    try:
        with pytest.raises(WindowError, match="was cancelled"):
            engine.ingest(world.plan(world.whole()), staging, IngestWatch(cancel_soon))
        timer[0].join(10)
    finally:
        engine.stop()


def test_user_password_and_tls_reach_the_tasks_and_no_file_of_the_server(
    secured: SecuredWorld,
    lab: Lab,
    staging: Staging,
) -> None:
    secured.produce(100)
    tasks: list[tuple[int, int]] = []
    engine = ConnectEngine(secured.settings, remote=lab.remote, ship_package=True)
    watch = IngestWatch(on_tasks=lambda _, *done: tasks.append(done))
    try:
        counts = engine.ingest(secured.plan(secured.whole()), staging, watch)
    finally:
        engine.stop()
    assert counts.total == 100
    assert written(staging) == secured.expected(secured.whole())
    assert not lab.written_down(USER.password)
    assert all(done <= total for done, total in tasks)


def test_a_window_of_rocketmq(lab: Lab, staging: Staging) -> None:
    with EmbeddedRocketMQ(topics={"orders": 2}, brokers=2) as server:
        made = rocket.Filled(server)
        settings, plan = server.settings, made.plan()
        engine = ConnectEngine(settings, remote=lab.remote, ship_package=True, kind="rocketmq")
        try:
            counts = engine.ingest(plan, staging, IngestWatch())
        finally:
            engine.stop()
    assert counts.total == len(made.expected())


def test_problems_of_a_server_are_reported_with_its_address(
    world: World, lab: Lab, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tubemq_provider.engines.connect._RETRIES", 1)
    world.produce(4)
    plan = world.plan(world.whole())

    def problem(remote: str, **given: Any) -> str:
        engine = ConnectEngine(world.settings, remote=remote, **given)
        try:
            with pytest.raises(ConfigError) as caught:
                engine.ingest(plan, staging, IngestWatch())
        finally:
            engine.stop()
        return str(caught.value)

    assert "ship_package=True sends it along" in problem(lab.remote)
    static = {"spark.executor.memory": "1g", "spark.sql.warehouse.dir": "/w"}
    found = problem(lab.remote, conf=static)
    assert all(key in found for key in static)
    nobody = problem("sc://127.0.0.1:1")
    assert "sc://127.0.0.1:1" in nobody
    assert "refused" in nobody
    assert "must be empty" in problem("sc://127.0.0.1:1/path")


def test_the_server_is_killed_and_the_retry_finds_it_started_again(
    window: Callable[..., Window],
    world: World,
    lab: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # The client retries a lost server, with pauses of up to a minute.
    patient = partialmethod(DefaultPolicy.__init__, max_backoff=1_000)
    monkeypatch.setattr(DefaultPolicy, "__init__", patient)
    world.produce(400)
    through = window("s3://lake/by-connect-twice")
    sink = through.sink()
    assert isinstance(sink, ObjectStoreSink)
    conf = {**SPECULATION, "spark.connect.grpc.binding.port": lab.remote.rpartition(":")[2]}
    again = ConnectServer(tmp_path / "again", lab.java, lab.cluster.master_url, conf, bare=True)
    with ExitStack() as stack:

        def restart() -> None:
            until(lambda: any(sink.storage.names("data")))
            lab.server.kill()
            world.mq.broker(1).resume_reading()
            stack.enter_context(again)

        restarting = threading.Thread(target=restart, daemon=True)

        def at(point: str) -> None:
            if point == "session started":
                world.mq.broker(1).stop_reading()
                restarting.start()

        # The new server does not know the session; on a busy machine it is not up in time.
        with pytest.raises(Exception, match=r"INVALID_HANDLE|UNAVAILABLE"):
            through.run(at)
        restarting.join(DEADLINE_S)
        result = through.run()
        assert (result.total, bodies(through)) == (400, through.expected())
        until(lambda: not leftovers(through, result.window_id or ""))
