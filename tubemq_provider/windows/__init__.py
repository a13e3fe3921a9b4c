"""Bounded windows with exactly-once results, free of any framework.

Start with `run.steps.WindowRun`: it takes a window through eight named steps over the three
protocols of `protocols` (an offset store, a sink, an engine). `plan` says what a window is,
`planning` finds its ends, `time_resolvers` turns instants into offsets. Nothing here may import
airflow, pyspark or dagster.
"""
