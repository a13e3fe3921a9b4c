"""Benchmarks: `python -m tools.benchmarks` (or `make bench`). Never part of the test suite.

Every figure comes from one run on one server, so ratios within a table can be trusted while the
absolute numbers depend on the machine.
"""
