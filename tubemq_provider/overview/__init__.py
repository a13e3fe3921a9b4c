"""Overview of groups as plain values: positions, windows, coverage and lag.

Read from Airflow's metadata database and, if requested, from brokers; nothing here changes or
renders anything. The command line and the web page both use it.
"""
