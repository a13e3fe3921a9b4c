"""How a window plan is executed: `inline` (no JVM) and `session` (Spark in the task's process).

Every engine takes the plan and a staging place, writes exactly the plan's records as Parquet files
and returns counts (`windows.protocols.Engine`). Nothing here decides what a window is or publishes.
"""
