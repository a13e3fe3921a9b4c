"""Files that carry records: made whole, kept apart per try, counted before they are shown.

`durable` is the ground (what survives a crash), `staging` the private place of a try, `writer` and
`quarantine` write Parquet into it, `parquet` counts what lies there, `columns` says what a record
consists of. Sinks, engines, offset stores and Spark tasks stand on this room and not on each other.
"""
