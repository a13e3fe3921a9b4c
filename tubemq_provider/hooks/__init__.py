"""Airflow connections turned into TubeMQ clients.

The only room that reads an Airflow connection. Hooks validate, build clients and close them; what
a window is or where progress lives is not theirs to know.
"""
