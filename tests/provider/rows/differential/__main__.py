"""Long run of one format: `python -m tests.provider.rows.differential --inputs N --format F`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from pathlib import Path


def main() -> int:
    """Parse options, compare, print the differences."""
    parser = argparse.ArgumentParser(prog="python -m tests.provider.rows.differential")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--format", choices=["avro", "changes", "csv", "json", "protobuf", "ddl"], required=True
    )
    parser.add_argument(
        "--no-java", action="store_true", help="without Java, where that is optional"
    )
    options = parser.parse_args()
    module = importlib.import_module(f"tests.provider.rows.differential.{options.format}")
    count, problems = module.run(
        options.inputs, options.seed, None if options.no_java else spark_jars()
    )
    for problem in problems[:20]:
        print(problem)
    print(f"{options.format}: {count} inputs, {len(problems)} differences")
    return 1 if problems else 0


def spark_jars() -> Path | None:
    """Return the folder of PySpark's jars, None without PySpark."""
    spec = importlib.util.find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "jars"


if __name__ == "__main__":
    raise SystemExit(main())
