"""A disposable Airflow for tests, the demo and the drill: real components, a separate folder.

`stack` starts and stops them, `home` writes their configuration, `database` provides a metadata
database, `api` is a REST client. Everything binds to loopback and ends with its starter.
"""
