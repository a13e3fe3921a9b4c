"""The kill drill: many windows in a real Airflow, killed at random, and an audit of what arrived.

`python -m tools.drill` plays rounds. A round starts TubeMQ and Airflow as processes of their own,
lets a producer write known records throughout, has windows ingested by every kind of Dag, kills
tasks, supervisors, JVMs, Python workers, brokers and Airflow's components meanwhile, and then
compares the sinks with the brokers' logs. It repairs nothing by hand: what Airflow's own retries
do not heal counts against it. Not part of the product; nothing imports it.
"""
