"""Settings of the whole test session; fixtures live next to the tests that use them.

The one exception is the genuine servers, which take a minute to start and are shared by all
folders. Nothing here starts servers or imports optional packages.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as examples

from tests.kit.servers import settings
from tests.kit.stopped_runs import pytest_sessionfinish
from tests.system.real.cluster import genuine, pair_of_brokers, two_brokers
from tools.devkit.patience import PATIENCE
from tools.devkit.quick_java import QUICK_JAVA

__all__ = ["genuine", "pair_of_brokers", "pytest_sessionfinish", "settings", "two_brokers"]

_SHARED = {
    "tests/rocketmq/": "rocketmq",
    "tests/system/airflow/test_deferring": "triggerer",
    "tests/system/airflow/test_triggers": "triggerer",
    "tests/system/airflow/": "airflow",
    "tests/system/scenarios/": "scenarios",
    "tests/system/real/": "genuine",
    "tests/client/": "tubemq",
    "tests/system/": "tubemq",
}
"""Folders, and what their tests share that takes a minute to start. Those of `genuine` and `tubemq`
have a cluster of the same kind each, those of `triggerer` and `airflow` an Airflow: they wait more
than they work."""

_NAMED = ("airflow", "spark")
"""Markers selected by `--naming`."""

# The embedded server and its clients share one interpreter in tests. With the default of 5 ms each
# round trip can wait that long for the other thread to give up the lock: ten times slower produce.
sys.setswitchinterval(0.0002)

# Small Spark jobs end sooner on a JVM that compiles less.
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)

# The duration of an example depends on the machine only.
examples.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
examples.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--naming",
        metavar="MARKER",
        help="read only files that name the marker: reading all of them takes half a minute",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    marker = config.getoption("--naming")
    if marker is None or not collection_path.name.startswith("test_"):
        return None
    return (collection_path.is_file() and not _names(collection_path, marker)) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a marker that `--naming` would not find; lengthen time limits on a busy machine."""
    for item in items:
        _lengthen(item)
    for path, marker in {
        (item.path, name) for item in items for name in _NAMED if item.get_closest_marker(name)
    }:
        if not _names(path, marker):
            raise pytest.UsageError(
                f"{path} has tests marked {marker} and does not name mark.{marker}"
            )


def _lengthen(item: pytest.Item) -> None:
    """Multiply the time limit of a test, its own or the one of the whole suite, by `PATIENCE`."""
    own = item.get_closest_marker("timeout")
    if PATIENCE == 1 or (own is not None and not own.args):
        return
    limit = float(own.args[0] if own is not None else item.config.getini("timeout"))
    options = dict(own.kwargs) if own is not None else {}
    item.add_marker(pytest.mark.timeout(limit * PATIENCE, **options), append=False)


def _names(path: Path, marker: str) -> bool:
    return f"mark.{marker}" in path.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadscope`: files go to processes whole, and so do all that share a server."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByServer(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            name = next((name for folder, name in _SHARED.items() if file.startswith(folder)), file)
            # Each genuine line is its own cluster.
            line = next((line for line in ("4.9.7", "5.5.0") if line in nodeid), "")
            return f"{name} {line}" if name == "rocketmq" else name

    return ByServer(config, log)
