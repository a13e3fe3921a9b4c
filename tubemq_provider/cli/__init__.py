"""``airflow tubemq``: see and repair progress where Airflow's metadata database can be reached.

`definition` is what Airflow loads at every start and stays light. The commands read and write what
the stores keep, through Airflow's own models and state backend; they never decide what a window is.
"""
