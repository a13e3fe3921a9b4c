"""Engines execute a window plan: in this process, in a Spark session, or as a Spark application.

`ingest` (`ingest.engines`) chooses the engine by name; `windows.run` calls it. Every engine takes
the plan and a staging place, writes exactly the plan's records as Parquet files and returns counts
(`windows.protocols.Engine`). `inline`, `session`, `submit`, `connect`, `auto` and `function` are
engines; `submit_main` is the program that `spark-submit` runs, `applications` the folder it shares
with its task, `cluster_mode`, `cluster_documents`, `supervisor` and `yarn` what a driver on a
cluster needs besides. Nothing here decides what a window is or publishes.
"""
