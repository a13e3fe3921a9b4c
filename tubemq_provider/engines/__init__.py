"""Engines execute a window plan: in this process, in a Spark session, or as a Spark application.

`ingest` (`ingest.engines`) chooses the engine by name; `windows.run` calls it. Every engine takes
the plan and a staging place, writes exactly the plan's records as Parquet files and returns counts
(`windows.protocols.Engine`). Nothing here decides what a window is or publishes.
"""
