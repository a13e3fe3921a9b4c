"""TubeMQ under the names that Airflow has for all message queues (its provider common.messaging).

Only glue: the conditions are in `triggers`. This room must not decide anything.
"""
