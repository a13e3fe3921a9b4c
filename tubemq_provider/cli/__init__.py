"""``airflow tubemq``: inspect and repair progress with access to Airflow's metadata database.

`definition` is loaded by Airflow at every start and stays light. The commands read and write the
stores through Airflow's own models and state backend; they never decide what a window is.
"""
