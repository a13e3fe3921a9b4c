"""Resolves the published jars of a genuine RocketMQ with the ordinary `mvn` client, once per line.

Versions are fixed: these two lines are completely published and tested. A stamp file written last
marks a complete directory; everything else is deleted and fetched again.

Run as ``python -m tools.devkit.rocketmq.artifacts`` it fills the cache for both lines and prints
the folders. Nothing here starts a server or knows a repository address: that is Maven's
configuration.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tubemq_client.errors import LocalError
from tubemq_provider.engines.cache import cache_root
from tubemq_provider.engines.java import JavaRuntime, JavaUnavailable, find_java

__all__ = [
    "LINES",
    "Line",
    "RocketMQArtifacts",
    "RocketMQUnavailable",
    "cached_artifacts",
    "resolve_artifacts",
]

Line = Literal["4.9.7", "5.5.0"]
LINES: tuple[Line, ...] = ("4.9.7", "5.5.0")

_STAMP = "complete"
_PARTS = ("rocketmq-namesrv", "rocketmq-broker", "rocketmq-tools", "rocketmq-client")


class RocketMQUnavailable(LocalError):
    """No genuine RocketMQ here; the message is one line that names the missing part."""


@dataclass(frozen=True, slots=True)
class RocketMQArtifacts:
    """A directory with every jar of one line: servers, tools and the Java client."""

    line: Line
    directory: Path

    @property
    def classpath(self) -> str:
        """Argument of `java -cp`."""
        return os.pathsep.join(str(jar) for jar in sorted(self.directory.glob("*.jar")))


def cached_artifacts(line: Line, cache_dir: Path | None = None) -> RocketMQArtifacts | None:
    """Return the jars if a complete set is in the cache, else None. Touches no network."""
    directory = _directory(line, cache_dir)
    try:
        expected = (directory / _STAMP).read_text().split()
    except OSError:
        return None
    present = {jar.name for jar in directory.glob("*.jar")}
    complete = expected and present.issuperset(expected)
    return RocketMQArtifacts(line, directory) if complete else None


def resolve_artifacts(
    line: Line,
    *,
    cache_dir: Path | None = None,
    java: JavaRuntime | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> RocketMQArtifacts:
    """Return the jars, fetched with `mvn` if need be. Safe from several processes at once.

    Raises `RocketMQUnavailable` if Maven or Java is missing, or Maven fails.
    """
    env = os.environ if env is None else env
    cached = cached_artifacts(line, cache_dir)
    if cached is not None:
        return cached
    maven = shutil.which("mvn", path=env.get("PATH", os.defpath))
    if maven is None:
        raise RocketMQUnavailable("mvn is not on PATH; Apache Maven fetches the RocketMQ jars")
    try:
        java = java or find_java(env=env)
    except JavaUnavailable as exc:
        raise RocketMQUnavailable(str(exc)) from exc
    directory = _directory(line, cache_dir)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(f"{directory.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if cached_artifacts(line, cache_dir) is None:
            _fetch(line, [maven], java.environment(env), directory, timeout_s)
    return RocketMQArtifacts(line, directory)


def _directory(line: Line, cache_dir: Path | None) -> Path:
    return (cache_dir or cache_root()) / f"rocketmq-{line}"


def _fetch(
    line: Line, maven: list[str], env: dict[str, str], directory: Path, timeout_s: float
) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    pom = directory / "pom.xml"
    pom.write_text(_pom(line))
    command = [
        *(*maven, "--batch-mode", "--no-transfer-progress", "--quiet", "--file", str(pom)),
        "dependency:copy-dependencies",
        *(f"-DoutputDirectory={directory}", "-DincludeScope=runtime"),
    ]
    try:
        answer = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=timeout_s, env=env
        )
    except subprocess.TimeoutExpired as exc:
        raise RocketMQUnavailable(f"mvn did not finish within {timeout_s:.0f} s") from exc
    if answer.returncode != 0:
        lines = [text for text in (answer.stdout + answer.stderr).splitlines() if text.strip()]
        raise RocketMQUnavailable(f"mvn failed: {lines[0] if lines else 'no output'}")
    jars = [jar.name for jar in sorted(directory.glob("*.jar"))]
    absent = [part for part in _PARTS if f"{part}-{line}.jar" not in jars]
    if absent:
        raise RocketMQUnavailable(f"mvn succeeded without fetching {', '.join(absent)}")
    (directory / _STAMP).write_text("\n".join(jars) + "\n")


def _pom(line: Line) -> str:
    dependencies = "".join(
        f"<dependency><groupId>org.apache.rocketmq</groupId><artifactId>{part}</artifactId>"
        f"<version>{line}</version></dependency>\n"
        for part in _PARTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "<modelVersion>4.0.0</modelVersion>\n"
        "<groupId>rocketmq.testing</groupId><artifactId>genuine</artifactId>"
        f"<version>{line}</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )


def main() -> int:
    """Fill the cache; exit code 1 and one line on stderr if that is impossible."""
    try:
        for line in LINES:
            print(resolve_artifacts(line).directory)
    except RocketMQUnavailable as exc:
        print(f"genuine RocketMQ unavailable: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
