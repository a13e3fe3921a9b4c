"""Cost of importing the provider: ``python -m tools.benchmarks.imports``.

Each row is the least processor time of some fresh interpreters, as other work only adds. Operators,
sensors and triggers count from a loaded `airflow.sdk`, which a Dag file imports anyway. No test
asserts a time; ``tests/test_architecture.py`` asserts which modules must not be loaded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

ROWS = (
    ("", "from tubemq_provider.get_provider_info import get_provider_info; get_provider_info()"),
    ("import airflow.sdk", "import tubemq_provider.operators.ingest"),
    ("import airflow.sdk", "import tubemq_provider.sensors.lag"),
    ("import airflow.sdk", "import tubemq_provider.triggers.lag"),
    ("import airflow.sdk", "import tubemq_provider.queues.tubemq"),
)
"""Statement before the measurement, and the measured one."""


def milliseconds(before: str, statement: str, times: int) -> float:
    """Return the least processor time of `times` fresh interpreters, in ms."""
    code = (
        f"{before}\nimport time\nbegan = time.process_time()\n{statement}\n"
        f"print((time.process_time() - began) * 1000)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(times)
    ]
    return min(float(each.stdout.splitlines()[-1]) for each in runs)


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="interpreters per row")
    times = parser.parse_args().times
    for before, statement in ROWS:
        above = f" above {before.removeprefix('import ')}" if before else ""
        print(f"{milliseconds(before, statement, times):7.1f} ms{above}: {statement}")


if __name__ == "__main__":
    main()
