"""Operators: tasks that move windows of a topic.

Thin over windows, sinks, engines and offset stores: they turn arguments and an Airflow context
into a `WindowRun`, run it, and hand back its result.
"""
