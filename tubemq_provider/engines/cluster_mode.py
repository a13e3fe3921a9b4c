"""What differs in an application whose driver a cluster's manager runs: YARN, in cluster mode.

The manager brings order and secrets to the driver, told and result come back through the sink's
object store (`exchange`), and a process on the task's machine stands for the driver (`supervisor`).
This module only says so: it starts nothing.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.engines.exchange import ORDER_NAME, SECRETS_NAME
from tubemq_provider.files.objects import SCHEMES, is_remote

if TYPE_CHECKING:
    from tubemq_provider.windows.protocols import Staging

__all__ = [
    "DEPLOY_MODE",
    "PROGRAM",
    "cluster_conf",
    "cluster_order",
    "deploy_problems",
    "is_cluster",
    "supervising",
    "unread_settings",
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
    """Whether these settings ask for a driver in the cluster."""
    return conf.get(DEPLOY_MODE, "client") == "cluster"


def deploy_problems(
    master: str | None, conf: Mapping[str, str], *, ship_package: bool
) -> list[str]:
    """Why the deploy mode cannot be had with `master` (None: not known yet), or so."""
    mode = conf.get(DEPLOY_MODE, "client")
    if mode not in ("client", "cluster"):
        return [f"{DEPLOY_MODE}={mode!r}: give client or cluster"]
    if mode == "client":
        return []
    problems = [] if master in (None, "yarn") else [_no_cluster(str(master))]
    if ship_package:
        problems.append(
            f"{DEPLOY_MODE}='cluster': ship_package has not all that a driver needs; install the "
            f"package on every node, and name its Python (spark.pyspark.python)"
        )
    return problems


def unread_settings(conf: Mapping[str, str]) -> list[str]:
    """Why some of `conf` would not come to a driver that `spark-submit` starts."""
    return [
        f"{key}: spark-submit leaves out what does not begin with spark.; call it spark.{key}, or "
        f"spark.hadoop.{key} if it is Hadoop's"
        for key in conf
        if not key.startswith("spark.")
    ]


def _no_cluster(master: str) -> str:
    kind = master.partition(":")[0].partition("[")[0]
    why = _WHY.get(kind, "only YARN's is known here")
    return f"{DEPLOY_MODE}='cluster' with master {master}: {why}; use YARN, or {_INSTEAD}"


def cluster_order(staging: Staging, conf: Mapping[str, str]) -> dict[str, Any]:
    """What an order says of the cluster: nothing secret. Raises `ConfigError` for a sink that the
    driver cannot share with this machine."""
    if not is_remote(staging.path):
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ConfigError(
            f"{DEPLOY_MODE}='cluster': the driver writes on another machine, but the files of "
            f"this sink begin in the directory {staging.path}; take a sink in an object store "
            f"({known}) without staging_root, or {_INSTEAD}",
            subject="submit engine",
        )
    return {
        "exchange": f"{staging.path}/_application",
        # Lower case, as YARN makes it.
        "tag": f"tubemq-{staging.window_id.lower()}-{secrets.token_hex(6)}",
        "hadoop": {name: value for name, value in conf.items() if name.startswith(_HADOOP)},
    }


def cluster_conf(conf: Mapping[str, str], tag: str, order: Path, hidden: str) -> dict[str, str]:
    """`conf` and what the driver needs. A driver that dies is not started again by the manager,
    whose second would write beside what executors of the first still write: the task's next try
    does, under names of its own."""
    brought = [f"{order.as_uri()}#{ORDER_NAME}", f"{Path(hidden).as_uri()}#{SECRETS_NAME}"]
    return {
        **conf,
        _TAGS: ",".join(filter(None, [conf.get(_TAGS), tag])),
        _FILES: ",".join(filter(None, [conf.get(_FILES), *brought])),
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.submit.waitAppCompletion": "true",
    }


def supervising(folder: Path, hidden: str, command: list[str]) -> list[str]:
    """The command of a supervisor that runs `command`; without one it goes on with what runs."""
    module = "tubemq_provider.engines.supervisor"
    return [sys.executable, "-m", module, str(folder), hidden, *command]
