"""Windows without a broker, without Airflow and without Spark."""
