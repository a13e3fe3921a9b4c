"""Rows: from record bodies to typed columns, a batch at a time.

`spec` is the user's `decode=` option, `ddl` parses schemas, `decoding` is the interface for
engines; each `from_…` module decodes one format. Nothing here reads a broker, writes a file or
imports pyspark; pyarrow and parsers are imported where they are used. Tasks on executors import
this package.
"""

from typing import TYPE_CHECKING

from tubemq_client._lazy import lazy_names

if TYPE_CHECKING:
    from tubemq_provider.rows.decoding import RowDecoder
    from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["DecodeSpec", "RowDecoder"]

__getattr__ = lazy_names(__name__, {".decoding": ("RowDecoder",), ".spec": ("DecodeSpec",)})
