"""Policies for columns that a table lacks, for every sink of tables.

Apart from the sinks, so that the words can be judged without opening one. This module must not know
a table format.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

from tubemq_client.errors import ConfigError

__all__ = ["Evolution", "checked_evolution"]

Evolution = Literal["refuse", "add_columns"]
"""Files with new columns are refused, or the table gets the columns with them."""


def checked_evolution(given: str) -> Evolution:
    """`given` as one of its two words. Raises `ConfigError`."""
    if given in get_args(Evolution):
        return cast("Evolution", given)
    raise ConfigError(f"schema_evolution {given!r} is none of refuse, add_columns", subject="sink")
