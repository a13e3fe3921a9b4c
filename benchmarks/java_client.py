"""The published Java client on the same topic, for comparison: compile, run, take the best pass.

`java/ReadTopic.java` is compiled against the jars that the genuine server was started from, so
nothing more is downloaded. The first pass warms the JVM up and is not counted.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tubemq_client.testing.artifacts import CLIENT_VERSION, GenuineUnavailable

if TYPE_CHECKING:
    from tubemq_client.testing.genuine import GenuineTubeMQ

__all__ = ["JavaRate", "run_java", "run_java_producer", "run_java_reader"]

READER = Path(__file__).with_name("java") / "ReadTopic.java"
PRODUCER = Path(__file__).with_name("java") / "ProduceTopic.java"

_LOGGING = """\
<Configuration status="ERROR">
  <Appenders><Console name="err" target="SYSTEM_ERR"/></Appenders>
  <Loggers><Root level="error"><AppenderRef ref="err"/></Root></Loggers>
</Configuration>
"""


class JavaRate(TypedDict):
    """The best measured pass. `bytes` are record bodies."""

    client: str
    records: int
    bytes: int
    seconds: float
    records_per_s: float
    mib_per_s: float


def run_java_reader(
    genuine: GenuineTubeMQ,
    topic: str,
    count: int,
    *,
    passes: int = 3,
    heap: str = "1g",
    timeout_s: float = 600.0,
) -> JavaRate:
    """Read at least `count` records of `topic` from offset 0 in each of `passes` passes.

    Raises like `run_java`.
    """
    output = run_java(
        genuine,
        READER,
        *(genuine.masters, topic, str(count), str(passes + 1)),
        heap=heap,
        timeout_s=timeout_s,
    )
    return _best(output)


def run_java_producer(
    genuine: GenuineTubeMQ,
    topic: str,
    size: int,
    count: int,
    in_flight: int,
    *,
    passes: int = 3,
    timeout_s: float = 600.0,
) -> JavaRate:
    """Send `count` records of `size` bytes to `topic` in each of `passes` passes.

    Raises like `run_java`.
    """
    numbers = (size, count, passes + 1, in_flight)
    arguments = (genuine.masters, topic, *map(str, numbers))
    return _best(run_java(genuine, PRODUCER, *arguments, timeout_s=timeout_s))


def run_java(
    genuine: GenuineTubeMQ,
    source: Path,
    *arguments: str,
    heap: str = "1g",
    timeout_s: float = 600.0,
) -> str:
    """Compile the one class in `source` against the client's jars, run it, return its output.

    Raises `GenuineUnavailable` without a Java compiler, `RuntimeError` with the program's last
    lines if it fails, `subprocess.TimeoutExpired` after `timeout_s`.
    """
    with tempfile.TemporaryDirectory(prefix="tubemq-java-") as folder:
        classes = Path(folder)
        _compile(genuine, source, classes)
        (classes / "log4j2.xml").write_text(_LOGGING)
        command = [
            *(str(genuine.java.executable), f"-Xmx{heap}"),
            f"-Dlog4j.configurationFile={classes / 'log4j2.xml'}",
            *("-cp", f"{classes}:{genuine.artifacts.classpath}", source.stem, *arguments),
        ]
        answer = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=timeout_s
        )
    if answer.returncode != 0:
        lines = (answer.stdout + answer.stderr).strip().splitlines()
        raise RuntimeError(f"{source.stem} failed:\n" + "\n".join(lines[-10:]))
    return answer.stdout


def _compile(genuine: GenuineTubeMQ, source: Path, classes: Path) -> None:
    beside = genuine.java.home / "bin" / "javac"
    compiler = str(beside) if beside.is_file() else shutil.which("javac")
    if compiler is None:
        raise GenuineUnavailable("compiling Java needs javac; install a JDK, not only a runtime")
    command = [compiler, "-cp", genuine.artifacts.classpath, "-d", str(classes), str(source)]
    answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    if answer.returncode != 0:
        raise RuntimeError(f"javac refused {source.name}:\n{answer.stderr}")


def _best(output: str) -> JavaRate:
    """The fastest pass but the first. A line reads ``pass <number> <records> <bytes> <ns>``."""
    passes = [
        (int(nanoseconds) / 1e9, int(records), int(size))
        for word, number, records, size, nanoseconds in map(str.split, output.splitlines())
        if word == "pass" and number != "0"
    ]
    seconds, records, size = min(passes, key=lambda one: one[0] / one[1])
    return {
        "client": CLIENT_VERSION,
        "records": records,
        "bytes": size,
        "seconds": seconds,
        "records_per_s": records / seconds,
        "mib_per_s": size / seconds / 2**20,
    }
