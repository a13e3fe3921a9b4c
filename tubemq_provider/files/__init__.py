"""Files that carry records: made whole, kept apart per try, counted before they are shown.

`durable` is the ground (what survives a crash), `locations` a directory or a prefix of an object
store, `staging` the private place of a try. `writer` (and `partitioned`, where files are apart by
columns) puts records into files, `data_file` is one of them while it is written, `quarantine` takes
those that are set aside. `footers` counts what lies there, `columns` says what a record consists
of. Sinks, engines, offset stores and Spark tasks stand on this room and not on each other.
"""
