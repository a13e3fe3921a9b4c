"""The published Java class for packed bodies: its jars, its vectors and its results.

Run as ``python -m tests.client.tdmsg.published`` it fetches the one jar that is not among those of
the genuine servers, or saves the reason why that is impossible. Tests touch no network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tools.devkit.patience import PATIENCE
from tools.devkit.tubemq.artifacts import cached_artifacts
from tubemq_client import TDMsg
from tubemq_provider.engines.cache import cache_root
from tubemq_provider.engines.java import JavaRuntime, JavaUnavailable, find_java

HERE = Path(__file__).parent
PROGRAM = HERE / "java" / "PackedBodies.java"
VECTORS = HERE / "vectors.txt"
VERSION = "1.11.0"
COORDINATES = f"org.apache.inlong:inlong-common:{VERSION}"
# Newer releases insist on the parent pom, which was not published.
COPY = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"
# What the class needs is among the jars of the genuine servers.
LIBRARIES = ("guava-", "failureaccess-", "snappy-java-", "slf4j-api-")


class Reading(NamedTuple):
    """A message, and the result of the Java class. `groups` is None if it refused."""

    name: str
    message: bytes
    version: int
    created: int
    count: int
    groups: dict[str, list[bytes]] | None


def directory() -> Path:
    return cache_root() / f"inlong-common-{VERSION}"


def jar() -> Path:
    return directory() / f"inlong-common-{VERSION}.jar"


def why_not() -> str | None:
    """Return the note that the jar cannot be resolved, if there is one."""
    note = directory() / "unresolvable"
    return note.read_text() if note.is_file() else None


def parse_line(line: str) -> Reading:
    name, message, *facts = line.split("\t")
    raw = bytes.fromhex(message)
    if facts[0] == "refused":
        return Reading(name, raw, 0, 0, 0, None)
    groups: dict[str, list[bytes]] = {}
    for group in filter(None, facts[3].split(";")):
        attributes, _, bodies = group.partition(":")
        text = bytes.fromhex(attributes).decode()
        shown = _sorted(text.split("&")) if facts[0] == "4" else text
        groups[shown] = [bytes.fromhex(body) for body in bodies.split(",")[:-1]]
    return Reading(name, raw, int(facts[0]), int(facts[1]), int(facts[2]), groups)


def committed() -> list[Reading]:
    lines = VECTORS.read_text().splitlines()
    return [parse_line(line) for line in lines if not line.startswith("#")]


def run(java: JavaRuntime, messages: dict[str, bytes] | None = None) -> list[str]:
    """Return the output of the class for `messages`, or for those it builds itself."""
    artifacts = cached_artifacts()
    assert artifacts is not None
    libraries = [path for path in artifacts.jars if path.name.startswith(LIBRARIES)]
    arguments = ["write"] if messages is None else []
    answer = subprocess.run(
        [
            str(java.executable),
            *("-Dfile.encoding=UTF-8", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx256m"),
            *("-cp", os.pathsep.join(map(str, (jar(), *libraries))), str(PROGRAM), *arguments),
        ],
        input="".join(f"{name} {raw.hex()}\n" for name, raw in (messages or {}).items()),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100 * PATIENCE,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    return answer.stdout.splitlines()


def fetch() -> str | None:
    """Fetch the jar; return the error if that fails, which is saved next to it."""
    if jar().is_file():
        return None
    directory().mkdir(parents=True, exist_ok=True)
    reason = _fetch()
    note = directory() / "unresolvable"
    if reason is None:
        note.unlink(missing_ok=True)
    else:
        note.write_text(reason)
    return reason


def _fetch() -> str | None:
    maven = shutil.which("mvn")
    if maven is None:
        return "mvn is not on PATH"
    target = f"-DoutputDirectory={directory()}"
    command = [maven, "--batch-mode", "--quiet", COPY, f"-Dartifact={COORDINATES}", target]
    try:
        environment = find_java().environment()
        answer = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300 * PATIENCE,
            check=False,
        )
    except (JavaUnavailable, subprocess.TimeoutExpired) as error:
        return str(error)
    if answer.returncode or not jar().is_file():
        return f"mvn could not resolve {COORDINATES}"
    return None


def comparable(message: TDMsg) -> dict[str, list[bytes]]:
    """Return the groups of `message` under the names of `Reading.groups`."""
    if message.version != 4:
        return {group.attribute_text: group.bodies for group in message.groups()}
    return {
        _sorted(f"{key}={value}" for key, value in group.attributes.items()): group.bodies
        for group in message.groups()
    }


def _sorted(pairs: Iterable[str]) -> str:
    """Java shows the pairs of version 4 in the order of a hash table."""
    return "&".join(sorted(pairs))


if __name__ == "__main__":
    failure = fetch()
    if failure:
        print(f"{COORDINATES} unavailable: {failure}", file=sys.stderr)
    sys.exit(1 if failure else 0)
