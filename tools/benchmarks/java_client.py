"""The published Java client on the same topic, for comparison: compile it, and run it on request.

`java/ReadTopic.java` and `java/ProduceTopic.java` are compiled against the jars that the genuine
server was started from, so nothing more is downloaded. They stay up and make a pass for each line
of input (`JavaClient`), so a warm JVM can be measured in turn with others. The first pass warms the
JVM up and should not be counted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypedDict

from tools.benchmarks.interleaved import Rate
from tools.devkit.tubemq.artifacts import CLIENT_VERSION, GenuineUnavailable

if TYPE_CHECKING:
    from tools.devkit.tubemq.genuine import GenuineTubeMQ

__all__ = [
    "PRODUCER",
    "READER",
    "JavaClient",
    "JavaRate",
    "run_java",
    "run_java_producer",
    "run_java_reader",
]

READER = Path(__file__).with_name("java") / "ReadTopic.java"
PRODUCER = Path(__file__).with_name("java") / "ProduceTopic.java"

_LOGGING = """\
<Configuration status="ERROR">
  <Appenders><Console name="err" target="SYSTEM_ERR"/></Appenders>
  <Loggers><Root level="error"><AppenderRef ref="err"/></Root></Loggers>
</Configuration>
"""


class JavaRate(TypedDict):
    """Best measured pass. `bytes` are record bodies."""

    client: str
    records: int
    bytes: int
    seconds: float
    records_per_s: float
    mib_per_s: float


class JavaClient:
    """A Java program of `tools/benchmarks/java` that makes one pass per call, in one warm JVM.

    `with JavaClient(genuine, READER, genuine.masters, topic, str(count)) as java: java.run()`.
    Entering raises `GenuineUnavailable` without a Java compiler; `run` raises `RuntimeError` with
    the program's last lines if it fails or takes longer than `pass_timeout_s`.
    """

    def __init__(
        self,
        genuine: GenuineTubeMQ,
        source: Path,
        *arguments: str,
        heap: str = "1g",
        pass_timeout_s: float = 600.0,
    ) -> None:
        self._genuine = genuine
        self._source = source
        self._arguments = arguments
        self._heap = heap
        self._pass_timeout_s = pass_timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="tubemq-java-")

    def __enter__(self) -> Self:
        classes = Path(self._folder.name)
        try:
            command = _prepare(self._genuine, self._source, classes, self._heap)
            with (classes / "errors").open("w") as lines:
                self._process = subprocess.Popen(
                    [*command, *self._arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=lines,
                    text=True,
                )
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def run(self) -> Rate:
        """Run one pass, timed by the program's own clock; `cpu_seconds` are the whole JVM's."""
        process = self._process
        assert process is not None, "only within its `with`"
        assert process.stdin is not None
        assert process.stdout is not None
        cpu = _cpu_seconds(process.pid)
        watch = threading.Timer(self._pass_timeout_s, process.kill)
        watch.start()
        try:
            process.stdin.write("\n")
            process.stdin.flush()
            line = next((line for line in process.stdout if line.startswith("pass ")), None)
        except BrokenPipeError:
            line = None
        finally:
            watch.cancel()
        if line is None:
            output = (Path(self._folder.name) / "errors").read_text().splitlines()
            raise RuntimeError(f"{self._source.stem} failed:\n" + "\n".join(output[-10:]))
        _, _, records, size, nanoseconds = line.split()
        cpu = _cpu_seconds(process.pid) - cpu
        return Rate(int(records), int(size), int(nanoseconds) / 1e9, cpu)

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.close()  # the program ends with its input
                process.wait(30)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
            process.stdout.close()
        self._folder.cleanup()


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of a running process so far; 0 without Linux /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


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
        *(genuine.masters, topic, str(count)),
        heap=heap,
        timeout_s=timeout_s,
        lines=passes + 1,
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
    arguments = (genuine.masters, topic, *map(str, (size, count, in_flight)))
    return _best(run_java(genuine, PRODUCER, *arguments, timeout_s=timeout_s, lines=passes + 1))


def run_java(
    genuine: GenuineTubeMQ,
    source: Path,
    *arguments: str,
    heap: str = "1g",
    timeout_s: float = 600.0,
    lines: int = 0,
) -> str:
    """Compile the one class in `source` against the client's jars, run it, return its output.

    Its input is `lines` empty lines. Raises `GenuineUnavailable` without a Java compiler,
    `RuntimeError` with the program's last lines if it fails, `subprocess.TimeoutExpired` after
    `timeout_s`.
    """
    with tempfile.TemporaryDirectory(prefix="tubemq-java-") as folder:
        command = [*_prepare(genuine, source, Path(folder), heap), *arguments]
        answer = subprocess.run(
            command,
            input="\n" * lines,
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    if answer.returncode != 0:
        output = (answer.stdout + answer.stderr).strip().splitlines()
        raise RuntimeError(f"{source.stem} failed:\n" + "\n".join(output[-10:]))
    return answer.stdout


def _prepare(genuine: GenuineTubeMQ, source: Path, classes: Path, heap: str) -> list[str]:
    """Compile `source` into the folder `classes`; return the command that runs it."""
    _compile(genuine, source, classes)
    (classes / "log4j2.xml").write_text(_LOGGING)
    return [
        *(str(genuine.java.executable), f"-Xmx{heap}"),
        f"-Dlog4j.configurationFile={classes / 'log4j2.xml'}",
        *("-cp", f"{classes}:{genuine.artifacts.classpath}", source.stem),
    ]


def _compile(genuine: GenuineTubeMQ, source: Path, classes: Path) -> None:
    bundled = genuine.java.home / "bin" / "javac"
    compiler = str(bundled) if bundled.is_file() else shutil.which("javac")
    if compiler is None:
        raise GenuineUnavailable("compiling Java needs javac; install a JDK, not only a runtime")
    command = [compiler, "-cp", genuine.artifacts.classpath, "-d", str(classes), str(source)]
    answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    if answer.returncode != 0:
        raise RuntimeError(f"javac refused {source.name}:\n{answer.stderr}")


def _best(output: str) -> JavaRate:
    """Return the fastest pass but the first. A line is ``pass <number> <records> <bytes> <ns>``."""
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
