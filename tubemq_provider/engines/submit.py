"""Engine `submit`: runs a plan in a separate Spark application, started by `spark-submit`.

The process does what the engine `session` does (`submit_main`) and leaves a result file, which
alone decides the outcome. The process survives the task that started it, and the next try of the
task on the same machine resumes it, whether it still runs or is done and not published. If it
cannot be resumed, a new try writes under new names, and only facts of the published try count. This
engine must not publish anything.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.engines.applications import Application, Applications, fingerprint
from tubemq_provider.engines.cache import cache_root
from tubemq_provider.engines.cluster_documents import Exchange
from tubemq_provider.engines.cluster_mode import PROGRAM as CLUSTER_PROGRAM
from tubemq_provider.engines.cluster_mode import (
    cluster_conf,
    cluster_order,
    deploy_problems,
    ignored_settings,
    is_cluster,
    supervisor_command,
)
from tubemq_provider.engines.outcome import counts_from, error_from
from tubemq_provider.engines.routed_write_job import RoutedWrite
from tubemq_provider.engines.spark_runtime import (
    CONNECT_VARIABLES,
    launch_environment,
    properties_text,
    session_conf,
    spark_submit,
)
from tubemq_provider.engines.submit_main import secrets_text, session_engine
from tubemq_provider.engines.supervisor import end_driver
from tubemq_provider.engines.yarn import Yarn
from tubemq_provider.files.locations import location_of
from tubemq_provider.files.objects import is_remote
from tubemq_provider.sinks.routed import RoutedSink
from tubemq_provider.spark.credentials_file import secret_file
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.protocols import Engine, IngestCounts, Suspended
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    from tubemq_provider.spark.routed_write_tasks import RoutedWriteTask
    from tubemq_provider.windows.plan import WindowPlan
    from tubemq_provider.windows.protocols import Document, IngestWatch, Sink, Staging

__all__ = ["SubmitEngine"]

log = logging.getLogger(__name__)

_POLL_S: Final = 0.5
_END_S: Final = 20.0
_PROGRAM: Final = "program.py"
_PY_FILES: Final = "spark.submit.pyFiles"
_HERE: Final = Path(__file__).resolve().parents[2]
_MAIN: Final = """import sys
sys.path.insert(0, {root!r})  # before what nodes are sent, which is not the whole package
from tubemq_provider.engines.submit_main import main
main({folder!r})
"""
_NOT_INHERITED: Final = (
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_PIN_THREAD"),
    *("SPARK_CONNECT_MODE_ENABLED", *CONNECT_VARIABLES),
)
"""Variables that a process must not inherit from a surrounding Spark application."""


class SubmitEngine(Engine):
    """Engine that runs one `spark-submit` process for each try of a window. On YARN the deploy mode
    (``spark.submit.deployMode``) may be ``cluster``: a node of the cluster then runs the driver,
    and the local process supervises it.

    `settings` are those of a source, as `Source.settings` returns them. `master` and `conf` are
    Spark's, passed in a file that only this user can read. `shape` has the other arguments of
    `SessionEngine` as JSON values, and `sql`. `work_dir` is the directory of application folders:
    by default one of this user, on this machine. With `ship_package` the nodes get the package as a
    zip (``--py-files``).

    Delivery: as `SessionEngine`. A started process is resumed by the next try of the same plan with
    the same settings, if that sees the same `work_dir` and machine; else its files are never
    published, and it ends by itself. `cancel` ends it. A cancelled engine cannot be used again.
    """

    resumes = True

    def __init__(
        self,
        settings: Any,
        *,
        master: str = "local[2]",
        conf: Mapping[str, str] | None = None,
        shape: Mapping[str, Any] | None = None,
        work_dir: Path | None = None,
        ship_package: bool = False,
    ) -> None:
        self._settings = settings
        self._master = master
        self._conf = dict(conf or {})
        self._shape = dict(shape or {})
        self._ship = ship_package
        _refuse(master, self._conf, self._shape, ship_package=ship_package)
        session_engine(settings, self._shape)  # validates its arguments
        self._work_dir = work_dir or cache_root() / "applications"
        self._resumable: Application | None = None
        self._application: Application | None = None
        self._was_done = False
        self._staging: Staging | None = None
        self._placed = False
        self._suspends = False
        self._expected: str | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._others: list[SubmitEngine] = []
        self._sink: RoutedSink | None = None
        self._write: RoutedWrite | None = None
        self._cancelled = threading.Event()

    @property
    def name(self) -> str:
        """``submit``."""
        return "submit"

    def into(self, sink: Sink) -> SubmitEngine:
        """See `Engine.into`. The next try of a window with routes reads it again: what an
        application wrote for its tables can be accepted only by the try that began them."""
        assert isinstance(sink, RoutedSink)
        if is_cluster(self._conf):
            raise ConfigError(
                "routes need a driver on this machine: spark.submit.deployMode=client",
                subject="submit engine",
            )
        other = copy(self)
        other._sink, other._others = sink, []  # noqa: SLF001
        self._others.append(other)
        return other

    def place(self, plan: WindowPlan, staging: Staging) -> Staging:
        """Return the staging place of an earlier try that runs or is done, else `staging`; see
        `Engine.place`. Other applications of this window in the same sink that still run are
        ended; those claimed by another task are left to it. An expected application is resumed
        whatever its outcome."""
        self._placed = True
        current = self._fingerprint(plan)
        resumed: Staging | None = None
        for application in Applications(self._work_dir).of_window(plan.window_id):
            earlier = _staging_of(application, staging)
            if earlier is None or not application.claim():
                continue
            usable = (application.order or {}).get("fingerprint") == current
            expected = application.folder.name == self._expected
            usable = usable and self._sink is None
            if resumed is None and usable and (expected or _is_usable(application, earlier)):
                self._resumable, resumed = application, earlier
                self._was_done = application.result is not None and not expected
            else:
                _end(application, staging)
                application.remove()
                application.release()
        if self._expected and resumed is None:
            log.warning(
                "the application %s is not in %s, or its arguments have changed: the window is "
                "read again, and this task waits for it. Tasks that are deferred need a "
                "spark_work_dir that all their workers share, and workers that outlive them",
                self._expected,
                self._work_dir,
            )
        return staging if resumed is None else resumed

    def may_suspend(self) -> None:
        """Let `ingest` raise `Suspended` once the application has read its secrets, the last thing
        it needs from this process; see `Engine.may_suspend`. Has no effect unless `place` was
        called."""
        self._suspends = True

    def expect(self, ticket: Document) -> None:
        """Resume the application of `ticket`; see `Engine.expect`."""
        self._expected = Application.of_ticket(ticket).folder.name

    def abandoned(self, plan: WindowPlan) -> tuple[str, ...]:
        """Return window ids of applications on this machine of the plan's group, topic and sink;
        see `Engine.abandoned`. One that a deferred task waits for is included."""
        mine = None if self._application is None else self._application.folder
        applications = Applications(self._work_dir).of_scope(plan.scope_hash)
        return tuple({each.window_id for each in applications if each.folder != mine})

    def end_abandoned(self, window_id: str) -> None:
        """End applications of a published window and remove their folders; see
        `Engine.end_abandoned`."""
        for application in Applications(self._work_dir).of_window(window_id):
            if application.claim():
                _end(application)
                application.wait_until_ended(_END_S)
                application.remove()
                application.release()

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        """Run an application that writes the records of `plan` into `staging.path`; return their
        counts.

        Blocks until the application has ended, or may be left alone (`Suspended`). Raises the error
        it failed with, `WindowError` if it ended without a result, and after `cancel`.
        """
        self._staging = staging
        self._stop_if_cancelled(plan)
        if next(plan.reads(), None) is None:
            return IngestCounts(records=dict.fromkeys(plan.ranges, 0), pieces={})
        if self._sink is None:
            return counts_from(self._run(plan, staging, watch)["counts"])
        self._write = RoutedWrite(
            self._sink,
            plan,
            staging,
            kind=self._shape.get("kind", FIRST_SOURCE),
            quarantine=self._shape.get("corrupt_records") == "quarantine",
            target_bytes=self._shape.get("target_file_bytes"),
        )
        return self._write.run(lambda task: self._run(plan, staging, watch, task)["tables"])

    def _run(
        self,
        plan: WindowPlan,
        staging: Staging,
        watch: IngestWatch,
        task: RoutedWriteTask | None = None,
    ) -> Document:
        """Return the result of an application: of the one to resume, or of a new one."""
        with ExitStack() as stack, self._claiming():
            if task is not None and self._application is not None:  # the first read of the window
                self._application.remove()
                self._application.release()
            application = self._resumable
            if application is None:
                application = self._start(plan, staging, stack, task)
                watch.progress("application submitted")
            else:
                log.info("resuming %s, which an earlier try has started", application)
                self._application = application
                if _lacks_supervisor(application):
                    self._supervise(application, staging, stack)
            self._application = application
            result = self._await(application, plan, watch, stack)
        return self._checked(application, plan, result)

    def cancel(self) -> None:
        """End the application, and make a running `ingest` fail; returns within seconds. Safe from
        any thread and from signal handlers."""
        self._cancelled.set()
        if self._application is not None:
            self._application.end()

    def leave(self, kind: object, *_: object) -> None:
        """Finish the run (an `ExitStack` may call it): remove the application's folder after
        success. After a failure the next try may resume it, but a result that could not be
        published is not offered twice."""
        for other in self._others:
            other.leave(kind)
        application = self._application
        if application is not None and (kind is None or self._was_done):
            application.remove()
        self._release()

    @contextmanager
    def _claiming(self) -> Iterator[None]:
        """Release the claim if the body fails, so that another try may resume at once; after
        success this try keeps it until the window is published."""
        try:
            yield
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        for application in (self._application, self._resumable):
            if application is not None:
                application.release()

    # -- starting ---------------------------------------------------------------------------------

    def _start(
        self,
        plan: WindowPlan,
        staging: Staging,
        stack: ExitStack,
        tables: RoutedWriteTask | None,
    ) -> Application:
        applications = Applications(self._work_dir)
        applications.forget_old()
        settings = self._spark_conf(plan)
        cluster = cluster_order(staging, settings) if is_cluster(settings) else None
        if cluster is not None:
            Yarn.of(settings, os.environ)  # fail here, not in spark-submit some seconds later
        secrets_file = self._secrets_file(staging, stack)
        application = applications.make(
            plan.window_id,
            {
                "v": 1,
                "plan": plan.to_document(),
                "engine": self._shape,
                "staging": {
                    "window_id": staging.window_id,
                    "attempt": staging.attempt,
                    "path": staging.path,
                    "final": staging.final,
                    "partition_by": _partition_json(staging),
                    "field_ids": None if staging.field_ids is None else staging.field_ids.to_json(),
                },
                "path": [entry for entry in sys.path if Path(entry).is_absolute()],
                "secrets": secrets_file,
                "fingerprint": self._fingerprint(plan),
                **({} if cluster is None else {"cluster": cluster}),
                **({} if tables is None else {"tables": tables.to_json()}),
            },
        )
        self._application = application
        if cluster is not None:
            tag, order = cluster["tag"], application.order_file
            settings = cluster_conf(settings, tag, order, secrets_file)
        properties = stack.enter_context(secret_file("spark.conf", properties_text(settings)))
        command = self._command(application, properties, in_cluster=cluster is not None)
        if cluster is not None:
            command = supervisor_command(application.folder, secrets_file, command)
        self._spawn(application, command, settings)
        return application

    def _secrets_file(self, staging: Staging, stack: ExitStack) -> str:
        tables = {} if self._write is None else self._write.storage
        secrets = secrets_text(self._settings, staging.options, tables)
        return stack.enter_context(secret_file("secrets", secrets))

    def _supervise(self, application: Application, staging: Staging, stack: ExitStack) -> None:
        """Start a new supervisor for a driver in the cluster whose local process is gone."""
        application.clear_report()  # so that secrets last until the next progress report
        command = supervisor_command(application.folder, self._secrets_file(staging, stack), [])
        self._spawn(application, command, {"spark.master": self._master, **self._conf})

    def _command(self, application: Application, properties: str, *, in_cluster: bool) -> list[str]:
        program = application.folder / _PROGRAM
        client_program = _MAIN.format(root=str(_HERE), folder=str(application.folder))
        program.write_text(CLUSTER_PROGRAM if in_cluster else client_program)
        command = [str(spark_submit()), "--properties-file", properties, "--load-spark-defaults"]
        if self._ship:
            from tubemq_provider.spark.session import spark_artifacts

            kind = self._shape.get("kind", FIRST_SOURCE)
            package = str(spark_artifacts(application.folder, kind=kind))
            # The command line's option replaces the setting.
            others = self._conf.get(_PY_FILES)
            command += ["--py-files", ",".join(filter(None, [package, others]))]
        return [*command, str(program)]

    def _spawn(
        self, application: Application, command: list[str], settings: Mapping[str, str]
    ) -> None:
        """Start the process, which holds the application's lock from its first moment on."""
        environment = {**os.environ, **launch_environment(settings)}
        lock = application.lock()
        application.forget_process()  # the number may be reused by now
        try:
            with application.open_log() as output:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={k: v for k, v in environment.items() if k not in _NOT_INHERITED},
                    cwd=application.folder,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
        finally:
            os.close(lock)
        application.process = self._child.pid
        log.info("spark-submit runs as process %s; its log: %s", self._child.pid, application.log)

    def _spark_conf(self, plan: WindowPlan) -> dict[str, str]:
        named = {"spark.app.name": f"{plan.source} window {plan.window_id} of topic {plan.topic}"}
        return session_conf(self._master, {**named, **self._conf})

    def _fingerprint(self, plan: WindowPlan) -> str:
        return fingerprint(
            {
                "plan": plan.to_document(),
                "engine": self._shape,
                "master": self._master,
                "conf": self._conf,
                "settings": repr(self._settings),  # without secrets
                "ship": self._ship,
            }
        )

    # -- waiting ----------------------------------------------------------------------------------

    def _await(
        self, application: Application, plan: WindowPlan, watch: IngestWatch, stack: ExitStack
    ) -> Document:
        """Wait for the result. Progress is passed on meanwhile; secrets last until they were
        read."""
        passed = 0
        while True:
            # In this order: a process writes its result before it ends.
            running, result, progress_document = (
                application.running,
                application.result,
                application.report,
            )
            if progress_document:
                stack.close()
            points = progress_document.get("points", ())[passed:]
            passed += len(points)
            self._pass_on(plan, progress_document, points, watch)
            if self._child is not None:
                self._child.poll()
            self._stop_if_cancelled(plan)
            if result is not None:
                return result
            if not running:
                raise WindowError(_lost_message(application, plan))
            if progress_document and self._suspends and self._placed and self._expected is None:
                raise Suspended(application.suspend())
            # Not `_cancelled.wait`: a signal handler in this thread could deadlock on its lock.
            threading.Event().wait(_POLL_S)

    def _pass_on(
        self,
        plan: WindowPlan,
        progress_document: Mapping[str, Any],
        points: list[str],
        watch: IngestWatch,
    ) -> None:
        if "application" in points:
            log.info("Spark application %s", progress_document["id"])
        if "session started" in points and progress_document.get("ui"):
            watch.on_page(progress_document["ui"])
        for point in points:
            watch.progress(point)
        if "tasks" in progress_document:
            watch.on_tasks(plan, *progress_document["tasks"])

    def _checked(self, application: Application, plan: WindowPlan, result: Document) -> Document:
        """Return a result, after its application has ended. Raises the error of a failed one."""
        if not application.wait_until_ended(_END_S):
            log.warning("%s has a result and does not end; killing it", application)
            application.kill()
        if self._child is not None:
            self._child.poll()
        if result.get("hash") != plan.hash:
            raise WindowError(f"{application.folder} has the result of another plan")
        if "error" in result:
            application.remove()
            raise error_from(result["error"])
        return result

    def _stop_if_cancelled(self, plan: WindowPlan) -> None:
        if not self._cancelled.is_set():
            return
        if self._application is not None:
            _end(self._application, self._staging)
            if self._child is not None:
                self._child.poll()
        raise WindowError(f"ingest of window {plan.window_id} was cancelled")


