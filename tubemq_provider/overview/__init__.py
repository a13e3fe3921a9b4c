"""What people are shown of groups: positions, windows, coverage and lag, as plain values.

Read from Airflow's metadata database and, where it is asked for, from brokers; nothing here changes
anything or draws anything. The command line and the web page both stand on it.
"""
