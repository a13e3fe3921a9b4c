"""A Spark home whose `spark-submit` is a small program of the tests (`fake_spark_submit`).

The environment variable FAKE_SUBMIT of the starting process selects its behaviour. It starts
nothing itself.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

__all__ = ["fake_spark_home"]

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests" / "provider" / "engines" / "fake_spark_submit.py"


def fake_spark_home(folder: Path, fake: Path = FAKE) -> Path:
    """Make the place below `folder`; the value of SPARK_HOME."""
    program = folder / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(fake))}"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {command} "$@"\n')
    program.chmod(0o755)
    return folder / "spark"
