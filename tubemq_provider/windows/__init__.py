"""Bounded windows of a topic, published exactly once, without any framework.

Start with `run.steps.WindowRun`: it takes a window through eight named steps over three protocols
(`protocols`: an offset store, a sink, an engine). `plan` defines what a window is, `planning`
decides its ranges, and `time_resolvers` turns instants into offsets. Nothing here may import
airflow, pyspark or dagster.
"""
