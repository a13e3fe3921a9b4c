"""First bodies of a window, to infer a schema from before anything is written.

Reads one batch with records of each range; the whole window is read again afterwards. This module
must not decide what is inferred.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from tubemq_provider.files.arrays import binaries

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.windows.plan import WindowPlan

__all__ = ["first_bodies"]

_ENOUGH: Final = 10_000


def first_bodies(reader: Any, plan: WindowPlan) -> pa.BinaryArray:
    """Return about 10 000 bodies at most: the first batch with records of each range."""
    import pyarrow as pa

    chunks: list[pa.Array] = []
    schema = pa.schema([("value", pa.binary())])
    for range_ in plan.reads():
        with closing(reader.read(range_)) as batches:
            for batch in batches:
                bodies = batch.to_arrow(schema).column("value")
                if len(bodies):
                    chunks.append(bodies)
                    break
        if sum(map(len, chunks)) >= _ENOUGH:
            break
    return pa.concat_arrays(chunks) if chunks else binaries([])
