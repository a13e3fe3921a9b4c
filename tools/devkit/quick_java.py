"""Options of JVMs that live for seconds, and an archive of the classes that Spark loads.

Loading and verifying some ten thousand classes is most of the cost of starting Spark: with an
archive of them a session takes half of the processor time. `python -m tools.devkit.quick_java`
creates the archive again (half a minute); JVMs of another release, or with other jars, ignore it
and start normally. Not for benchmarks: the options forbid the JVM to compile code well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["QUICK_JAVA"]

_BASE: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ARCHIVE: Final = Path(__file__).parents[2] / ".cache" / "spark.jsa"
_LIMIT_S: Final = 180


def _options() -> str:
    # A blank would end the option where Spark forwards it.
    if not _ARCHIVE.exists() or " " in str(_ARCHIVE):
        return _BASE
    # No warnings about an archive that does not fit: some of these JVMs' output is parsed.
    return f"{_BASE} -Xlog:disable -XX:SharedArchiveFile={_ARCHIVE}"


QUICK_JAVA: Final = _options()
"""Options for JVMs that live for seconds."""

_PLAY: Final = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
session.range(1000).selectExpr("id", "cast(id as string) text").createOrReplaceTempView("numbers")
session.sql("SELECT text, count(*) FROM numbers GROUP BY text").write.parquet(sys.argv[1])
session.read.parquet(sys.argv[1]).count()
process = session.sparkContext._gateway.proc
session.stop()
process.stdin.close()  # it waits for this
process.wait()
"""


def main() -> int:
    """Create the archive; return 0 if there is one then, or if this Java creates none."""
    from tubemq_provider.engines.java import find_java

    _ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as folder:
        archive = Path(folder) / "spark.jsa"
        options = f"{_BASE} -Xlog:disable -XX:ArchiveClassesAtExit={archive}"
        environment = {"SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-c", _PLAY, str(Path(folder) / "rows")],
            env=find_java().environment({**os.environ, **environment}),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if done.returncode:
            print(done.stderr[-2_000:], file=sys.stderr)
            return 1
        if not archive.exists():
            print("this Java creates no archive of classes: Spark starts normally", flush=True)
            return 0
        archive.replace(_ARCHIVE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
