"""Files of records: written whole, staged per try, counted before they are published.

`durable` has crash-safe file operations, `locations` a directory or a prefix of an object store,
`staging` the private place of a try. `writer` (and `partitioned`, with `partition_by`) writes
records into files, `data_file` is one file being written, `quarantine` a file of corrupt records.
`footers` reads facts of finished files, `columns` defines the columns of records. Sinks, engines,
offset stores and Spark tasks use this package and not each other.
"""
