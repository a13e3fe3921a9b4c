"""Plugin for Airflow's web pages: a page on groups, windows and lag.

`page` is loaded by Airflow in every process, and so is light; the rest is imported by the API
server on the first request of the page.
"""
