"""The windows as Dagster assets, on Dagster's own components and the embedded server."""
