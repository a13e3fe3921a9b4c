"""The first bodies of a window, to infer a schema from before anything is written.

A few batches of each range; the window is read whole again afterwards. This module must not decide
what is inferred.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.windows.plan import WindowPlan

__all__ = ["first_bodies"]

_ENOUGH: Final = 10_000


def first_bodies(reader: Any, plan: WindowPlan) -> pa.BinaryArray:
    """At most about 10 000 bodies: the first batch with records of each range."""
    import pyarrow as pa

    found: list[pa.Array] = []
    schema = pa.schema([("value", pa.binary())])
    for range_ in plan.reads():
        with closing(reader.read(range_)) as batches:
            for batch in batches:
                bodies = batch.to_arrow(schema).column("value")
                if len(bodies):
                    found.append(bodies)
                    break
        if sum(map(len, found)) >= _ENOUGH:
            break
    return pa.concat_arrays(found) if found else pa.array([], pa.binary())
