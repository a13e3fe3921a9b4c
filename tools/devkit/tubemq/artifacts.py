"""Resolves the published jars of a genuine TubeMQ with the ordinary `mvn` client, once per machine.

The server jar's parent pom was never published, so the server cannot be a Maven dependency: its jar
and the two jars it runs on are copied alone, and their third-party libraries come from a pom that
is generated here. Versions are fixed to a tested set. A stamp file written last marks a complete
directory; everything else is deleted and fetched again.

Run as ``python -m tools.devkit.tubemq.artifacts`` it fills the cache and prints the folder. Nothing
here starts a server or knows a repository address: that is Maven's configuration.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from tubemq_client.errors import LocalError
from tubemq_provider.engines.cache import cache_root
from tubemq_provider.engines.java import JavaRuntime, JavaUnavailable, find_java

__all__ = [
    "CLIENT_VERSION",
    "SERVER_VERSION",
    "Artifacts",
    "GenuineUnavailable",
    "cached_artifacts",
    "resolve_artifacts",
]

SERVER_VERSION = "2.4.0"
CLIENT_VERSION = "1.13.0"
"""Newest published core and client; the 2.4.0 server runs on them."""

Progress = Callable[[str], None]

_STAMP = "complete"
# Every 3.x release requires the parent pom of a copied jar; the server's was not published.
_DEPENDENCY_PLUGIN = "2.8"
_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")


class GenuineUnavailable(LocalError):
    """No genuine TubeMQ here; the message is one line that names the missing part."""


class Coordinates(NamedTuple):
    group: str
    artifact: str
    version: str
    classifier: str = ""


@dataclass(frozen=True, slots=True)
class Artifacts:
    """A directory with every jar of the genuine servers and of the published Java client."""

    directory: Path

    @property
    def jars(self) -> list[Path]:
        """Every jar of the directory."""
        return sorted(self.directory.glob("*.jar"))

    @property
    def classpath(self) -> str:
        """Argument of `java -cp`."""
        return os.pathsep.join(str(jar) for jar in self.jars)


_OWN = (
    Coordinates("org.apache.inlong", "tubemq-server", SERVER_VERSION),
    Coordinates("org.apache.inlong", "tubemq-core", CLIENT_VERSION),
    Coordinates("org.apache.inlong", "tubemq-client", CLIENT_VERSION),
)


def _native_epoll() -> Coordinates:
    """Return the library with its Java classes, which the servers need even without the library."""
    group, version = "io.netty", "4.1.94.Final"
    classifier = {"x86_64": "linux-x86_64", "aarch64": "linux-aarch_64"}.get(platform.machine())
    if sys.platform == "linux" and classifier:
        return Coordinates(group, "netty-transport-native-epoll", version, classifier)
    return Coordinates(group, "netty-transport-classes-epoll", version)


_THIRD_PARTY = (
    Coordinates("com.google.protobuf", "protobuf-java", "3.19.6"),
    Coordinates("com.google.code.gson", "gson", "2.10.1"),
    Coordinates("org.apache.logging.log4j", "log4j-core", "2.17.2"),
    Coordinates("org.apache.logging.log4j", "log4j-slf4j-impl", "2.17.2"),
    Coordinates("org.apache.logging.log4j", "log4j-1.2-api", "2.17.2"),
    Coordinates("org.apache.logging.log4j", "log4j-jcl", "2.17.2"),
    Coordinates("commons-codec", "commons-codec", "1.15"),
    Coordinates("org.apache.commons", "commons-lang3", "3.12.0"),
    Coordinates("commons-io", "commons-io", "2.11.0"),
    Coordinates("commons-cli", "commons-cli", "1.5.0"),
    Coordinates("io.netty", "netty-handler", "4.1.94.Final"),
    _native_epoll(),
    Coordinates("org.apache.zookeeper", "zookeeper", "3.8.4"),
    # The ZooKeeper server needs these two but does not declare them.
    Coordinates("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    Coordinates("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    Coordinates("org.ini4j", "ini4j", "0.5.4"),
    Coordinates("com.sleepycat", "je", "18.3.12"),
    Coordinates("org.apache.velocity", "velocity-engine-core", "2.3"),
    Coordinates("org.apache.velocity.tools", "velocity-tools-generic", "3.1"),
    Coordinates("com.google.guava", "guava", "32.0.1-jre"),
    Coordinates("org.dom4j", "dom4j", "2.1.4"),
    Coordinates("com.beust", "jcommander", "1.82"),
    Coordinates("org.apache.httpcomponents", "httpclient", "4.5.14"),
    Coordinates("javax.servlet", "javax.servlet-api", "4.0.1"),
    Coordinates("org.eclipse.jetty", "jetty-servlet", "9.4.51.v20230217"),
    Coordinates("org.springframework", "spring-context", "5.2.25.RELEASE"),
    Coordinates("org.springframework", "spring-orm", "5.2.25.RELEASE"),
    Coordinates("io.prometheus", "simpleclient_httpserver", "0.16.0"),
)

# ZooKeeper brings a second logging backend, which would take precedence over log4j.
_EXCLUDED = {"zookeeper": "ch.qos.logback"}


def cached_artifacts(cache_dir: Path | None = None) -> Artifacts | None:
    """Return the jars if a complete set is in the cache, else None. Touches no network."""
    directory = _directory(cache_dir)
    try:
        expected = (directory / _STAMP).read_text().split()
    except OSError:
        return None
    present = {jar.name for jar in directory.glob("*.jar")}
    return Artifacts(directory) if expected and present.issuperset(expected) else None


def resolve_artifacts(
    *,
    cache_dir: Path | None = None,
    java: JavaRuntime | None = None,
    env: Mapping[str, str] | None = None,
    progress: Progress = lambda _line: None,
    timeout_s: float = 900.0,
) -> Artifacts:
    """Return the jars, fetched with `mvn` if need be. Safe from several processes at once.

    `env` replaces the process environment. Raises `GenuineUnavailable` if Maven or Java is missing,
    or if a jar cannot be resolved within `timeout_s`.
    """
    env = os.environ if env is None else env
    cached = cached_artifacts(cache_dir)
    if cached is not None:
        return cached
    maven = shutil.which("mvn", path=env.get("PATH", os.defpath))
    if maven is None:
        raise GenuineUnavailable("mvn is not on PATH; Apache Maven fetches the TubeMQ jars")
    try:
        java = java or find_java(env=env)
    except JavaUnavailable as exc:
        raise GenuineUnavailable(str(exc)) from exc
    directory = _directory(cache_dir)
    with _locked(directory):
        cached = cached_artifacts(cache_dir)
        if cached is not None:
            return cached
        progress(f"resolving TubeMQ {SERVER_VERSION} and its libraries with mvn")
        _fetch(maven, java.environment(env), directory, timeout_s)
    jars = Artifacts(directory).jars
    progress(f"{len(jars)} jars in {directory}")
    return Artifacts(directory)


def _directory(cache_dir: Path | None) -> Path:
    # The name depends on the pom: another list of versions is another directory.
    digest = hashlib.sha256(_pom().encode()).hexdigest()[:12]
    return (cache_dir or cache_root()) / f"genuine-{SERVER_VERSION}-{digest}"


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(f"{directory.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(maven: str, env: dict[str, str], directory: Path, timeout_s: float) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    pom = directory / "pom.xml"
    pom.write_text(_pom())
    command = [
        *(
            maven,
            "--batch-mode",
            "--no-transfer-progress",
            "--quiet",
            "--file",
            str(pom),
        ),
        *(
            "dependency:copy-dependencies",
            "dependency:copy",
            f"-DoutputDirectory={directory}",
        ),
    ]
    try:
        answer = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=env,
        )
    except subprocess.TimeoutExpired as exc:
        raise GenuineUnavailable(f"mvn did not finish within {timeout_s:.0f} s") from exc
    if answer.returncode != 0:
        raise GenuineUnavailable(f"mvn failed: {_first_error(answer.stdout + answer.stderr)}")
    jars = [jar.name for jar in Artifacts(directory).jars]
    absent = [own.artifact for own in _OWN if f"{own.artifact}-{own.version}.jar" not in jars]
    if absent:
        raise GenuineUnavailable(f"mvn succeeded without fetching {', '.join(absent)}")
    (directory / _STAMP).write_text("\n".join(jars) + "\n")


def _first_error(output: str) -> str:
    """Return Maven's own reason: its first non-empty error line, without the pointer to help."""
    lines = [line.strip() for line in _ESCAPE_SEQUENCE.sub("", output).splitlines()]
    errors = [line.removeprefix("[ERROR]").strip() for line in lines if line.startswith("[ERROR]")]
    messages = [line.partition(" -> [Help")[0] for line in errors or lines if line]
    return messages[0] if messages else "no output"


