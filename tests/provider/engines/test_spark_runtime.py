"""Environment of a JVM that the engines start."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tubemq_provider.engines.java import JavaUnavailable
from tubemq_provider.engines.spark_runtime import launch_environment, open_session

pytestmark = pytest.mark.spark


def launched(python: str) -> dict[str, str]:
    """Return the environment of a driver whose nodes have `python`."""
    try:
        return launch_environment(
            {"spark.master": "k8s://https://api:6443", "spark.pyspark.python": python}
        )
    except JavaUnavailable as error:
        pytest.skip(str(error))


def test_a_python_that_is_a_name_is_this_one_for_the_driver() -> None:
    name = Path(sys.executable).name
    found = launched(name)
    assert found["PYSPARK_PYTHON"] == name
    assert shutil.which(name, path=found["PATH"]) == sys.executable
    assert "PATH" not in launched("/opt/lake/bin/python3")
    assert "PATH" not in launched("python-of-nodes")


def launched_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Make `script` what starts the JVM of a process that has none yet; return its place."""
    pyspark = pytest.importorskip("pyspark")
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", None)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    monkeypatch.setattr("pyspark.sql.SparkSession._instantiatedSession", None)
    return program


@pytest.mark.parametrize(("process", "errors"), [("task", 0), ("another", 1)])
def test_what_spark_logs_is_no_error_of_a_task(
    process: str,
    errors: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Airflow shows each line that a task's processes write to standard error as an ERROR."""
    launched_by(tmp_path, monkeypatch, "#!/bin/sh\necho notice >&2\nexit 1\n")
    runner = SimpleNamespace(SUPERVISOR_COMMS=None) if process == "task" else None
    monkeypatch.setitem(sys.modules, "airflow.sdk.execution_time.task_runner", runner)
    with pytest.raises(Exception, match="JAVA_GATEWAY_EXITED"):
        open_session("local[1]", {})
    os.write(2, b"mine\n")
    said = capfd.readouterr()
    assert said.err == "notice\n" * errors + "mine\n"
    assert said.out == "notice\n" * (1 - errors)


def test_settings_of_a_session_appear_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = launched_by(
        tmp_path,
        monkeypatch,
        '#!/bin/sh\necho "$*" > "$0.told"\ncat "$2" > "$0.conf"\nexit 1\n',
    )
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("SPARK_REMOTE", "sc://connect1")  # it belongs to tasks of other engines
    with pytest.raises(Exception, match="JAVA_GATEWAY_EXITED"):
        open_session("local[1]", {"spark.hadoop.fs.s3a.secret.key": "hush-hush"})
    told = (program.parent / "spark-submit.told").read_text()
    assert "hush-hush" not in told
    assert told.endswith("--load-spark-defaults pyspark-shell\n")
    conf = (program.parent / "spark-submit.conf").read_text()
    assert "fs.s3a.secret.key hush-hush" in conf
    assert "spark.submit.deployMode client\n" in conf  # whatever spark-defaults.conf says
    assert os.environ["SPARK_REMOTE"] == "sc://connect1"
