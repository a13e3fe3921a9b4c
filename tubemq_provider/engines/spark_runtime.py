"""Interface between the Spark engines and a session, and Spark Classic's implementation: a JVM of
this process.

A new session binds to loopback, uses this interpreter for its Python workers and the Java of
`find_java`. A session that is already active is used as it is, and its settings are changed only
temporarily. Does not depend on windows; pyspark is imported inside functions.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.spark.credentials_file import secret_file
from tubemq_provider.spark.error_hints import error_hint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

__all__ = [
    "CONNECT_VARIABLES",
    "ClassicRuntime",
    "SparkRuntime",
    "TaskObserver",
    "environment",
    "full_read_conf",
    "job_group",
    "launch_environment",
    "open_session",
    "properties_text",
    "reporting_tasks",
    "session_conf",
    "spark_submit",
    "temporary_conf",
]

T = TypeVar("T")
TaskObserver = Callable[[int, int], None]
"""Callback while the window's job runs: finished tasks, total tasks."""

_LOOPBACK = "127.0.0.1"
_TASK_RUNNER = "airflow.sdk.execution_time.task_runner"
"""Module that has `SUPERVISOR_COMMS` in the process of a task of Airflow."""
_STDOUT, _STDERR = 1, 2
_FOLLOW_S = 1.0
_END_S = 20.0
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
CONNECT_VARIABLES = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_API_MODE")
"""Variables that direct a new session to a Spark Connect server, whatever its master."""
_PROPERTIES = "--properties-file"
_SPECIAL = re.compile(r"[ \t\f:=#!\\]")
"""Characters that end a key of Java properties, or turn it into a comment."""


class SparkRuntime(Protocol):
    """Access to a session, and the differences between Spark Classic and Spark Connect."""

    @property
    def name(self) -> str:
        """Name of the engine."""

    def open(self, plan_hash: str) -> SparkSession:
        """Return the session for a plan; called once per ingest. Blocks for some seconds."""

    def ui_url(self, spark: SparkSession) -> str | None:
        """Return the URL of Spark's UI, if known."""

    def job(
        self, spark: SparkSession, group: str, description: str, tell: TaskObserver
    ) -> AbstractContextManager[None]:
        """Run the body's jobs under `group`, by which they can be found, followed and
        interrupted."""

    def interrupt(self, spark: SparkSession, group: str) -> None:
        """Cancel the running jobs of `group`. Safe from any thread."""

    def run_isolated(
        self, spark: SparkSession, body: Callable[[], T], stop: Callable[[], None]
    ) -> T:
        """Run `body` so that an exception raised by a signal handler cannot break the session; call
        `stop`, which makes the body end soon, in that case. Returns or raises as `body` does."""

    def slots(self, spark: SparkSession) -> int:
        """Return the number of tasks that run at once."""

    def register(
        self, spark: SparkSession, source: type[DataSource], secrets: Sequence[str]
    ) -> None:
        """Register a format with the session. `secrets`: files of this machine, named by options of
        the format, that the driver must read while it plans."""

    def hint_for(self, text: str) -> ConfigError | None:
        """Return an error that says how to fix Spark's failure `text`, if the cause is known."""

    def stop(self) -> None:
        """Stop what `open` has started."""


