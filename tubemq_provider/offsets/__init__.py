"""Stores of progress behind `windows.protocols.OffsetStore`.

`asset_state` keeps it in Airflow's metadata, `file` in a directory, `memory` in the process.
Stores keep and return documents; they decide nothing.
"""
