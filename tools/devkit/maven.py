"""Jars by the ordinary `mvn` client into the cache, once per machine.

For programs of the development kit that no package brings. The repository is Maven's configuration;
a stamp written last marks a complete directory. Starts no server.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tubemq_client.errors import LocalError
from tubemq_provider.engines.cache import cache_root

__all__ = ["Artifact", "MavenUnavailable", "jars_of"]

_STAMP: Final = "complete"
_FETCH_S: Final = 600.0


class MavenUnavailable(LocalError):
    """Jars are not available here; the message names the missing part."""


class Artifact(NamedTuple):
    """Maven coordinates of a jar."""

    group: str
    name: str
    version: str


def jars_of(
    folder: str,
    artifacts: Sequence[Artifact],
    *,
    leave_out: Sequence[str] = (),
    alone: bool = False,
) -> list[Path]:
    """Return the jars of `artifacts` and, unless `alone`, of their dependencies without the groups
    `leave_out`; fetched if the cache's `folder` lacks them. Raises `MavenUnavailable`."""
    directory = cache_root() / folder
    if not (directory / _STAMP).is_file():
        without = [f"-DexcludeGroupIds={','.join(leave_out)}"] if leave_out else []
        _fetch(artifacts, directory, ["-DexcludeTransitive=true"] if alone else without)
    return sorted(directory.glob("*.jar"))


def _fetch(artifacts: Sequence[Artifact], directory: Path, options: list[str]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MavenUnavailable("mvn is not on PATH; Apache Maven fetches the jars")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    pom = directory / "pom.xml"
    pom.write_text(_pom(artifacts))
    answer = subprocess.run(
        [
            *(maven, "--batch-mode", "--no-transfer-progress", "--quiet", "--file", str(pom)),
            "dependency:copy-dependencies",
            *(f"-DoutputDirectory={directory}", "-DincludeScope=runtime"),
            *options,
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=_FETCH_S,
    )
    if answer.returncode:
        raise MavenUnavailable(f"mvn failed: {(answer.stdout + answer.stderr).strip()[:300]}")
    (directory / _STAMP).touch()


def _pom(artifacts: Sequence[Artifact]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{one.group}</groupId><artifactId>{one.name}</artifactId>"
        f"<version>{one.version}</version></dependency>"
        for one in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>local</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