def _refuse(
    master: str, conf: Mapping[str, str], shape: Mapping[str, Any], *, ship_package: bool
) -> None:
    problems = [*deploy_problems(master, conf, ship_package=ship_package), *ignored_settings(conf)]
    if callable(shape.get("transform")):
        problems.append("transform: give the dotted path of the function, for another process")
    if problems:
        raise ConfigError(problems, subject="submit engine")


def _staging_of(application: Application, fresh: Staging) -> Staging | None:
    """Return the staging place of an application, if it is in the same sink and of the same layout
    as `fresh`."""
    order = application.order
    if order is None:
        return None
    stored = order["staging"]
    beside = PurePosixPath(stored["path"]).parent == PurePosixPath(fresh.path).parent
    same = stored["final"] == fresh.final and stored.get("partition_by") == _partition_json(fresh)
    if not beside or not same:
        return None
    return replace(fresh, path=stored["path"], attempt=stored["attempt"])


def _partition_json(staging: Staging) -> str | None:
    return None if staging.partition_by is None else staging.partition_by.to_json()


def _is_usable(application: Application, staging: Staging) -> bool:
    """Return True if the application's output can be, or will be, used."""
    if application.stop_requested or not (is_remote(staging.path) or Path(staging.path).is_dir()):
        return False
    running, result, progress_document = application.running, application.result, application.report
    # Without progress it has not read its secrets, which were removed with the task.
    if result is not None:
        return "counts" in result and _files_exist(counts_from(result["counts"]), staging)
    return bool(progress_document) and (running or _lacks_supervisor(application))


