"""The engine `submit` against a fake `spark-submit`: which reports it trusts, what the next try
resumes, and what a kill ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rocketmq_client.errors import NoPermission
from tests.kit.spark_submit import fake_spark_home
from tubemq_client.config import ClientConfig
from tubemq_client.errors import ConfigError, CorruptRecord
from tubemq_client.model import Anchor, Credentials
from tubemq_provider.engines.applications import Application, Applications
from tubemq_provider.engines.outcome import (
    counts_document,
    counts_from,
    error_document,
    error_from,
)
from tubemq_provider.engines.submit import SubmitEngine
from tubemq_provider.ingest.routes import parse_routes
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.routed import PLACES, RoutedSink, _place_key
from tubemq_provider.windows.errors import CountMismatch, WindowError
from tubemq_provider.windows.facts import FileFact, LeafFact
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts, IngestWatch, Staging

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

SETTINGS = replace(
    ClientConfig.parse({"masters": "127.0.0.1:1"}).settings(), auth=Credentials("u", "hush-hush")
)
PLAN = WindowPlan.explicit(
    WindowScope("local", "orders", "etl", "parquet:/lake"), {"1:0": (0, 280), "1:1": (28, 56)}
)


class TaskDied(BaseException):
    """Death of the task's process."""


@pytest.fixture(autouse=True)
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(fake_spark_home(tmp_path)))


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    (tmp_path / "staging" / "first").mkdir(parents=True)
    return Staging(PLAN.window_id, "first", str(tmp_path / "staging" / "first"))


def later(staging: Staging, name: str = "second") -> Staging:
    """Return the staging place of another try."""
    path = Path(staging.path).with_name(name)
    path.mkdir(exist_ok=True)
    return replace(staging, attempt=name, path=str(path))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def engine(work: Path, **given: Any) -> SubmitEngine:
    return SubmitEngine(SETTINGS, work_dir=work, **given)


def folders(work: Path) -> list[Application]:
    return [Application(path) for path in work.iterdir()]


def die(point: str) -> None:
    if point == "session started":
        raise TaskDied


def test_the_result_file_is_believed_and_not_the_exit_code(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "good")
    mine = engine(work)
    assert mine.resumes
    points: list[str] = []
    tasks: list[tuple[int, int]] = []

    watch = IngestWatch(points.append, on_tasks=lambda _, *done: tasks.append(done))
    counts = mine.ingest(PLAN, staging, watch)

    assert dict(counts.records) == {"1:0": 1, "1:1": 1}
    assert points == ["application submitted", "application", "session started"]
    assert tasks[-1] == (1, 2)
    (application,) = folders(work)
    kept = [path.read_text() for path in application.folder.iterdir()]
    assert not [text for text in kept if "hush-hush" in text]
    mine.leave(None)
    assert not folders(work)


