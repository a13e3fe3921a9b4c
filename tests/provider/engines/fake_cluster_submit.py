"""Fake `spark-submit` in cluster mode: copies files to a separate directory, runs the driver there
and waits for it, as YARN and `spark-submit` do. The driver reads without Spark. The directory is
`node` next to the application's folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.kit.engines import inline_engine
from tests.provider.engines.fake_spark_submit import staging_of
from tubemq_provider.engines.cluster_documents import SECRETS_NAME, ClusterTask
from tubemq_provider.engines.outcome import counts_document
from tubemq_provider.engines.submit_main import ordered_engine, secrets_from
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import IngestWatch


def main(arguments: list[str]) -> None:
    """Act as manager, node and driver."""
    text = Path(arguments[arguments.index("--properties-file") + 1]).read_text()
    conf = dict(line.split(" ", 1) for line in text.splitlines())
    node = Path(arguments[-1]).parent.parent / "node"
    node.mkdir()
    (node / "program.py").write_text(Path(arguments[-1]).read_text())
    (node / "spark.conf").write_text(text)
    for found in map(urlsplit, conf["spark.yarn.dist.files"].split(",")):
        (node / found.fragment).write_bytes(Path(unquote(found.path)).read_bytes())
    os.chdir(node)

    secrets = secrets_from(str(node / SECRETS_NAME))
    there = ClusterTask(node, secrets["storage"])
    ordered_engine(there.order, secrets["settings"])
    there.write_report({"points": ["application"], "id": "application_1_0001"})
    plan = WindowPlan.from_document(there.order["plan"])
    staging = staging_of(there.order, secrets["storage"])
    engine = inline_engine(secrets["settings"], policies=Policies())
    counts = engine.ingest(plan, staging, IngestWatch(print))
    there.finish({"v": 1, "hash": plan.hash, "counts": counts_document(counts)})


if __name__ == "__main__":
    main(sys.argv)