def _pom() -> str:
    dependencies = "".join(_element("dependency", item) for item in _THIRD_PARTY)
    copies = "".join(_element("artifactItem", item) for item in _OWN)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "<modelVersion>4.0.0</modelVersion>\n"
        "<groupId>tubemq.testing</groupId><artifactId>genuine</artifactId>"
        f"<version>{SERVER_VERSION}</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{dependencies}</dependencies>\n"
        "<build><plugins><plugin>\n"
        "<groupId>org.apache.maven.plugins</groupId>"
        "<artifactId>maven-dependency-plugin</artifactId>"
        f"<version>{_DEPENDENCY_PLUGIN}</version>\n"
        f"<configuration><artifactItems>\n{copies}</artifactItems></configuration>\n"
        "</plugin></plugins></build>\n</project>\n"
    )


def _element(name: str, item: Coordinates) -> str:
    parts = {
        "groupId": item.group,
        "artifactId": item.artifact,
        "version": item.version,
        "classifier": item.classifier,
    }
    body = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in parts.items() if value)
    excluded = _EXCLUDED.get(item.artifact)
    if excluded:
        body += (
            f"<exclusions><exclusion><groupId>{excluded}</groupId>"
            "<artifactId>*</artifactId></exclusion></exclusions>"
        )
    return f"<{name}>{body}</{name}>\n"


def main() -> int:
    """Fill the cache; exit code 1 and one line on stderr if that is impossible."""
    try:
        artifacts = resolve_artifacts(progress=print)
    except GenuineUnavailable as exc:
        print(f"genuine TubeMQ unavailable: {exc}", file=sys.stderr)
        return 1
    print(artifacts.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
