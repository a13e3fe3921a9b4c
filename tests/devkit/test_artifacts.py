"""The jar cache: what counts as complete, and one-line errors where jars cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.devkit.patience import PATIENCE
from tools.devkit.tubemq.artifacts import (
    GenuineUnavailable,
    cached_artifacts,
    resolve_artifacts,
)
from tubemq_provider.engines.cache import cache_root

pytestmark = pytest.mark.timeout(60)

FAKE_MAVEN = """#!/bin/sh
{body}
for argument; do
  case "$argument" in -DoutputDirectory=*) out="${{argument#*=}}" ;; esac
done
for name in {jars}; do : > "$out/$name"; done
"""
JARS = "tubemq-server-2.4.0.jar tubemq-core-1.13.0.jar tubemq-client-1.13.0.jar gson-2.10.1.jar"


def with_maven(directory: Path, *, body: str = ":", jars: str = JARS) -> dict[str, str]:
    """Return an environment whose `mvn` runs `body`, then creates empty files named `jars`."""
    directory.mkdir(exist_ok=True)
    program = directory / "mvn"
    program.write_text(FAKE_MAVEN.format(body=body, jars=jars))
    program.chmod(0o755)
    return os.environ | {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}


def test_a_resolved_set_is_found_again_without_maven(tmp_path: Path) -> None:
    env = with_maven(tmp_path / "bin")
    lines: list[str] = []
    first = resolve_artifacts(cache_dir=tmp_path / "cache", env=env, progress=lines.append)
    assert [jar.name for jar in first.jars] == sorted(JARS.split())
    assert first.classpath.count(os.pathsep) == 3
    assert lines[-1].startswith("4 jars in ")
    env = with_maven(tmp_path / "bin", body="exit 1")
    assert resolve_artifacts(cache_dir=tmp_path / "cache", env=env) == first


def test_a_set_with_a_lost_jar_is_fetched_again(tmp_path: Path) -> None:
    env = with_maven(tmp_path / "bin")
    first = resolve_artifacts(cache_dir=tmp_path / "cache", env=env)
    first.jars[0].unlink()
    assert cached_artifacts(tmp_path / "cache") is None
    assert len(resolve_artifacts(cache_dir=tmp_path / "cache", env=env).jars) == 4


def test_an_interrupted_fetch_does_not_count(tmp_path: Path) -> None:
    env = with_maven(tmp_path / "bin", jars="gson-2.10.1.jar")
    with pytest.raises(GenuineUnavailable, match="without fetching tubemq-server"):
        resolve_artifacts(cache_dir=tmp_path / "cache", env=env)
    assert cached_artifacts(tmp_path / "cache") is None


def test_mavens_own_reason_is_quoted_in_one_line(tmp_path: Path) -> None:
    complaint = "printf '\\033[1m[ERROR]\\033[m\\n[ERROR] no route -> [Help 1]\\n'; exit 1"
    env = with_maven(tmp_path / "bin", body=complaint)
    with pytest.raises(GenuineUnavailable) as caught:
        resolve_artifacts(cache_dir=tmp_path / "cache", env=env)
    assert str(caught.value) == "mvn failed: no route"


def test_a_hanging_maven_is_given_up(tmp_path: Path) -> None:
    env = with_maven(tmp_path / "bin", body="exec sleep 30")
    with pytest.raises(GenuineUnavailable, match="within 1 s"):
        resolve_artifacts(cache_dir=tmp_path / "cache", env=env, timeout_s=1)


def test_missing_maven_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tools.devkit.tubemq.artifacts"],
        check=False,
        capture_output=True,
        text=True,
        timeout=30 * PATIENCE,
        env=os.environ | {"PATH": str(tmp_path), "TUBEMQ_CACHE": str(tmp_path / "cache")},
    )
    assert result.returncode == 1
    assert result.stderr.startswith("genuine TubeMQ unavailable: mvn is not on PATH")
    assert result.stderr.count("\n") == 1


def test_the_cache_follows_its_variable_then_the_checkout(tmp_path: Path) -> None:
    assert cache_root({"TUBEMQ_CACHE": str(tmp_path)}) == tmp_path
    checkout = Path(__file__).resolve().parents[2]
    assert cache_root({}) == checkout / ".cache" / "tubemq"
