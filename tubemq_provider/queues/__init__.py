"""TubeMQ behind the names that Airflow has for all message queues (its provider common.messaging).

Only the glue: what is waited for, and how, is in `triggers`. This room must not decide anything.
"""
