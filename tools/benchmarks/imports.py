"""Cost of importing the provider: ``python -m tools.benchmarks.imports``.

Each row is the least processor time of some fresh interpreters, as other work only adds, and the
growth of resident memory. Operators, sensors and triggers count from a loaded `airflow.sdk`, which
a Dag file imports anyway; the rows "above" an operator create 1 000 tasks. No test asserts a time;
``tests/test_architecture.py`` asserts which modules must not be loaded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

_SDK = "import airflow.sdk; from airflow.sdk import BaseOperator, DAG"
_INGEST = "from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator"


def _tasks(operator: str, arguments: str) -> str:
    return f"with DAG('d'):\n    for i in range(1000): {operator}(task_id=f't{{i}}', {arguments})"


_OURS = "topic='orders', group='lake', sink='/lake'"
_DIFFERENT = "topic=f'orders{i}', group='lake', sink=f'/lake/{i}'"
ROWS = (
    ("", "from tubemq_provider.get_provider_info import get_provider_info; get_provider_info()"),
    (_SDK, "import tubemq_provider.operators.ingest"),
    (_SDK, "import tubemq_provider.sensors.lag"),
    (_SDK, "import tubemq_provider.triggers.lag"),
    (_SDK, "import tubemq_provider.queues.tubemq"),
    (f"{_SDK}; {_INGEST}", _tasks("BaseOperator", "")),
    (f"{_SDK}; {_INGEST}", _tasks("TubeMQCursorIngestOperator", _OURS)),
    (f"{_SDK}; {_INGEST}", _tasks("TubeMQCursorIngestOperator", _DIFFERENT)),
    (
        f"{_SDK}; {_INGEST}",
        _tasks(
            "TubeMQCursorIngestOperator",
            f"{_OURS}, decode={{'format': 'json', 'schema': 'id bigint, name string'}}",
        ),
    ),
)
"""Statement before the measurement, and the measured one."""


def costs(before: str, statement: str, times: int) -> tuple[float, float]:
    """Return the least processor time of `times` fresh interpreters, in ms, and the least growth of
    memory, in MiB."""
    code = (
        "import time, resource\n"
        "def pages(): return int(open('/proc/self/statm').read().split()[1])\n"
        f"{before}\nheld, began = pages(), time.process_time()\n{statement}\n"
        "spent = time.process_time() - began\n"
        "print(spent * 1000, (pages() - held) * resource.getpagesize() / 2**20)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(times)
    ]
    figures = [[float(word) for word in each.stdout.splitlines()[-1].split()] for each in runs]
    return min(spent for spent, _ in figures), min(grown for _, grown in figures)


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="interpreters per row")
    times = parser.parse_args().times
    for before, statement in ROWS:
        above = f" above {before.removeprefix('import ')}" if before else ""
        spent, grown = costs(before, statement, times)
        print(f"{spent:7.1f} ms {grown:5.1f} MiB{above}: {' '.join(statement.split())}")


if __name__ == "__main__":
    main()
