"""What develops and tests this project, outside the wheel: servers, launchers, isolation.

`tubemq` starts a genuine Apache InLong TubeMQ from its published artifacts, `airflow` a disposable
Airflow with its database, `spark` a standalone Spark cluster; `isolation` runs a command where
there is only loopback, `processes` and `reaper` see to it that nothing outlives what started it.
Nothing that is shipped imports this.
"""
