"""Change streams: what Debezium, Canal, Maxwell and GoldenGate write of a database's changes.

`envelopes` reads the formats' JSON into `Change` values, `values` turns their values into those of
a column's type, `bodies` is the decoder that engines call. Nothing here knows a sink: what a table
that follows changes does with them is in `rows.changes.reduction` and in the sinks.
"""
