"""A disposable Airflow for tests, the demo and the drill: real components, a folder of its own.

`stack` starts and stops them, `home` writes their configuration, `database` gives them a metadata
database, `api` asks them over REST. Everything binds to loopback and ends with its starter.
"""
