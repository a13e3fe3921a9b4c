"""Apache InLong TubeMQ for Apache Airflow: exact windows of a topic, delivered exactly once.

Import from the rooms (`operators`, `sensors`, `hooks`, `windows`, `spark` …); this module imports
none of them, because Airflow, Spark executors and plain scripts each need another few.
"""
