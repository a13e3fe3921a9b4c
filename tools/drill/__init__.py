"""The kill drill: many windows in a real Airflow, killed at random, and an audit of the results.

`python -m tools.drill` runs rounds. A round starts TubeMQ and Airflow as separate processes, writes
known records throughout, ingests windows with every kind of Dag, kills tasks, supervisors, JVMs,
Python workers, brokers and Airflow's components meanwhile, and then compares the sinks with the
brokers' logs. It repairs nothing by hand: what Airflow's own retries do not heal counts against it.
Not part of the product; no module imports it.
"""
