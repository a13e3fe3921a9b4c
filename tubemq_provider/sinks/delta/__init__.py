"""Windows in a Delta table, one commit each.

`sink` has the sink. `snapshot` reads the table's state from its log, `log` writes a commit into it,
`rules` and `stats` judge and describe what a window adds, `history` finds a window after a restore,
and `errors` reports what delta-rs says. Only `sink` is used from outside of this folder.
"""

from __future__ import annotations

from tubemq_provider.sinks.delta.sink import DeltaSink, application_id

__all__ = ["DeltaSink", "application_id"]