def test_a_second_application_sets_aside_what_no_table_takes(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver sees that "orders" would be a table in other letters, when the first has read."""
    monkeypatch.setenv("FAKE_SUBMIT", "good")
    tables = {"*": f"{tmp_path}/{{stream_id}}"}
    routes = parse_routes({"name": "n", "unrouted": "quarantine", "tables": tables})
    sink = RoutedSink(sink_for(tmp_path / "home"), routes, lambda _, address: sink_for(address))
    book = sink.book(PLACES)
    assert book is not None
    book.fix(_place_key(f"{tmp_path}/orders"), {"address": f"{tmp_path}/Orders"})
    mine = engine(work)
    routed = mine.into(sink)
    points: list[str] = []

    counts = routed.ingest(PLAN, sink.begin(PLAN, "first"), IngestWatch(points.append))

    assert points.count("application submitted") == 2
    assert (dict(counts.unrouted), counts.corrupt) == ({"1:0": 1, "1:1": 1}, 2)
    (application,) = folders(work)
    assert "other letters" in str(application.order)
    mine.leave(None)
    assert not folders(work)


def test_a_process_that_ends_well_without_a_result_is_an_error_that_shows_its_log(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "silent")
    with pytest.raises(WindowError, match=r"(?s)without a result.*fake application, silent"):
        engine(work).ingest(PLAN, staging, IngestWatch())
    assert engine(work).place(PLAN, later(staging)) == later(staging)
    assert not folders(work)


def test_an_error_comes_back_with_its_class(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "bad")
    with pytest.raises(CorruptRecord, match=r"(?s)at 28: wrong.checksum"):
        engine(work).ingest(PLAN, staging, IngestWatch())
    assert not folders(work)


def test_the_next_try_resumes_a_running_or_an_unpublished_application(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "slow")
    with pytest.raises(TaskDied):
        engine(work).ingest(PLAN, staging, IngestWatch(die))
    (application,) = folders(work)
    assert application.running

    second = engine(work)
    assert second.place(PLAN, later(staging)) == staging
    points: list[str] = []

    def let_go(point: str) -> None:  # not before: it must not be done when it is resumed
        points.append(point)
        (application.folder / "go").touch()

    assert second.ingest(PLAN, staging, IngestWatch(let_go)).total == 2
    assert "application submitted" not in points
    second.leave(OSError)  # it could not publish: a third try may

    third = engine(work)
    assert third.place(PLAN, later(staging, "third")) == staging
    assert third.ingest(PLAN, staging, IngestWatch()).total == 2
    third.leave(OSError)  # a result that failed to publish again is not offered for ever

    assert not folders(work)
    assert engine(work).place(PLAN, later(staging, "fourth")).attempt == "fourth"


@pytest.mark.parametrize("gone", ["part-0.parquet", "_corrupt/x"])
def test_a_result_whose_files_were_partly_published_is_read_again(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "good")
    first = engine(work)
    first.ingest(PLAN, staging, IngestWatch())
    first.leave(OSError)
    (application,) = folders(work)
    fact = FileFact("part-0.parquet", 2, 99)
    counts = IngestCounts({"1:0": 1, "1:1": 1}, files=(fact,), quarantined=("_corrupt/x",))
    application.finish({"v": 1, "hash": PLAN.hash, "counts": counts_document(counts)})
    (Path(staging.path) / "_corrupt").mkdir()
    for name in ("part-0.parquet", "_corrupt/x"):
        (Path(staging.path) / name).touch()

    second = engine(work)
    assert second.place(PLAN, later(staging)) == staging
    second.leave(OSError)  # nothing was taken from it
    (Path(staging.path) / gone).unlink()
    assert engine(work).place(PLAN, later(staging)) == later(staging)
    assert not folders(work)


def test_a_process_starts_without_a_number_and_an_address_that_are_of_others(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Applications(work).make(PLAN.window_id, {})
    application.process = 4_194_304  # of any process
    mine = engine(work)
    held = application.folder / "process.json"
    monkeypatch.setenv("SPARK_REMOTE", "sc://connect1")  # belongs to tasks of other engines
    look = (
        "import os, sys; sys.exit('SPARK_REMOTE' in os.environ"
        " or os.path.exists('{0}') and '4194304' in open('{0}').read())"
    )
    mine._spawn(application, [sys.executable, "-c", look.format(held)], {"spark.master": "local"})
    assert mine._child is not None
    assert mine._child.wait(30) == 0
    assert application.process == mine._child.pid


@pytest.mark.parametrize(
    "changed", [{"conf": {"spark.executor.memory": "2g"}}, {"shape": {"sql": "FROM records"}}]
)
def test_an_application_with_other_arguments_is_ended_and_not_resumed(
    changed: dict[str, Any], work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "slow")
    first = engine(work)
    with pytest.raises(TaskDied):
        first.ingest(PLAN, staging, IngestWatch(die))
    (application,) = folders(work)

    assert engine(work, **changed).place(PLAN, later(staging)) == later(staging)

    assert not application.running
    assert not folders(work)


SCOPE = WindowScope("local", "orders", "etl", "parquet:/lake")
START = datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "plan",
    [
        WindowPlan.for_time(SCOPE, START, START + timedelta(hours=1), {"1:0": (0, 280)}),
        WindowPlan.explicit(SCOPE, {"1:0": (0, 280)}),
    ],
    ids=["fractions-of-seconds", "explicit-offsets"],
)
def test_an_application_is_found_by_its_scope_whatever_its_window_is_called(
    work: Path, plan: WindowPlan
) -> None:
    Applications(work).make(
        plan.window_id, {"plan": plan.to_document(), "engine": {}, "fingerprint": ""}
    ).release()
    assert engine(work).abandoned(plan) == (plan.window_id,)
    engine(work).end_abandoned(plan.window_id)
    assert not folders(work)


def test_an_application_of_another_sink_is_left_alone(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "slow")
    first = engine(work)
    with pytest.raises(TaskDied):
        first.ingest(PLAN, staging, IngestWatch(die))
    elsewhere = replace(staging, path=str(work.parent / "other" / "first"))

    assert engine(work).place(PLAN, elsewhere) == elsewhere

    (application,) = folders(work)
    assert application.running
    first.cancel()
    assert not application.running


def test_a_task_that_is_alive_shares_its_staging_place_with_no_other(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "good")
    slow = engine(work)
    slow.ingest(PLAN, staging, IngestWatch())  # and it is about to publish

    other = engine(work)
    assert other.place(PLAN, later(staging)) == later(staging)
    assert other.ingest(PLAN, later(staging), IngestWatch()).total == 2
    other.leave(None)

    (application,) = folders(work)
    assert application.result is not None
    slow.leave(OSError)
    third = engine(work)
    assert third.place(PLAN, later(staging, "third")) == staging
    third.leave(OSError)


def test_an_application_that_never_read_its_secrets_is_not_resumed(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die_early(point: str) -> None:
        raise TaskDied

    monkeypatch.setenv("FAKE_SUBMIT", "mute")
    with pytest.raises(TaskDied):
        engine(work).ingest(PLAN, staging, IngestWatch(die_early))
    (application,) = folders(work)
    assert application.running

    assert engine(work).place(PLAN, later(staging)) == later(staging)

    assert not application.running


def test_a_process_that_stays_after_its_result_is_ended(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tubemq_provider.engines.submit._END_S", 0.2)
    monkeypatch.setenv("FAKE_SUBMIT", "lingers")
    mine = engine(work)
    assert mine.ingest(PLAN, staging, IngestWatch()).total == 2
    (application,) = folders(work)
    assert not application.running
    mine.leave(OSError)
    assert engine(work).place(PLAN, later(staging)) == staging


def test_a_process_of_another_container_is_asked_to_stop_and_its_number_is_not_killed(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "slow")
    with pytest.raises(TaskDied):
        engine(work).ingest(PLAN, staging, IngestWatch(die))
    (application,) = folders(work)
    theirs = application.process
    assert theirs is not None
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as innocent:
        try:
            known = json.dumps({"pid": innocent.pid, "among": "another container"})
            (application.folder / "process.json").write_text(known)
            changed = engine(work, conf={"spark.executor.memory": "2g"})
            assert changed.place(PLAN, later(staging)) == later(staging)
            assert innocent.poll() is None
            assert application.stop_requested
        finally:
            innocent.kill()
            os.killpg(theirs, signal.SIGKILL)


def test_a_folder_that_was_removed_does_not_come_back(work: Path) -> None:
    application = Applications(work).make("w", {})
    application.remove()
    for put in (application.write_report, application.finish):
        with pytest.raises(FileNotFoundError, match="was removed"):
            put({"points": []})
    assert application.stop_requested
    assert not list(work.iterdir())


def test_old_applications_go_and_what_else_is_in_the_directory_stays(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "good")
    mine = engine(work)
    mine.ingest(PLAN, staging, IngestWatch())
    mine.leave(OSError)
    (work / "thesis").mkdir()
    (work / "thesis" / "order.json").write_text("{}")
    (work / "notes").write_text("mine")

    Applications(work).forget_old(now=time.time() + 8 * 24 * 3600)

    assert {path.name for path in work.iterdir()} == {"thesis", "notes"}


def test_a_transform_is_found_where_the_task_has_found_it(
    work: Path, staging: Staging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "clean_orders.py").write_text("def clean(frame): return frame")
    monkeypatch.syspath_prepend(tmp_path / "dags")
    monkeypatch.setenv("FAKE_SUBMIT", "good")
    mine = engine(work, shape={"transform": "clean_orders.clean"})
    assert mine.ingest(PLAN, staging, IngestWatch()).total == 2
    mine.leave(None)


def test_a_spark_home_without_spark_submit_is_named(
    work: Path, staging: Staging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "nowhere"))
    mine = engine(work)
    with pytest.raises(ConfigError, match=r"(?s)SPARK_HOME.*nowhere/bin/spark-submit"):
        mine.ingest(PLAN, staging, IngestWatch())


def test_files_of_python_that_a_user_names_go_along_with_the_package(work: Path) -> None:
    application = Applications(work).make(PLAN.window_id, {})
    mine = engine(work, conf={"spark.submit.pyFiles": "/opt/mine.zip"}, ship_package=True)
    command = mine._command(application, "spark.conf", in_cluster=False)
    package, *others = command[command.index("--py-files") + 1].split(",")
    assert Path(package).is_file()
    assert others == ["/opt/mine.zip"]


def test_a_kill_ends_the_process_and_the_ingest(
    work: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "slow")
    mine = engine(work)

    def kill(point: str) -> None:
        if point == "session started":
            mine.cancel()

    with pytest.raises(WindowError, match="was cancelled"):
        mine.ingest(PLAN, staging, IngestWatch(kill))
    (application,) = folders(work)
    assert not application.running
    assert engine(work).place(PLAN, later(staging)) == later(staging)


def test_a_directory_that_others_may_enter_is_refused(work: Path, staging: Staging) -> None:
    work.mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="others cannot enter"):
        engine(work).place(PLAN, staging)


def test_unsupported_arguments_are_listed_at_once(work: Path) -> None:
    conf = {"spark.submit.deployMode": "cluster", "hive.metastore.uris": "thrift://m"}
    with pytest.raises(ConfigError) as caught:
        engine(work, conf=conf, shape={"transform": lambda f: f})
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError, match="direct_write 'maybe'"):
        engine(work, shape={"direct_write": "maybe"})


def test_counts_and_errors_come_back_as_they_were() -> None:
    leaf = LeafFact("INT64", 10, 3, 0, 28, 84)
    fact = FileFact(
        "a.parquet", 3, 99, {"1:0": 3}, (("1:0", 0, 84, 3),), "t", b"s", {"offset": leaf}
    )
    counts = IngestCounts(
        {"1:0": 3}, 30, {"1:0": [[0, 28]]}, 1, {"1:0": [[0, 84]]}, {"1:0": Anchor(56, 7, 8)},
        (fact,), ("_corrupt/x",), {"1:0": 4},
    )  # fmt: skip
    found = counts_from(counts_document(counts))
    assert found == counts
    assert (found.files, found.quarantined) == (counts.files, counts.quarantined)
    refused = NoPermission(16, "no", where="PULL at b:1")  # of another kind of source
    for error in (CountMismatch("one\ntwo"), ConfigError(["a", "b"], subject="sink"), refused):
        back = error_from(error_document(error))
        assert (type(back), str(back), back.fatal) == (type(error), str(error), error.fatal)
    assert str(error_from(error_document(OSError("disk")))) == "OSError: disk"


def test_a_long_log_is_rotated_and_its_tail_is_still_shown(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tubemq_provider.engines.applications._LOG_BYTES", 1000)
    application = Applications(work).make("w", {})
    with application.open_log() as output:
        for number in range(5_000):
            output.write(b"line %d\n" % number)
            output.flush()
            if number % 50 == 0:
                application.bound_log()
        application.bound_log()
        assert application.log_tail(2) == "line 4998\nline 4999"
        output.write(b"the end\n")
    assert application.log_tail(2) == "line 4999\nthe end"
    kept = sum(path.stat().st_size for path in application.folder.glob("driver.log*"))
    assert kept < 4_000
