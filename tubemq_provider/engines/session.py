"""Engine `session`: runs a plan through Spark Classic in the task's process.

It configures the session that `SparkEngine` runs plans in. The driver is this process; the engine
`submit` runs it in a separate one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from tubemq_provider.engines.spark_engine import EngineShape, SparkEngine
from tubemq_provider.engines.spark_runtime import ClassicRuntime
from tubemq_provider.engines.transforms import Transform
from tubemq_provider.windows.spaces import FIRST_SOURCE

__all__ = ["SessionEngine", "Transform"]


class SessionEngine(SparkEngine):
    """Engine that runs Spark in this process: in an active session if there is one, else in a new
    local one.

    `settings` are those of a source of `kind`, as `Source.settings` returns them. `master` and
    `conf` configure a new session. `options` are further options of the kind's format, such as
    ``minPartitions``. `transform` gets the frame of the window and returns the one to write, which
    must keep the column `partition`. `gap_policy`, `corrupt_records`: as for every engine;
    ``quarantine`` needs the direct write. `decode` turns bodies into typed rows, in the tasks that
    read them; records that do not decode follow `corrupt_records`. With `following` the files have
    the last change of each key: each task reduces what it reads, this process the tasks' slices,
    with the rows of a window's keys in memory.

    `direct_write`: tasks write the files themselves, which costs a fraction of the path through the
    JVM. ``auto`` means ``on``; ``off`` selects Spark's own writer, which needs a directory that
    executors and driver share. `target_file_bytes` (direct write only) is the size of files:
    without `transform` splits share as many tasks as run at once, and a file takes several of them.
    With `ship_package` executors get the package as a zip, in an active session too.

    Delivery: each call of `ingest` reads every record of the plan once; nothing is visible before
    the sink publishes. A staging directory must be the same one for every executor; a prefix of an
    object store needs obstore on each, and is opened with the sink's options, or with the identity
    of the executors. A cancelled engine cannot be used again.
    """

    def __init__(
        self,
        settings: Any,
        *,
        master: str = "local[2]",
        conf: Mapping[str, str] | None = None,
        ship_package: bool = False,
        **shape: Unpack[EngineShape],
    ) -> None:
        shipped = shape.get("kind", FIRST_SOURCE) if ship_package else None
        super().__init__(settings, ClassicRuntime(master, conf or {}, shipped), **shape)
