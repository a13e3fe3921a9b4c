"""The older place of `time_resolvers`, for Dags that import `Boundaries`.

What this package itself imports is `time_resolvers`. It goes with the next minor release.
"""
