"""Explanations of Spark's own failures for this source, with the fix for each.

If the workers' interpreter is the wrong one, or lacks a package, Spark reports no more than that a
worker has crashed. `error_hint` turns its message into a sentence with the setting to change. Pure
text work: this module starts nothing and imports no pyspark.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Final

from tubemq_client.errors import ConfigError

_OURS: Final = "airflow-provider-tubemq[spark]"
_SHIP: Final = (
    "ship it with an engine's ship_package=True, spark.addArtifacts(str(spark_artifacts()), "
    "pyfile=True), addPyFile(str(spark_artifacts())) or --py-files, then register(spark)"
)
_INSTALL: Final = f"run there: pip install '{_OURS}'"
_OWN_PACKAGES: Final = ("tubemq_client", "tubemq_provider", "pyspark_tubemq")
_NEEDED: Final = ("pyarrow", "google", "protobuf", "pyspark", "obstore")
_MISSING = re.compile(r"No module named '([A-Za-z0-9_.]+)'")
_SKEW = re.compile(r"PYTHON_VERSION_MISMATCH|different version .* than that in driver")
_CRASH: Final = "Python worker exited unexpectedly"
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]*python[^"]*)"')
_NOT_FOUND: Final = "DATA_SOURCE_NOT_FOUND"


def error_hint(text: str, environment: Mapping[str, str]) -> ConfigError | None:
    """Return an error that tells how to fix the failure `text`; None for failures of other kinds.

    `environment` is that of the driver, or the one an engine has built: PYSPARK_PYTHON in it is the
    workers' interpreter.
    """
    return _config_error(_hint(text, environment.get("PYSPARK_PYTHON")))


def error_hint_on_server(text: str) -> ConfigError | None:
    """Do the same as `error_hint` if the driver is a Spark Connect server."""
    return _config_error(_server_hint(text))


def _config_error(sentence: str | None) -> ConfigError | None:
    return None if sentence is None else ConfigError(sentence, subject="Spark's Python")


def _hint(text: str, chosen: str | None) -> str | None:
    python = chosen or "the python3 of PATH, as PYSPARK_PYTHON is not set"
    choose = _choice(chosen)
    missing = _MISSING.findall(text)
    if missing:
        return _missing(missing[-1].partition(".")[0], python, choose)
    if absent := _NO_PROGRAM.search(text):
        return (
            f"there is no program {absent[1]} on a node, or on the driver's machine, which plans "
            f"with it: set spark.pyspark.python to a path that all have, or to a name such as "
            f"python3, which each finds on its own PATH"
        )
    if _SKEW.search(text):
        return (
            f"driver and workers ({python}) run different versions of Python: {choose}, and have "
            "it on every node"
        )
    if _NOT_FOUND in text and "tubemq" in text:
        return (
            f"format tubemq was not found by the driver's worker ({python}): {choose}, call "
            "tubemq_provider.spark.register(spark), or fix another package named pyspark_… whose "
            "import fails and hides all formats"
        )
    if _CRASH in text:
        return (
            f"a Python worker ({python}) crashed: if it is not the interpreter that has {_OURS}, "
            f"{choose}; if memory ran out, give spark.executor.pyspark.memory more or batchBytes "
            "less"
        )
    return None


def _choice(chosen: str | None) -> str:
    """Explain how to select the workers' interpreter. Engines use only their own setting."""
    other = "another" if chosen == sys.executable else sys.executable
    return (
        f"let PYSPARK_PYTHON, or for a session that an engine starts the setting "
        f"spark.pyspark.python, name {other} before the session starts"
    )


def _server_hint(text: str) -> str | None:
    where = "the Python of the server of Spark Connect, or of its executors,"
    version = ".".join(map(str, sys.version_info[:2]))
    if missing := _MISSING.findall(text):
        package = missing[-1].partition(".")[0]
        if package in _OWN_PACKAGES:
            return (
                f"{where} has no package {package}: ship_package=True sends it along, or {_INSTALL}"
            )
        return f"{where} has no package {package}: {_INSTALL}" if package in _NEEDED else None
    if _SKEW.search(text):
        return f"{where} is not {version}, as that of this task is: both need the same version"
    if _CRASH in text:
        return f"{where} crashed: if it is not the one that has {_OURS}, {_INSTALL}"
    return None


def _missing(package: str, python: str, choose: str) -> str | None:
    where = f"the workers' interpreter ({python}) has no package {package}: {choose}"
    if package in _OWN_PACKAGES:
        return f"{where}, if that is the wrong one; else install {_OURS} there, or {_SHIP}"
    if package in _NEEDED:
        return f"{where}, if that is the wrong one; else run there: pip install '{_OURS}'"
    return None
