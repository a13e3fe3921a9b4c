"""What this provider adds to Airflow's own web pages: a page on groups, windows and lag.

`page` is what Airflow loads, in every process, and so is light; the rest is imported by the API
server when the page is first asked for.
"""
