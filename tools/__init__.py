"""Tools for the people who develop this project; nothing of it is shipped.

`devkit` starts genuine servers and a disposable Airflow, `drill` kills windows at random, `demo` is
`make demo`, `benchmarks` compares rates, `scripts` is what `make` calls, `language` checks words.
"""
