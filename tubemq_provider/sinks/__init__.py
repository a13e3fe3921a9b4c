"""Where records end up, each window with its marker, whole or not at all.

`parquet` keeps windows as directories of Parquet files. Sinks decide nothing about windows: they
stage, verify, publish atomically, and answer which windows they have.
"""
