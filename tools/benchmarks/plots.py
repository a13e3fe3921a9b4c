"""Charts of saved figures: `python -m tools.benchmarks.plots [RESULTS] [--into docs/images]`.

Draws the output of `tools.benchmarks.kafka --json tools/benchmarks/results/kafka.json`, a chart for
each size of records: ratios of one run, the median as a bar and the spread of the passes as a line.
SVG with a background, so that it is readable on light and dark pages; needs no library. Rates are
not drawn: they depend more on the machine than on the programs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parent / "results" / "kafka.json"
WIDTH, ROW, LEFT, TOP = 860, 44, 330, 56
"""Pixels: width of the chart, height of a row, left edge of bars, top of the first row."""
INK, BAR, WHISKER, RULE = "#1f2933", "#3b82c4", "#123a5c", "#c8d0d8"


def main() -> int:
    """Write a chart for each size; print its path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--into", type=Path, default=Path("docs", "images"))
    options = parser.parse_args()
    results: Mapping[str, Any] = json.loads(options.results.read_text())
    options.into.mkdir(parents=True, exist_ok=True)
    for size, run in results.items():
        target = options.into / f"kafka-{size}.svg"
        target.write_text(picture(size, run))
        print(target)
    return 0


def picture(size: str, run: Mapping[str, Any]) -> str:
    """Return the ratios of a run as SVG."""
    ratios: Mapping[str, Mapping[str, float]] = run["ratios"]
    most = max(1.0, *(spread["high"] for spread in ratios.values())) * 1.08
    scale = (WIDTH - LEFT - 90) / most
    height = TOP + ROW * len(ratios) + 34
    passes = run["passes"]
    heading = f"Records of {size} bytes: ratios of one run, median and spread of {passes} passes"
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'font-family="sans-serif" font-size="14" fill="{INK}" role="img">'
        ),
        f"<title>Ratios of one run, records of {escape(size)} bytes</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="16">{escape(heading)}</text>',
        *_rule(1.0, scale, height),
    ]
    for number, (name, spread) in enumerate(ratios.items()):
        lines += _row(TOP + number * ROW, name, spread, scale)
    versions = f"TubeMQ {run['tubemq']}, Kafka {run['kafka']}, PySpark {run['pyspark']}, local[2]"
    lines.append(f'<text x="16" y="{height - 10}" font-size="12">{escape(versions)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _rule(at: float, scale: float, height: int) -> Iterator[str]:
    x = LEFT + at * scale
    yield f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 30}" stroke="{RULE}"/>'
    yield f'<text x="{x:.1f}" y="{TOP - 12}" font-size="12" text-anchor="middle">{at:g}</text>'


def _row(y: int, name: str, spread: Mapping[str, float], scale: float) -> Iterator[str]:
    middle = y + ROW / 2
    low, median, high = (LEFT + spread[key] * scale for key in ("low", "median", "high"))
    above, below = name.split(" ÷ ")
    yield f'<text x="{LEFT - 12}" y="{middle - 4:.1f}" text-anchor="end">{escape(above)}</text>'
    yield (
        f'<text x="{LEFT - 12}" y="{middle + 13:.1f}" text-anchor="end" font-size="12">'
        f"÷ {escape(below)}</text>"
    )
    yield (
        f'<rect x="{LEFT}" y="{middle - 10:.1f}" width="{median - LEFT:.1f}" height="20" '
        f'fill="{BAR}"/>'
    )
    yield (
        f'<line x1="{low:.1f}" y1="{middle:.1f}" x2="{high:.1f}" y2="{middle:.1f}" '
        f'stroke="{WHISKER}" stroke-width="3"/>'
    )
    yield f'<text x="{high + 8:.1f}" y="{middle + 5:.1f}">{spread["median"]:.2f}</text>'


if __name__ == "__main__":
    raise SystemExit(main())
