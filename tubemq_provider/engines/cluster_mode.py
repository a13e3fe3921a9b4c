"""Differences of an application whose driver runs in the cluster: YARN in cluster mode.

The cluster's manager ships order and secrets to the driver; progress and result come back through
the sink's object store (`exchange`), and a process on the task's machine represents the driver
(`supervisor`). This module computes settings and checks; it starts nothing.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.engines.cluster_documents import ORDER_NAME, SECRETS_NAME
from tubemq_provider.files.objects import SCHEMES, is_remote

if TYPE_CHECKING:
    from tubemq_provider.windows.protocols import Staging

__all__ = [
    "DEPLOY_MODE",
    "PROGRAM",
    "cluster_conf",
    "cluster_order",
    "deploy_problems",
    "ignored_settings",
    "is_cluster",
    "supervisor_command",
]

DEPLOY_MODE: Final = "spark.submit.deployMode"

PROGRAM: Final = """from tubemq_provider.engines.submit_main import cluster_main
cluster_main()
"""

_FILES: Final = "spark.yarn.dist.files"
_TAGS: Final = "spark.yarn.tags"
_HADOOP: Final = "spark.hadoop.yarn."
_INSTEAD: Final = (
    f"leave {DEPLOY_MODE} at client: the driver then runs on the worker's machine, executors on "
    f"the cluster"
)
_WHY: Final = {
    "spark": "Spark's own manager runs no Python program in cluster mode",
    "k8s": "with Kubernetes, cluster mode is not supported here",
    "local": "a local master has no cluster",
}


def is_cluster(conf: Mapping[str, str]) -> bool:
    """Return True if these settings ask for a driver in the cluster."""
    return conf.get(DEPLOY_MODE, "client") == "cluster"


def deploy_problems(
    master: str | None, conf: Mapping[str, str], *, ship_package: bool
) -> list[str]:
    """Return the problems of the deploy mode with `master` (None: not known yet)."""
    mode = conf.get(DEPLOY_MODE, "client")
    if mode not in ("client", "cluster"):
        return [f"{DEPLOY_MODE}={mode!r}: give client or cluster"]
    if mode == "client":
        return []
    problems = [] if master in (None, "yarn") else [_no_cluster(str(master))]
    if ship_package:
        problems.append(
            f"{DEPLOY_MODE}='cluster': ship_package does not include all that a driver needs; "
            f"install the package on every node, and name its Python (spark.pyspark.python)"
        )
    return problems


def ignored_settings(conf: Mapping[str, str]) -> list[str]:
    """Return a problem for each setting that `spark-submit` would not pass on to the driver."""
    return [
        f"{key}: spark-submit leaves out what does not begin with spark.; call it spark.{key}, or "
        f"spark.hadoop.{key} if it is Hadoop's"
        for key in conf
        if not key.startswith("spark.")
    ]


def _no_cluster(master: str) -> str:
    kind = master.partition(":")[0].partition("[")[0]
    why = _WHY.get(kind, "only YARN's manager is supported")
    return f"{DEPLOY_MODE}='cluster' with master {master}: {why}; use YARN, or {_INSTEAD}"


def cluster_order(staging: Staging, conf: Mapping[str, str]) -> dict[str, Any]:
    """Return the part of an order that describes the cluster; it holds no secret. Raises
    `ConfigError` for a sink that the driver cannot share with this machine."""
    if not is_remote(staging.path):
        schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ConfigError(
            f"{DEPLOY_MODE}='cluster': the driver writes on another machine, but the files of "
            f"this sink begin in the directory {staging.path}; take a sink in an object store "
            f"({schemes}) without staging_root, or {_INSTEAD}",
            subject="submit engine",
        )
    return {
        "exchange": f"{staging.path}/_application",
        # Lower case, as YARN makes it.
        "tag": f"tubemq-{staging.window_id.lower()}-{secrets.token_hex(6)}",
        "hadoop": {name: value for name, value in conf.items() if name.startswith(_HADOOP)},
    }


def cluster_conf(
    conf: Mapping[str, str], tag: str, order: Path, secrets_file: str
) -> dict[str, str]:
    """Return `conf` with what a driver in the cluster needs. The manager must not restart a driver
    that died: the second one would write next to executors of the first that still run. The next
    try of the task starts one under new names."""
    files = [f"{order.as_uri()}#{ORDER_NAME}", f"{Path(secrets_file).as_uri()}#{SECRETS_NAME}"]
    return {
        **conf,
        _TAGS: ",".join(filter(None, [conf.get(_TAGS), tag])),
        _FILES: ",".join(filter(None, [conf.get(_FILES), *files])),
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.submit.waitAppCompletion": "true",
    }


def supervisor_command(folder: Path, secrets_file: str, command: list[str]) -> list[str]:
    """Return the command of a supervisor that runs `command`, or, without one, resumes watching the
    running application."""
    module = "tubemq_provider.engines.supervisor"
    return [sys.executable, "-m", module, str(folder), secrets_file, *command]
