"""Columns of tables, for every sink: the policies for those that a table lacks, and all columns of
a table that follows changes.

Apart from the sinks, so that the words can be judged without opening one. This module must not know
a table format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast, get_args

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.following import OP, Following

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Evolution", "checked_evolution", "target_schema"]

Evolution = Literal["refuse", "add_columns"]
"""Files with new columns are refused, or the table gets the columns with them."""


def checked_evolution(given: str) -> Evolution:
    """`given` as one of its two words. Raises `ConfigError`."""
    if given in get_args(Evolution):
        return cast("Evolution", given)
    raise ConfigError(f"schema_evolution {given!r} is none of refuse, add_columns", subject="sink")


def target_schema(columns: pa.Schema, following: Following) -> pa.Schema:
    """Return the columns of the target for staged `columns`."""
    import pyarrow as pa

    kept = [item for item in columns if item.name != OP]
    if following.soft_delete:
        kept.append(pa.field(following.soft_delete, pa.bool_()))
    return pa.schema(kept)
