"""Starts, or finds, the Spark session of this process, and changes settings only for a while.

A session of our own binds to loopback, uses this interpreter for its Python workers and a Java that
was looked for. A session that is already active is used as it is. Knows nothing of windows; pyspark
is imported inside functions.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError, require_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "following",
    "job_group",
    "launch_environment",
    "open_session",
    "session_conf",
    "spark_submit",
    "temporary_conf",
]

_LOOPBACK = "127.0.0.1"
_FOLLOW_S = 1.0


def session_conf(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session of our own; `conf` wins over the defaults."""
    local = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return {
        "spark.master": master,
        "spark.app.name": "tubemq",
        "spark.ui.enabled": "false",
        **(local if _is_local(master) else {}),
        **conf,
    }


def open_session(master: str, conf: Mapping[str, str]) -> tuple[SparkSession, bool]:
    """The active session of this thread and False, or a new one and True.

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
    settings = session_conf(master, conf)
    with _environment(launch_environment(settings)):
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate(), True


def spark_submit() -> Path:
    """The program `spark-submit`: of SPARK_HOME, else of the installed pyspark. Raises
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
    """Runtime settings for the body of a `with`; what was set before is restored."""
    before = {key: spark.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, former in before.items():
            spark.conf.unset(key) if former is None else spark.conf.set(key, former)


@contextmanager
def job_group(spark: SparkSession, group: str, description: str) -> Iterator[None]:
    """Jobs of the body run under `group`, by which they can be cancelled and found in the UI."""
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
def following(
    spark: SparkSession, group: str, tell: Callable[[int, int], None] | None
) -> Iterator[None]:
    """Tell how many tasks of the group's running jobs are done, and how many there are, while the
    body runs: about once a second, on a thread of its own, only where that has changed."""
    if tell is None:
        yield
        return
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


def _follow(
    spark: SparkSession, group: str, tell: Callable[[int, int], None], ended: threading.Event
) -> None:
    tracker, told = spark.sparkContext.statusTracker(), (0, 0)
    while not ended.wait(_FOLLOW_S):
        try:
            running = set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(group))
            jobs = [job for id_ in running if (job := tracker.getJobInfo(id_)) is not None]
            stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
        except Exception:  # noqa: BLE001 - the session is going; its end says why
            return
        known = [stage for stage in stages if stage is not None]
        now = sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)
        if now != told and now[1]:
            told = now
            tell(*now)


def _is_local(master: str) -> bool:
    return master.startswith("local")


def launch_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """What the JVM and the Python workers it starts must find in their environment."""
    from tubemq_provider.engines.java import find_java

    python = settings.get("spark.pyspark.python", sys.executable)
    environment = {
        **{key: value for key, value in find_java().environment().items() if key == "JAVA_HOME"},
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if _is_local(settings["spark.master"]):
        environment["SPARK_LOCAL_IP"] = _LOOPBACK
    return environment


@contextmanager
def _environment(overrides: Mapping[str, str]) -> Iterator[None]:
    """This process's environment while a JVM is started; restored, since tasks may rely on it."""
    before = {name: os.environ.get(name) for name in overrides}
    os.environ.update(overrides)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = former


def _require_jars(package: str | None) -> None:
    """A `pyspark-client` installed over `pyspark` leaves a package that cannot start a JVM."""
    if "SPARK_HOME" in os.environ or package is None:
        return
    if not (Path(package).parent / "jars").is_dir():
        raise ConfigError(
            "pyspark is installed without its jars (pyspark-client is, or has overwritten it); "
            "uninstall both, then: pip install 'airflow-provider-tubemq[spark]'",
            subject="PySpark installation",
        )
