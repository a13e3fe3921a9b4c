"""A disposable Airflow on loopback, for the demo and for tests against real components.

Nothing here is for production: one machine, one user, no login. It knows Airflow's command line,
configuration and REST API, and nothing of TubeMQ; the rest of the provider never imports it.
"""