class ClassicRuntime:
    """Session of this process: the active one, else a new one with `master` and `conf`. `shipped`
    is the kind of source whose package executors get, or None. See `SparkRuntime`."""

    def __init__(self, master: str, conf: Mapping[str, str], shipped: str | None = None) -> None:
        self._master = master
        self._conf = dict(conf)
        self._shipped = shipped
        self._own: SparkSession | None = None
        self._is_foreign = False

    @property
    def name(self) -> str:
        """``session``."""
        return "session"

    def open(self, plan_hash: str) -> SparkSession:  # noqa: ARG002 - one session for all windows
        """See `open_session`."""
        spark, own = open_session(self._master, self._conf)
        # A session that an earlier ingest of ours started is not a foreign one.
        self._is_foreign = not own and self._own is None
        if own:
            self._own = spark
        if self._shipped is not None:
            _ship(spark, _package(self._shipped))
        return spark

    def ui_url(self, spark: SparkSession) -> str | None:
        """Return the URL of Spark's UI; None if it is turned off."""
        return spark.sparkContext.uiWebUrl

    @contextmanager
    def job(
        self, spark: SparkSession, group: str, description: str, tell: TaskObserver
    ) -> Iterator[None]:
        """Run the body in a Spark job group, and follow its tasks."""
        with job_group(spark, group, description), reporting_tasks(spark, group, tell):
            yield

    def interrupt(self, spark: SparkSession, group: str) -> None:
        """Cancel the job group."""
        spark.sparkContext.cancelJobGroup(group)

    def run_isolated(
        self, spark: SparkSession, body: Callable[[], T], stop: Callable[[], None]
    ) -> T:
        """Run `body` on a separate thread: an interrupted call into the JVM breaks the session."""
        from pyspark.sql import SparkSession

        def active() -> T:
            # The JVM serves it with another thread, too, which has no active session.
            session_class = SparkSession._get_j_spark_session_class(spark._jvm)  # noqa: SLF001
            session_class.setActiveSession(spark._jsparkSession)  # noqa: SLF001
            return body()

        return _on_another_thread(active, stop)

    def slots(self, spark: SparkSession) -> int:
        """Return the application's default parallelism, its number of cores."""
        return spark.sparkContext.defaultParallelism

    def register(
        self,
        spark: SparkSession,
        source: type[DataSource],
        secrets: Sequence[str],  # noqa: ARG002 - the driver runs on this machine
    ) -> None:
        """Register `source` with the session."""
        spark.dataSource.register(source)

    def hint_for(self, text: str) -> ConfigError | None:
        """Return the hint for the interpreter that the session was started with."""
        if self._is_foreign:
            return error_hint(text, os.environ)
        return error_hint(text, {"PYSPARK_PYTHON": _python(self._conf)})

    def stop(self) -> None:
        """Stop a session that this runtime has started; one that was active before keeps
        running."""
        spark, self._own = self._own, None
        if spark is not None:
            spark.stop()


