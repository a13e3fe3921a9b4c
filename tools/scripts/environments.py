"""Separate environments for other releases of this project's dependencies, in `build/`.

Created with uv once, and kept until their specification changes. The project is installed in place,
so they run the code of the tree. Used by the matrices of Spark, Airflow and Python.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from tools.scripts import bounded

__all__ = ["ROOT", "environment", "locked", "run_bounded"]

ROOT = Path(__file__).resolve().parents[2]


def locked() -> list[str]:
    """Return every package of the lock as ``name==version``."""
    lines = (ROOT / "requirements/all.lock").read_text().splitlines()
    return [line.split("\\")[0].strip() for line in lines if "==" in line and line[0] != " "]


def run_bounded(command: Sequence[str], limit_s: float, variables: Mapping[str, str]) -> int:
    """Run a command under `bounded` with additional `variables`; return its exit code.

    Ends this process if the command was interrupted, so that the next ones do not run either.
    """
    code = bounded.run(command, limit_s, environment={**os.environ, **variables})
    if code in {128 + signal.SIGINT, 128 + signal.SIGTERM}:
        sys.exit(code)
    return code


def environment(
    name: str,
    extras: str,
    packages: Sequence[str],
    constraints: Sequence[str] = (),
    *,
    interpreter: str = sys.executable,
    resolution: Literal["highest", "lowest-direct"] = "highest",
) -> Path:
    """Return the Python of `build/<name>`, with the project and its `extras`, and `packages`.

    `interpreter` is uv's argument: a path, or a release that is on this machine. `lowest-direct`
    takes the oldest versions that the project and `packages` allow.
    """
    folder = ROOT / "build" / name
    python = folder / "bin" / "python"
    specification = "\n".join([extras, *packages, *constraints, interpreter, resolution, _bounds()])
    complete = folder / ".complete"
    if complete.exists() and complete.read_text() == specification:
        return python
    uv = str(Path(sys.executable).with_name("uv"))
    limits = folder.with_suffix(f"{folder.suffix}.txt")
    limits.parent.mkdir(exist_ok=True)
    limits.write_text("\n".join(constraints) + "\n")
    print(f"{name}: making {folder}", flush=True)
    make = [uv, "venv", "--quiet", "--clear", "--no-python-downloads", "--python", interpreter]
    subprocess.run([*make, str(folder)], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    install += ["--resolution", resolution]
    install += ["--constraint", str(limits), *packages]
    subprocess.run([*install, "--editable", f"{ROOT}[{extras}]"], check=True)
    complete.write_text(specification)
    return python


def _bounds() -> str:
    """Return the project's requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return repr([project["dependencies"], project["optional-dependencies"]])
