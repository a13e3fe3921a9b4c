"""What a JVM that the engines start finds in its environment."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tubemq_provider.engines.java import JavaUnavailable
from tubemq_provider.engines.spark_runtime import launch_environment

pytestmark = pytest.mark.spark


def launched(python: str) -> dict[str, str]:
    """The environment of a driver whose nodes have `python`."""
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