def _files_exist(counts: IngestCounts, staging: Staging) -> bool:
    """Return True if all written files are still in the staging place: a task that died while it
    published has moved some of them."""
    if counts.files is None:
        return True
    names = {*(fact.path for fact in counts.files), *counts.quarantined}
    return names <= location_of(staging).stored().keys()


def _lacks_supervisor(application: Application) -> bool:
    """Return True if the driver runs in a cluster without a supervisor on this machine."""
    return application.in_cluster and not application.running and application.result is None


def _end(application: Application, staging: Staging | None = None) -> None:
    """End the application here and in a cluster. A local supervisor ends the driver as well, but
    may be gone or get no answer; so the driver is also stopped from here, where `staging` has the
    options that open the store."""
    order = application.order or {}
    application.end()
    if "cluster" not in order or application.result is not None:
        return
    cluster, exchange, yarn = order["cluster"], None, None
    if staging is not None:
        exchange = Exchange(cluster["exchange"], staging.options)
    with suppress(ConfigError):
        yarn = Yarn.of(cluster.get("hadoop", {}), os.environ)
    end_driver(exchange, yarn, cluster["tag"])


def _lost_message(application: Application, plan: WindowPlan) -> str:
    what, then = "spark-submit ended", "a retry reads the window again"
    if application.in_cluster:
        what = "the local supervisor of the driver in the cluster ended"
        then = "a retry on this machine resumes that driver"
    return (
        f"window {plan.window_id}: {what} without a result, so nothing of it is "
        f"published; {then}. Its log is {application.log}, and ends:\n"
        f"{application.log_tail()}"
    )
