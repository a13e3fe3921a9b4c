"""Development and test tools outside the wheel: servers, launchers, isolation.

`tubemq` starts a genuine Apache InLong TubeMQ from its published artifacts, `airflow` a disposable
Airflow with its database, `spark` a standalone Spark cluster; `isolation` runs a command in a
network namespace with loopback only, `processes` and `reaper` ensure that no process outlives its
starter. No shipped module imports this.
"""
