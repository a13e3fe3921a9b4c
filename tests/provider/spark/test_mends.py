"""Spark's failures about interpreters and packages are explained with the setting to change."""

from __future__ import annotations

import sys

import pytest

from tubemq_provider.engines.spark_runtime import ClassicRuntime
from tubemq_provider.spark.error_hints import error_hint, error_hint_on_server

CRASH = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{CRASH}: ModuleNotFoundError: No module named 'pyarrow'", ["pyarrow", "pip install"]),
        ("ModuleNotFoundError: No module named 'tubemq_provider'", ["spark_artifacts()", "--py-f"]),
        ("ModuleNotFoundError: No module named 'google.protobuf'", ["google", "pip install"]),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has …", ["different versions of Python"]),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: tubemq", ["register(spark)"]),
        (CRASH, ["crashed", "batchBytes"]),
    ],
)
def test_a_failure_names_the_setting_to_change(text: str, words: list[str]) -> None:
    hint_for = error_hint(text, {"PYSPARK_PYTHON": "/wrong/python3"})
    assert hint_for is not None
    said = str(hint_for)
    for word in [*words, sys.executable] if "pip" not in words else words:
        assert word in said
    if "different" not in said:
        assert "/wrong/python3" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ModuleNotFoundError: No module named 'tubemq_provider'", "ship_package=True"),
        (f"{CRASH}: ModuleNotFoundError: No module named 'obstore'", "pip install"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has …", "need the same version"),
        (CRASH, "pip install"),
    ],
)
def test_hints_for_a_spark_connect_server_name_the_server(text: str, words: str) -> None:
    said = str(error_hint_on_server(text))
    assert words in said
    assert "the server of Spark Connect" in said
    assert sys.executable not in said
    assert error_hint_on_server("No module named 'orders.transform'") is None


def test_without_a_choice_the_one_of_the_path_is_named() -> None:
    assert "python3 of PATH" in str(error_hint(CRASH, {}))


def test_an_engine_names_the_interpreter_and_the_setting_that_it_obeys() -> None:
    text = f"{CRASH}: ModuleNotFoundError: No module named 'pyarrow'"
    chosen = str(
        ClassicRuntime("local[2]", {"spark.pyspark.python": "/lake/python"}).hint_for(text)
    )
    assert "(/lake/python) has no package pyarrow" in chosen
    assert f"spark.pyspark.python, name {sys.executable}" in chosen
    by_default = str(ClassicRuntime("spark://master1:7077", {}).hint_for(text))
    assert f"({sys.executable}) has no package pyarrow" in by_default
    assert "spark.pyspark.python, name another" in by_default


def test_an_interpreter_that_nodes_do_not_have_is_named_with_the_setting() -> None:
    text = (
        'java.io.IOException: Cannot run program "/opt/lake/bin/python3.11": error=2, No such file'
    )
    said = str(error_hint(text, {}))
    assert "no program /opt/lake/bin/python3.11 on a node" in said
    assert "spark.pyspark.python" in said


def test_failures_of_another_kind_are_left_alone() -> None:
    assert error_hint('Cannot run program "nvidia-smi": error=2', {}) is None
    assert error_hint("No module named 'orders.transform'", {}) is None
    assert error_hint("[TABLE_OR_VIEW_NOT_FOUND] tubemq", {}) is None