def session_conf(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a new session; `conf` wins over the defaults."""
    local = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return {
        "spark.master": master,
        "spark.app.name": "tubemq",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Explicit, because spark-defaults.conf may set another mode.
        "spark.submit.deployMode": "client",
        # Functions in Python see instants in the zone of the worker's process.
        "spark.executorEnv.TZ": conf.get(_ZONE, "UTC"),
        **(local if _is_local(master) else {}),
        **conf,
    }


def open_session(master: str, conf: Mapping[str, str]) -> tuple[SparkSession, bool]:
    """Return the active session of this thread, or that of another one, and False; or a new one and
    True.

    An active session keeps its master and settings. Blocks for some seconds when a JVM starts.
    Raises `MissingExtraError` without PySpark, `engines.java.JavaUnavailable` without Java.
    """
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise require_extra("spark", error) from error
    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    _require_jars(pyspark.__file__)
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - Spark has no public name
        with environment(dict.fromkeys(CONNECT_VARIABLES)):
            return SparkSession.builder.getOrCreate(), False
    settings = session_conf(master, conf)
    with environment({**launch_environment(settings), **dict.fromkeys(CONNECT_VARIABLES)}):
        _launch(settings)
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate(), True


def _launch(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process, if it has none, with a properties file: pyspark would pass
    `settings` on a command line, which every user of the machine can read. It still does if
    PYSPARK_SUBMIT_ARGS names a properties file, since there can be only one."""
    from pyspark import SparkContext

    submit_arguments = os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell")
    if _PROPERTIES in submit_arguments:
        return
    with secret_file("spark.conf", properties_text(settings)) as path:
        arguments = f"{_PROPERTIES} {shlex.quote(path)} --load-spark-defaults {submit_arguments}"
        with environment({_SUBMIT_ARGUMENTS: arguments}), _logs_on_stdout():
            SparkContext._ensure_initialized()  # noqa: SLF001 - no public call starts just the JVM


@contextmanager
def _logs_on_stdout() -> Iterator[None]:
    """Let a child process write what it logs to standard output, in a task of Airflow.

    Airflow shows each line of standard error as an ERROR, and Spark writes everything there, also
    the notices of its start."""
    if not hasattr(sys.modules.get(_TASK_RUNNER), "SUPERVISOR_COMMS"):
        yield
        return
    saved = os.dup(_STDERR)
    try:
        os.dup2(_STDOUT, _STDERR)
        yield
    finally:
        os.dup2(saved, _STDERR)
        os.close(saved)


def properties_text(conf: Mapping[str, str]) -> str:
    """Format `conf` as Java properties; values are preserved, whatever they begin with."""
    lines = []
    for key, value in conf.items():
        name = _SPECIAL.sub(lambda sign: f"\\{sign[0]}", key)
        text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        # After the blank, a first ':' or '=' would be read as the separator of key and value.
        text = f"\\{text}" if text.startswith((":", "=")) else text
        lines.append(f"{name} {text}\n")
    return "".join(lines)


@cache
def _package(kind: str) -> Path:
    """Build the zip for executors. It lasts as long as this process, which serves it to executors
    that start later; a killed process leaves it in the directory of temporary files."""
    from tubemq_provider.spark.session import spark_artifacts

    folder = tempfile.TemporaryDirectory(prefix="tubemq-ship-")
    atexit.register(folder.cleanup)
    return spark_artifacts(folder.name, kind=kind)


def _ship(spark: SparkSession, package: Path) -> None:
    context = spark.sparkContext
    if any(Path(file).name == package.name for file in context.listFiles):
        return  # shipped by an earlier engine into the same session
    before = list(sys.path)
    context.addPyFile(str(package))
    # The zip is not the whole package, which this process has already.
    sys.path[:] = [entry for entry in sys.path if entry in before or package.name not in entry]


def spark_submit() -> Path:
    """Return the path of `spark-submit`: that of SPARK_HOME, else of the installed pyspark. Raises
    `MissingExtraError` without either, `ConfigError` for a pyspark without its jars and for a
    SPARK_HOME without the program."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        try:
            import pyspark
        except ImportError as error:
            raise require_extra("spark", error) from error
        _require_jars(pyspark.__file__)
        home = str(Path(pyspark.__file__).parent)
    program = Path(home) / "bin" / "spark-submit"
    if not os.access(program, os.X_OK):
        raise ConfigError(
            f"there is no program {program}: let SPARK_HOME name an installation of Spark, or "
            f"nothing, to use that of pyspark",
            subject="SPARK_HOME",
        )
    return program


@contextmanager
def temporary_conf(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Apply runtime settings for the body. Afterwards earlier values are restored, and settings
    that were not set are unset again: a default written explicitly would count as chosen by the
    user."""
    chosen = spark.conf.getAll
    before = {key: chosen.get(key) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, former in before.items():
            spark.conf.unset(key) if former is None else spark.conf.set(key, former)


_ZONE = "spark.sql.session.timeZone"

_SKIPPING = {
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation",
        "org.apache.spark.sql.catalyst.optimizer.PruneFilters",
    ),
    "spark.sql.adaptive.optimizer.excludedRules": (
        "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
    ),
}
"""Optimizer rules that skip a read whose rows a query turns out not to need."""


def session_zone_conf(spark: SparkSession) -> dict[str, str]:
    """Return UTC as the session's zone unless the user has set one: by default it is the machine's,
    and a try on another worker would produce different rows from the same records."""
    return {} if _ZONE in spark.conf.getAll else {_ZONE: "UTC"}


def full_read_conf(spark: SparkSession) -> dict[str, str]:
    """Return settings under which a join with an empty table, or a condition that is never true,
    still reads the other side: each record of a window is read, even if no row results from it."""
    settings = {}
    for key, rules in _SKIPPING.items():
        excluded = [name.strip() for name in (spark.conf.get(key, None) or "").split(",")]
        settings[key] = ",".join(dict.fromkeys(filter(None, [*excluded, *rules])))
    return settings


def _on_another_thread(body: Callable[[], T], stop: Callable[[], None]) -> T:
    """Run `body` with this thread's context and Spark's local properties; return or raise as it
    does.

    A signal handler (Airflow's for `execution_timeout`) raises in the main thread, which waits here
    meanwhile. If that interrupted a call into the JVM, the next call would read the pending answer
    of this one as its own; pyspark makes such calls itself before it lets an exception through.
    `stop` is called then, and the exception is raised once the body has ended, after `_END_S` at
    most.
    """
    from pyspark import InheritableThread

    done: Future[T] = Future()
    context = copy_context()

    def work() -> None:
        try:
            done.set_result(context.run(body))
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            done.set_exception(error)

    InheritableThread(work, name="tubemq-spark", daemon=True).start()
    try:
        wait([done])
    except BaseException:
        stop()
        wait([done], _END_S)
        raise
    return done.result()


@contextmanager
def job_group(spark: SparkSession, group: str, description: str) -> Iterator[None]:
    """Run the body's jobs under `group`, by which they can be cancelled and found in the UI."""
    context = spark.sparkContext
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    before = {name: context.getLocalProperty(name) for name in names}
    context.setJobGroup(group, description, interruptOnCancel=True)
    try:
        yield
    finally:
        for name, former in before.items():
            context.setLocalProperty(name, former)  # type: ignore[arg-type]  # None removes it


@contextmanager
def reporting_tasks(spark: SparkSession, group: str, tell: TaskObserver) -> Iterator[None]:
    """Report finished and total tasks of the group's running jobs while the body runs: about once a
    second, from a separate thread, and only after a change."""
    ended = threading.Event()
    thread = threading.Thread(
        target=_follow, args=(spark, group, tell, ended), name="tubemq-progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_FOLLOW_S)


def _follow(spark: SparkSession, group: str, tell: TaskObserver, ended: threading.Event) -> None:
    tracker, reported = spark.sparkContext.statusTracker(), (0, 0)
    while not ended.wait(_FOLLOW_S):
        try:
            running = set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(group))
            jobs = [job for id_ in running if (job := tracker.getJobInfo(id_)) is not None]
            stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
        except Exception:  # noqa: BLE001 - the session is stopping; the body's error has the reason
            return
        running_stages = [stage for stage in stages if stage is not None]
        now = (
            sum(s.numCompletedTasks for s in running_stages),
            sum(s.numTasks for s in running_stages),
        )
        if now != reported and now[1]:
            reported = now
            tell(*now)


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _python(settings: Mapping[str, str]) -> str:
    """Return the interpreter of Python workers in a new session."""
    return settings.get("spark.pyspark.python", sys.executable)


def launch_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that the JVM and its Python workers need."""
    from tubemq_provider.engines.java import find_java

    python = _python(settings)
    environment = {
        **{key: value for key, value in find_java().environment().items() if key == "JAVA_HOME"},
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    interpreter_folder = Path(sys.executable).parent
    if os.sep not in python and (interpreter_folder / python).exists():
        # Executors resolve the name on their own PATH; the driver, which plans, needs this one.
        environment["PATH"] = (
            f"{interpreter_folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        )
    if _is_local(settings["spark.master"]):
        environment["SPARK_LOCAL_IP"] = _LOOPBACK
    return environment


@contextmanager
def environment(overrides: Mapping[str, str | None]) -> Iterator[None]:
    """Override environment variables while the body runs (None removes one), and restore them,
    since tasks may rely on them."""
    before = {name: os.environ.get(name) for name in overrides}
    _set(overrides)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _require_jars(package: str | None) -> None:
    """Raise `ConfigError` for a pyspark without jars: a `pyspark-client` installed over `pyspark`
    leaves a package that cannot start a JVM."""
    if "SPARK_HOME" in os.environ or package is None:
        return
    if not (Path(package).parent / "jars").is_dir():
        raise ConfigError(
            "pyspark is installed without its jars (pyspark-client is, or has overwritten it); "
            "uninstall both, then: pip install 'airflow-provider-tubemq[spark]'",
            subject="PySpark installation",
        )
